"""The answer that is sent equals the answer that is stored."""

from __future__ import annotations

import asyncio
import codecs
import itertools
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api.turn import answer as answers
from api.turn.answer import Answer, AnswerSaver, TextEvents
from api.turn.stream import ContentEvent, ThinkEvent
from core.llm_wrapper import LLMDelta
from core.text import scrub
from core.thinking import ThinkSplitter
from services.models.text_filters import AnswerFilters, load_answer_filters

TEXT = st.text(st.sampled_from("ab \n\t\r\u2028<>/think年费1"), max_size=40)
CUTS = st.lists(st.integers(0, 60), max_size=8)


async def _deltas(deltas: Sequence[LLMDelta]) -> AsyncGenerator[LLMDelta, None]:
    for delta in deltas:
        yield delta


async def events_of(answer: Answer, deltas: Sequence[LLMDelta]) -> list[TextEvents]:
    return [events async for events in answer.events(_deltas(deltas))]


def sent(answer: Answer, deltas: Sequence[LLMDelta]) -> tuple[str, str]:
    """Content and thinking, as a client puts them together."""
    text = asyncio.run(events_of(answer, deltas))
    assert all(text)
    events = list(itertools.chain.from_iterable(text))
    assert all(event.text for event in events)
    return joined(events, ContentEvent), joined(events, ThinkEvent)


def joined(events: TextEvents, kind: type[ContentEvent] | type[ThinkEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))


def cut(text: str, cuts: Sequence[int]) -> list[str]:
    edges = [0, *sorted(min(each, len(text)) for each in cuts), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]


def expected(text: str) -> tuple[str, str]:
    splitter = ThinkSplitter()
    pieces = [*splitter.feed(scrub(text)), *splitter.flush()]
    texts = {
        kind: "".join(piece.text for piece in pieces if piece.thinking is kind) for kind in (False, True)
    }
    return texts[False].strip(), texts[True].strip()


@given(TEXT, CUTS)
@example("<think> a \n</think>\n\nb c \n\n", [1, 9, 14, 20])
@example("a \r\n ", [2, 3])
def test_the_sent_answer_equals_the_stored_one_and_both_are_trimmed(text: str, cuts: list[int]) -> None:
    """For any split. Discriminates: trimming only what is stored; sending held-back space at the end."""
    answer = Answer()
    content, thinking = sent(answer, [LLMDelta(piece) for piece in cut(text, cuts)])
    assert (content, thinking) == (answer.content, answer.thinking) == expected(text)


@given(TEXT, CUTS, TEXT, CUTS)
def test_separate_thinking_is_trimmed_separately(
    text: str, cuts: list[int], thought: str, thought_cuts: list[int]
) -> None:
    """Discriminates: sending thinking from the provider's own field unchanged, CR included."""
    text = text.replace("<", "")
    deltas = [LLMDelta(thinking=piece) for piece in cut(thought, thought_cuts)]
    answer = Answer()
    content, thinking = sent(answer, [*deltas, *map(LLMDelta, cut(text, cuts))])
    assert (content, thinking) == (answer.content, answer.thinking)
    assert (content, thinking) == (scrub(text).strip(), scrub(thought).strip())


def filters(*names: str) -> AnswerFilters:
    made = load_answer_filters([f"tests.support.models.text_filters:{name}" for name in names])
    assert made is not None
    return made


@given(TEXT, CUTS)
def test_filtered_text_is_both_sent_and_stored(text: str, cuts: list[int]) -> None:
    """Discriminates: filtering only what is stored, or only what is sent; forgetting the flush."""
    answer = Answer(filters("HideNumbers"))
    content, thinking = sent(answer, [LLMDelta(piece) for piece in cut(text, cuts)])
    assert (content, thinking) == (answer.content, answer.thinking)
    plain, thought = expected(text)
    assert (content, thinking) == (_hidden(plain), thought)


def _hidden(text: str) -> str:
    """HideNumbers applied to the whole text."""
    remaining = "".join("#" if char.isdigit() else char for char in text)
    while "##" in remaining:
        remaining = remaining.replace("##", "#")
    return remaining


def test_filters_never_touch_the_thinking() -> None:
    content, thinking = sent(Answer(filters("HideNumbers")), [LLMDelta("<think>1 2</think>1 2")])
    assert (content, thinking) == ("# #", "1 2")


def test_text_that_a_filter_adds_is_scrubbed_and_trimmed() -> None:
    """Discriminates: sending a filter's CRLF unchanged, which the stream turns into LF."""
    answer = Answer(filters("HoldAll"))
    assert sent(answer, [LLMDelta(" fee\r"), LLMDelta("\n300 ")]) == ("[ fee\n300 ]", "")
    assert answer.content == "[ fee\n300 ]"


async def test_a_piece_is_sent_as_soon_as_it_arrives() -> None:
    reply = await events_of(Answer(), [LLMDelta("Hel"), LLMDelta("lo "), LLMDelta("you")])
    assert [[event.text for event in events] for events in reply] == [["Hel"], ["lo"], [" you"]]


