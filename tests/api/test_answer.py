"""What is sent of an answer is what is stored of it."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from api.answer import Answer
from core.llm_wrapper import LLMDelta
from core.text import scrub
from core.think import Piece, ThinkSplitter
from services.text_filters import AnswerFilters, load_answer_filters

TEXT = st.text(st.sampled_from("ab \n\t\r\u2028<>/think年费1"), max_size=40)
CUTS = st.lists(st.integers(0, 60), max_size=8)


async def _deltas(deltas: Sequence[LLMDelta]) -> AsyncGenerator[LLMDelta, None]:
    for delta in deltas:
        yield delta


async def _said(answer: Answer, deltas: Sequence[LLMDelta]) -> list[Piece]:
    return [piece async for piece in answer.pieces(_deltas(deltas))]


def sent(answer: Answer, deltas: Sequence[LLMDelta]) -> tuple[str, str]:
    """Content and thinking, as the reader puts them together."""
    pieces = asyncio.run(_said(answer, deltas))
    assert all(piece.text for piece in pieces)
    told = {kind: "".join(piece.text for piece in pieces if piece.thinking is kind) for kind in (False, True)}
    return told[False], told[True]


def cut(text: str, cuts: Sequence[int]) -> list[str]:
    edges = [0, *sorted(min(each, len(text)) for each in cuts), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]


def expected(text: str) -> tuple[str, str]:
    splitter = ThinkSplitter()
    pieces = [*splitter.feed(scrub(text)), *splitter.flush()]
    told = {kind: "".join(piece.text for piece in pieces if piece.thinking is kind) for kind in (False, True)}
    return told[False].strip(), told[True].strip()


@given(TEXT, CUTS)
@example("<think> a \n</think>\n\nb c \n\n", [1, 9, 14, 20])
@example("a \r\n ", [2, 3])
def test_what_is_sent_is_what_is_stored_and_both_are_trimmed(text: str, cuts: list[int]) -> None:
    """For any split. Discriminates: trimming only what is stored; sending held back space at the end."""
    answer = Answer()
    content, thinking = sent(answer, [LLMDelta(piece) for piece in cut(text, cuts)])
    assert (content, thinking) == (answer.content, answer.thinking) == expected(text)


@given(TEXT, CUTS, TEXT, CUTS)
def test_thinking_that_comes_apart_is_trimmed_apart(
    text: str, cuts: list[int], thought: str, thought_cuts: list[int]
) -> None:
    text, thought = text.replace("<", ""), scrub(thought)
    deltas = [LLMDelta(thinking=piece) for piece in cut(thought, thought_cuts)]
    answer = Answer()
    content, thinking = sent(answer, [*deltas, *map(LLMDelta, cut(text, cuts))])
    assert (content, thinking) == (answer.content, answer.thinking)
    assert (content, thinking) == (scrub(text).strip(), thought.strip())


def filters(*names: str) -> AnswerFilters:
    made = load_answer_filters([f"tests.support.text_filters:{name}" for name in names])
    assert made is not None
    return made


@given(TEXT, CUTS)
def test_what_the_filters_leave_is_what_is_sent_and_stored(text: str, cuts: list[int]) -> None:
    """Discriminates: filtering what is stored, or what is sent, alone; forgetting the flush."""
    answer = Answer(filters("HideNumbers"))
    content, thinking = sent(answer, [LLMDelta(piece) for piece in cut(text, cuts)])
    assert (content, thinking) == (answer.content, answer.thinking)
    plain, thought = expected(text)
    assert (content, thinking) == (_hidden(plain), thought)


def _hidden(text: str) -> str:
    """HideNumbers in one go."""
    kept = "".join("#" if char.isdigit() else char for char in text)
    while "##" in kept:
        kept = kept.replace("##", "#")
    return kept


def test_filters_never_touch_the_thinking() -> None:
    content, thinking = sent(Answer(filters("HideNumbers")), [LLMDelta("<think>1 2</think>1 2")])
    assert (content, thinking) == ("# #", "1 2")


def test_text_that_a_filter_adds_is_scrubbed_and_trimmed() -> None:
    """Discriminates: sending a filter's CRLF, which the stream turns into LF, as it is."""
    answer = Answer(filters("HoldAll"))
    assert sent(answer, [LLMDelta(" fee\r"), LLMDelta("\n300 ")]) == ("[ fee\n300 ]", "")
    assert answer.content == "[ fee\n300 ]"


async def test_a_piece_is_sent_as_soon_as_it_is_said() -> None:
    pieces = Answer().pieces(_deltas([LLMDelta("Hel"), LLMDelta("lo "), LLMDelta("you")]))
    assert [piece.text async for piece in pieces] == ["Hel", "lo", " you"]


def test_a_long_answer_costs_the_same_for_every_piece() -> None:
    """Discriminates: joining what was said so far for every piece."""
    pieces = [LLMDelta(" word"), LLMDelta("\n")] * 50_000
    began = time.perf_counter()
    sent(Answer(), pieces)
    assert time.perf_counter() - began < 5


def test_a_text_of_our_own_is_kept_whole_whatever_it_looks_like() -> None:
    """Discriminates: `whole` through the think splitter, or through a filter that is never flushed."""
    answer = Answer(load_answer_filters(["tests.support.text_filters:HoldAll"]))
    (piece,) = answer.whole("<think>x</think> DONE:\n")
    assert (piece.text, answer.content, answer.thinking) == (
        "<think>x</think> DONE:",
        "<think>x</think> DONE:",
        "",
    )
