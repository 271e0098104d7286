"""Key passages are chosen while the model writes, and whatever fails, there are citations."""

from __future__ import annotations

import asyncio

import pytest

from api.turn.answer import LARGE_CHARS, Citing
from core.knowledge import Candidate, Chunk, Citation
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import SparseTerms

TEXTS = (
    "开头。专业版每月 99 元。结尾。",
    "退款要先申请。退款由财务审批。退款七天到账。",
    "\U0001f600。无关。",
)


def query(question: str) -> Query:
    return Query(question, (QueryForm(question, [], SparseTerms([], [])),))


def candidates(*texts: str) -> tuple[Candidate, ...]:
    return tuple(Candidate(Chunk(f"c{at}", f"d{at}", "a.md", text, 0)) for at, text in enumerate(texts))


def whole(citations: tuple[Citation, ...]) -> bool:
    return all(
        each.text[each.passage_start : each.passage_end] == each.key_passage != "" for each in citations
    )


def expecting(question: str, *texts: str) -> Citing:
    citing = Citing()
    citing.expect(query(question), candidates(*texts))
    return citing


async def test_nothing_is_chosen_before_the_first_token_and_everything_soon_after() -> None:
    """Discriminates: starting in `expect`."""
    citing = expecting("专业版每月多少钱？", *TEXTS)
    tasks = asyncio.all_tasks()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == tasks
    citing.begin()
    citing.begin()
    [reading] = asyncio.all_tasks() - tasks
    await reading
    citations = await citing.finish("99 元 [1]。")
    assert [each.cited for each in citations] == [True, False, False]
    assert citations[0].key_passage == "专业版每月 99 元。"
    assert whole(citations)


async def test_other_tasks_run_between_two_texts() -> None:
    """Discriminates: a step that does not yield to the loop."""
    citing, turns = expecting("专业版", *TEXTS), 0
    citing.begin()
    finishing = asyncio.create_task(citing.finish(""))
    while not finishing.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 2 * len(TEXTS)


async def test_a_turn_cut_before_the_first_token_has_complete_citations() -> None:
    citations = await expecting("退款", *TEXTS).finish("")
    assert len(citations) == 3
    assert whole(citations)
    assert not any(each.cited for each in citations)


async def test_the_answer_decides_which_sentence_of_a_source_is_marked() -> None:
    """Discriminates: leaving the claims out."""
    asked = await expecting("退款", *TEXTS).finish("由财务部门审批 [2]。")
    assert asked[1].key_passage == "退款由财务审批。"
    asked = await expecting("退款", *TEXTS).finish("七天就到账 [2]。")
    assert asked[1].key_passage == "退款七天到账。"


async def test_a_rewritten_question_is_matched_in_both_wordings() -> None:
    citing = Citing()
    citing.expect(query("那个呢？"), candidates(TEXTS[0]), "专业版每月多少钱？")
    assert (await citing.finish(""))[0].key_passage == "专业版每月 99 元。"


@pytest.mark.parametrize("length", [LARGE_CHARS, 20 * LARGE_CHARS])
async def test_a_very_long_text_delays_nobody(length: int) -> None:
    citing = expecting("专业版每月多少钱？", "无关的话。" * (length // 5) + TEXTS[0])
    assert whole(await citing.finish("每月 99 元 [1]" + " " * length))


async def test_without_a_query_there_are_citations_without_passages() -> None:
    citing = Citing()
    citing.expect(None, candidates(*TEXTS))
    citations = await citing.finish("[2]")
    assert [(each.index, each.key_passage, each.passage_start) for each in citations] == [
        (1, "", None),
        (2, "", None),
        (3, "", None),
    ]
    assert citations[1].cited


async def test_a_failure_while_choosing_loses_no_citation() -> None:
    """Discriminates: letting the failure escape from `finish`."""
    broken = Query("?", (QueryForm("?", [], SparseTerms([], []), weight="x"),))  # type: ignore[arg-type]
    citing = Citing()
    citing.expect(broken, candidates(*TEXTS))
    citations = await citing.finish("[1]")
    assert len(citations) == 3
    assert citations[0].cited
