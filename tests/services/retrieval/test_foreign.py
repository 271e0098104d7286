from __future__ import annotations

import asyncio
import math

import pytest

from core.relevance.query import Query, QueryForm
from core.relevance.sparse import encode_query
from services.retrieval.foreign import (
    FAILURES,
    ForeignReranker,
    RerankerUnavailableError,
    ScoreScale,
    probability,
    two_wordings,
)
from tests.services.retrieval.rerankers import ScriptedPairs, ask, candidates

ASKED = "它呢？"
LAST, ALL = f"乙 {ASKED}", f"甲 乙 {ASKED}"


@pytest.mark.parametrize(
    ("question", "previous", "trusts", "joined"),
    [
        (ASKED, ("专业版多少钱？", "错误 E1001 是什么意思"), (0.5, 0.5), LAST),
        (ASKED, ("专业版多少钱？", "那团队版呢？"), (0.5, 0.5), ALL),
        (ASKED, ("专业版多少钱？", "那团队版呢？"), (0.5, 0.25), LAST),
        (ASKED, ("专业版多少钱？", "错误 E1001 是什么意思"), (0.25, 0.5), ALL),
        (ASKED, (), (0.0, 0.0), None),
        ("错误 E1001 表示什么问题", ("专业版多少钱？",), (0.5, 0.5), None),
    ],
)
def test_of_many_forms_the_question_and_at_most_one_joined_form_are_asked(
    question: str, previous: tuple[str, ...], trusts: tuple[float, float], joined: str | None
) -> None:
    """Discriminates: asking every form; a joined one for a question that stands alone, which lets passages on
    the last subject through."""
    forms = [(question, 1.0), (LAST, trusts[0]), (ALL, trusts[1])]
    query = Query(
        question, tuple(QueryForm(text, [], encode_query(text), trust) for text, trust in forms), previous
    )
    assert [text for text, _ in two_wordings(query)] == [question, *([joined] if joined else [])]


async def test_a_dead_reranker_is_left_alone_after_some_failures_and_tried_again_later() -> None:
    """Discriminates: no circuit, so that every turn waits for the time-out; a circuit that never closes."""
    dead = ScriptedPairs(fails=True)
    guard = ForeignReranker(dead, timeout_s=5, recovery_s=1)
    for _ in range(FAILURES + 3):
        with pytest.raises(RerankerUnavailableError):
            await guard.judge(ask("退款"), candidates("fees"))
    assert len(dead._calls) == FAILURES
    await asyncio.sleep(1.1)  # the circuit's own second is over
    dead.fails, dead.wait_s = False, 0.05
    tried = await asyncio.gather(
        *(guard.judge(ask("退款"), candidates("fees")) for _ in range(3)), return_exceptions=True
    )
    assert len(dead._calls) == FAILURES + 1  # one question finds out for all
    assert [isinstance(each, RerankerUnavailableError) for each in tried] == [False, True, True]
    assert await guard.judge(ask("退款"), candidates("fees")) == [0.5]


async def test_a_server_that_asks_for_a_pause_is_not_waited_for_but_left_alone() -> None:
    """Discriminates: sleeping for Retry-After inside a turn; asking again at once."""
    busy = ScriptedPairs(fails=True, retry_after_s=60)
    guard = ForeignReranker(busy, timeout_s=5)
    for _ in range(2):
        with pytest.raises(RerankerUnavailableError):
            await asyncio.wait_for(guard.judge(ask("退款"), candidates("fees")), 1)
    assert len(busy._calls) == 1


async def test_who_leaves_while_a_reranker_judges_says_nothing_of_its_health() -> None:
    slow = ScriptedPairs(wait_s=30)
    guard = ForeignReranker(slow, timeout_s=60)
    for _ in range(FAILURES + 1):
        task = asyncio.create_task(guard.judge(ask("退款"), candidates("fees")))
        await asyncio.sleep(0.01)  # it is under way when it is cancelled
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    slow.wait_s = 0
    assert await guard.judge(ask("退款"), candidates("fees")) == [0.5]


def test_scores_are_raw_from_the_first_that_is_no_probability_on() -> None:
    """Discriminates: deciding for every reply anew; a NaN or a missing score that becomes 0.5."""
    scale = ScoreScale()
    assert scale.chances([0.25, 1.0, math.nan, None]) == [0.25, 1.0, 0.0, None]
    assert scale.chances([0.0, -math.inf, math.inf, math.nan, None]) == [0.5, 0.0, 1.0, 0.0, None]
    assert scale.chances([0.0]) == [0.5]


@pytest.mark.parametrize(
    ("score", "expected"), [(0.0, 0.5), (1e308, 1.0), (-1e308, 0.0), (float("nan"), 0.0)]
)
def test_no_score_overflows(score: float, expected: float) -> None:
    assert probability(score) == expected