def test_in_a_long_answer_every_piece_costs_the_same() -> None:
    """Discriminates: joining the whole answer so far for every piece."""
    pieces = [LLMDelta(" word"), LLMDelta("\n")] * 50_000
    began = time.perf_counter()
    sent(Answer(), pieces)
    assert time.perf_counter() - began < 5


def test_our_own_texts_are_kept_whole_whatever_they_look_like() -> None:
    """Discriminates: `whole` passed through the think splitter, or through a filter that is never flushed."""
    answer = Answer(load_answer_filters(["tests.support.models.text_filters:HoldAll"]))
    (piece,) = answer.whole("<think>x</think> DONE:\n")
    assert (piece.text, answer.content, answer.thinking) == (
        "<think>x</think> DONE:",
        "<think>x</think> DONE:",
        "",
    )


@given(TEXT | st.text(max_size=20), CUTS, st.binary(max_size=3))
def test_bytes_split_anywhere_give_the_same_answer(text: str, cuts: list[int], broken: bytes) -> None:
    """Discriminates: decoding each read separately, which turns a split character into U+FFFD."""
    whole = text.encode() + broken + b" end"
    edges = [0, *sorted(min(each, len(whole)) for each in cuts), len(whole)]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    deltas = [LLMDelta(decoder.decode(whole[a:b])) for a, b in itertools.pairwise(edges)]
    assert sent(Answer(), deltas) == expected(whole.decode(errors="replace"))


def test_token_counts_are_kept_from_whichever_delta_carries_them() -> None:
    answer = Answer()
    sent(
        answer,
        [LLMDelta(prompt_tokens=7), LLMDelta("a"), LLMDelta(finish_reason="stop", completion_tokens=3)],
    )
    assert (answer.prompt_tokens, answer.completion_tokens, answer.finish_reason) == (7, 3, "stop")


def test_native_thinking_ends_the_assumption_that_the_text_begins_with_thinking() -> None:
    """Discriminates: an answer that stays THINK to its end because the template opened a tag."""
    answer = Answer(begins_thinking=True, guessed=True)
    deltas = [LLMDelta("\n"), LLMDelta(thinking="why"), LLMDelta("so", thinking=" and"), LLMDelta(" it is")]
    assert sent(answer, deltas) == ("so it is", "why and")
    assert answer.showed_thinking_first is None


def test_a_wrong_guess_about_thinking_is_corrected_at_the_end() -> None:
    """Discriminates: a model that no longer thinks, whose answers would be treated as thinking forever."""
    answer = Answer(filters("HideNumbers"), begins_thinking=True, guessed=True)
    assert sent(answer, [LLMDelta("It is "), LLMDelta("12."), LLMDelta("\n")]) == ("It is #.", "It is 12.")
    assert (answer.content, answer.thinking) == ("It is #.", "")
    assert answer.showed_thinking_first is False


def test_the_answer_after_a_wrong_guess_gets_the_full_length() -> None:
    answer = Answer(begins_thinking=True, guessed=True, max_chars=10)
    assert sent(answer, [LLMDelta("12345678")]) == ("12345678", "12345678")
    assert answer.finish_reason is None


def test_a_right_guess_and_a_configured_value_stay() -> None:
    guessed = Answer(begins_thinking=True, guessed=True)
    assert sent(guessed, [LLMDelta("why</think>so")]) == ("so", "why")
    opened = Answer(begins_thinking=True, guessed=True)
    assert sent(opened, [LLMDelta("<think>why")]) == ("", "why")
    always = Answer(begins_thinking=True)
    assert sent(always, [LLMDelta("why")]) == ("", "why")
    assert all(answer.showed_thinking_first is None for answer in (guessed, opened, always))


@pytest.mark.parametrize(
    ("deltas", "thought"),
    [
        ([LLMDelta("why"), LLMDelta(" not", finish_reason="length")], "why not"),
        ([LLMDelta("why, "), LLMDelta("oh why "), LLMDelta("not")], "why, oh wh"),
    ],
)
def test_thinking_that_hits_a_limit_stays_thinking(deltas: list[LLMDelta], thought: str) -> None:
    """At the model's limit and at ours. Discriminates: turning any answer without a tag into content."""
    answer = Answer(begins_thinking=True, guessed=True, max_chars=10)
    assert sent(answer, deltas) == ("", thought)
    assert (answer.content, answer.thinking, answer.finish_reason) == ("", thought, "length")
    assert answer.showed_thinking_first is None


async def test_thinking_that_breaks_off_stays_thinking() -> None:
    """Stopped before any tag. Discriminates: turning it into content whenever the stream is left."""
    answer = Answer(begins_thinking=True, guessed=True)
    async with aclosing(answer.events(Endless(LLMDelta("why ")).deltas())) as events:
        async for _ in events:
            break
    assert (answer.content, answer.thinking) == ("", "why")


