from __future__ import annotations

from collections import Counter

import pytest

from core.errors import LLMRefusedError, LLMTruncatedError, LLMUnavailableError
from services.models.calls import FAILURES, Outcome
from tests.services.models.test_calls import Server, answer, busy, quick

AWAY = LLMUnavailableError("silent")


async def test_an_answer_is_counted_with_its_retries() -> None:
    calls = quick()
    await answer(calls, Server([busy()], [busy()], ["answer"]))
    assert (calls.outcomes, calls.retries, calls.is_broken) == (Counter({Outcome.ANSWERED: 1}), 2, False)


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        (LLMRefusedError("too long", 400), Outcome.REFUSED),
        (LLMRefusedError("overloaded", 429, retry_after_s=3600), Outcome.FAILED),
        (AWAY, Outcome.FAILED),
        (LLMTruncatedError("cut"), Outcome.FAILED),
    ],
)
async def test_kinds_of_failed_calls_are_distinguished(ending: Exception, outcome: Outcome) -> None:
    calls = quick()
    with pytest.raises(type(ending)):
        await answer(calls, Server([ending]))
    assert calls.outcomes == Counter({outcome: 1})


async def test_a_failure_after_the_first_token_counts_and_a_cancellation_does_not() -> None:
    """Discriminates: counting only until the first token."""
    calls = quick()
    with pytest.raises(LLMTruncatedError):
        await answer(calls, Server(["an", LLMTruncatedError("cut")]))
    deltas = calls.stream(Server(["one", "two"]).open)
    await anext(deltas)
    await deltas.aclose()
    assert calls.outcomes == Counter({Outcome.FAILED: 1, Outcome.LEFT: 1})


async def test_an_open_circuit_is_reported_until_the_server_answers_again() -> None:
    """Discriminates: showing only the open circuit, which silently ends after ten seconds."""
    calls, server = quick(), Server([AWAY])
    for _ in range(FAILURES + 1):
        with pytest.raises(LLMUnavailableError):
            await answer(calls, server)
    assert calls.outcomes == Counter({Outcome.FAILED: FAILURES, Outcome.SKIPPED: 1})
    assert calls.is_broken
