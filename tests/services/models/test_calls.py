from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from tenacity import wait_fixed

from core.errors import Cause, LLMRefusedError, LLMUnavailableError, ModelFailure
from core.llm_wrapper import LLMDelta
from services.models.calls import FAILURES, GuardedCalls

Step = str | Exception


class Server:
    """One script per call, the last one repeated: texts it emits, an error it ends with."""

    def __init__(self, *scripts: list[Step]) -> None:
        self.scripts = list(scripts)
        self.calls = 0
        self.closed = 0

    def open(self) -> AsyncGenerator[LLMDelta, None]:
        script = self.scripts[min(self.calls, len(self.scripts) - 1)]
        self.calls += 1
        return self._play(script)

    async def _play(self, script: list[Step]) -> AsyncGenerator[LLMDelta, None]:
        try:
            for step in script:
                await asyncio.sleep(0)
                if isinstance(step, Exception):
                    raise step
                yield LLMDelta(step)
        finally:
            self.closed += 1


def busy(retry_after_s: float | None = None, status: int = 503) -> LLMRefusedError:
    return LLMRefusedError("busy", status, retry_after_s=retry_after_s)


async def answer(calls: GuardedCalls, server: Server, owner: str = "") -> tuple[str, list[float]]:
    waits: list[float] = []
    deltas = calls.stream(server.open, lambda retry, wait: waits.append(wait), owner)
    words = [delta.text async for delta in deltas]
    return "".join(words), waits


def quick() -> GuardedCalls:
    return GuardedCalls(backoff=wait_fixed(0.01), recovery_s=1)


async def test_a_temporary_failure_before_the_first_token_is_retried_twice() -> None:
    server = Server([busy()], [busy(status=529)], ["an", "swer"])
    reply, waits = await answer(quick(), server)
    assert (reply, server.calls, len(waits)) == ("answer", 3, 2)


async def test_after_two_retries_the_last_failure_is_raised() -> None:
    server = Server([busy()])
    with pytest.raises(LLMRefusedError):
        await answer(quick(), server)
    assert server.calls == 3


async def test_nothing_is_retried_after_the_first_token() -> None:
    """Discriminates: retrying around the whole stream, which repeats the beginning."""
    server = Server(["an", LLMUnavailableError("reset", transient=True)], ["answer"])
    calls = quick()
    deltas = calls.stream(server.open)
    assert (await anext(deltas)).text == "an"
    with pytest.raises(LLMUnavailableError):
        await anext(deltas)
    assert server.calls == 1


@pytest.mark.parametrize("error", [LLMRefusedError("no", 400), LLMUnavailableError("not an answer")])
async def test_a_permanent_failure_is_raised_at_once(error: LLMUnavailableError) -> None:
    server = Server([error], ["answer"])
    with pytest.raises(LLMUnavailableError):
        await answer(quick(), server)
    assert server.calls == 1


async def test_the_servers_retry_time_is_used_unless_it_is_too_long() -> None:
    _, waits = await answer(quick(), Server([busy(retry_after_s=0.2, status=429)], ["answer"]))
    assert waits[0] >= 0.2
    server = Server([busy(retry_after_s=3600, status=429)], ["answer"])
    with pytest.raises(LLMRefusedError):
        await answer(quick(), server)
    assert server.calls == 1


async def test_a_failing_server_is_not_called_for_a_while_and_then_probed_once() -> None:
    """Discriminates: letting every waiting question through when the circuit is half open."""
    calls, server = quick(), Server([LLMUnavailableError("silent")])
    for _ in range(FAILURES):
        with pytest.raises(LLMUnavailableError, match="silent"):
            await answer(calls, server)
    with pytest.raises(LLMUnavailableError, match="in a row"):
        await answer(calls, server)
    assert server.calls == FAILURES
    await asyncio.sleep(1.05)  # the circuit's own second is over
    server.scripts = [["back"]]
    outcomes = await asyncio.gather(*(answer(calls, server) for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(outcome, tuple) for outcome in outcomes) == 1
    assert (await answer(calls, server))[0] == "back"


async def test_a_refusal_does_not_open_the_circuit() -> None:
    calls, server = quick(), Server([LLMRefusedError("no", 400)])
    for _ in range(FAILURES + 2):
        with pytest.raises(LLMRefusedError):
            await answer(calls, server)
    assert server.calls == FAILURES + 2


async def test_a_cancelled_call_closes_the_model() -> None:
    server = Server(["one", "two"])
    deltas = quick().stream(server.open)
    await anext(deltas)
    await deltas.aclose()
    assert server.closed == 1


async def fail(calls: GuardedCalls, error: LLMUnavailableError, owner: str) -> None:
    for _ in range(FAILURES):
        with pytest.raises(LLMUnavailableError):
            await answer(calls, Server([error]), owner)


async def is_asked(calls: GuardedCalls, owner: str) -> bool:
    try:
        return (await answer(calls, Server(["yes"]), owner))[0] == "yes"
    except LLMUnavailableError:
        return False


@pytest.mark.parametrize("error", [busy(status=500), LLMUnavailableError("silent")], ids=["500", "silent"])
async def test_one_owners_failures_block_only_that_owner(error: LLMUnavailableError) -> None:
    """Discriminates: one circuit for all, which a single key's questions can open."""
    calls = quick()
    await fail(calls, error, "mallory")
    assert not await is_asked(calls, "mallory")
    assert await is_asked(calls, "alice")
    assert calls.is_broken


async def test_two_owners_failures_open_the_circuit_for_all() -> None:
    """Discriminates: a circuit for each owner and none for all."""
    calls = quick()
    await fail(calls, busy(), "alice")
    await fail(calls, busy(), "bob")
    assert not await is_asked(calls, "carol")


async def test_an_unreachable_server_opens_the_circuit_for_all() -> None:
    calls = quick()
    await fail(calls, LLMUnavailableError("no", ModelFailure(Cause.UNREACHABLE)), "alice")
    assert not await is_asked(calls, "bob")


async def test_our_own_queue_does_not_count_against_the_server() -> None:
    """Discriminates: taking a local model that many wait for as broken."""
    calls = quick()
    await fail(calls, LLMUnavailableError("busy", ModelFailure(Cause.BUSY), busy=True), "alice")
    assert await is_asked(calls, "alice")
    assert not calls.is_broken


async def test_a_server_that_asks_to_wait_is_not_broken() -> None:
    """Discriminates: a key's 429s counted as failures."""
    calls = quick()
    await fail(calls, busy(retry_after_s=3600, status=429), "mallory")
    assert await is_asked(calls, "mallory")
    assert not calls.is_broken