def test_an_answer_that_began_as_untagged_thinking_is_noticed() -> None:
    answer = Answer()
    sent(answer, [LLMDelta("why\n"), LLMDelta("</think>"), LLMDelta("\n\nso")])
    assert answer.showed_thinking_first is True
    apart = Answer()
    sent(apart, [LLMDelta(thinking="x"), LLMDelta("why\n</think>\n\nso")])
    assert apart.showed_thinking_first is False


@pytest.mark.parametrize(
    ("delta", "showed"),
    [
        (LLMDelta("so", finish_reason="stop"), False),
        (LLMDelta("<think>why</think>so"), False),
        (LLMDelta("so", finish_reason="length"), None),
        (LLMDelta(" \n", finish_reason="stop"), None),
    ],
)
def test_only_an_answer_that_ended_normally_counts_as_plain(delta: LLMDelta, showed: bool | None) -> None:
    """Discriminates: taking half an answer for plain, although its closing tag may still come."""
    answer = Answer()
    sent(answer, [delta])
    assert answer.showed_thinking_first is showed


class Endless:
    """A model that never stops; counts how much of it was read, and records that it was closed."""

    def __init__(self, delta: LLMDelta, opening: str = "") -> None:
        self.read = 0
        self.closed = False
        self._delta = delta
        self._opening = opening

    async def deltas(self) -> AsyncGenerator[LLMDelta, None]:
        try:
            if self._opening:
                yield LLMDelta(self._opening)
            while True:
                self.read += 1
                yield self._delta
        finally:
            self.closed = True


@pytest.mark.parametrize(
    "model",
    [
        Endless(LLMDelta("abc")),
        Endless(LLMDelta(thinking="abc")),
        Endless(LLMDelta("abc"), "<think>"),
        Endless(LLMDelta("ab"), "One.\n<think>two</think>"),
    ],
)
async def test_endless_text_and_endless_thinking_are_cut_at_the_cap(model: Endless) -> None:
    """Discriminates: counting only the content; cutting what is sent but not what is stored."""
    answer = Answer(max_chars=1_000)
    words = [event.text async for events in answer.events(model.deltas()) for event in events]
    assert len(answer.content) + len(answer.thinking) == 1_000 == len("".join(words))
    assert answer.finish_reason == "length"
    assert model.closed
    assert model.read <= 501


@pytest.mark.parametrize("text", [" \n", "<think></think>", "abc"])
async def test_a_model_that_never_says_anything_is_not_read_forever(text: str) -> None:
    """Discriminates: counting what is kept, which blanks, tags and a filter that withholds everything never
    add to."""
    model = Endless(LLMDelta(text))
    answer = Answer(filters("HoldAll") if text == "abc" else None, max_chars=1_000)
    words = [event.text async for events in answer.events(model.deltas()) for event in events]
    assert (answer.finish_reason, model.closed) == ("length", True)
    assert model.read <= 2_001
    assert len("".join(words)) == len(answer.content) <= 1_000


def test_an_answer_exactly_at_the_cap_is_complete() -> None:
    answer = Answer(max_chars=10)
    assert sent(answer, [LLMDelta("12345"), LLMDelta("67890\n"), LLMDelta(finish_reason="stop")]) == (
        "1234567890",
        "",
    )
    assert answer.finish_reason == "stop"


@pytest.mark.parametrize(
    ("texts", "thought_ms"),
    [
        (["<think>a", "b", "c</think>", "d", "e"], 2_000.0),
        (["<think>", "a", "</think>", "e"], 0.0),
        (["d", "e"], None),
        (["<think> ", "</think>", "e"], None),
    ],
)
def test_thinking_lasts_from_its_first_piece_to_its_last(texts: list[str], thought_ms: float | None) -> None:
    """Discriminates: the time of the whole answer; a thinking time for thinking that is only white space."""
    seconds = iter(range(100))
    answer = Answer(timer=lambda: float(next(seconds)))
    sent(answer, [LLMDelta(text=text) for text in texts])
    assert answer.thinking_ms == thought_ms


def test_an_answer_wrongly_taken_for_thinking_has_no_thinking_time() -> None:
    answer = Answer(begins_thinking=True, guessed=True)
    assert sent(answer, [LLMDelta(text="It is "), LLMDelta(text="so.")])[0] == "It is so."
    assert answer.thinking_ms is None


async def test_an_answer_is_saved_while_it_arrives_and_never_after_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Discriminates: writing the same text again; a late write over the finished turn; a failed save that
    ends the answer."""
    monkeypatch.setattr(answers, "SAVE_EVERY_S", 0.01)
    answer, written, ended = Answer(), [], False

    async def write(content: str, thinking: str) -> None:
        assert not ended
        written.append((content, thinking))
        if len(written) == 1:
            raise ValueError("the store is away")
        await asyncio.sleep(0.02)

    saver = AnswerSaver(answer, write)
    saver.begin()
    for delta in (LLMDelta("one"), LLMDelta(" two"), LLMDelta(thinking="so")):
        await events_of(answer, [delta])
        await asyncio.sleep(0.05)
    await saver.end()
    ended = True
    await asyncio.sleep(0.05)
    assert written == [("one", ""), ("one two", ""), ("one two", "so")]
