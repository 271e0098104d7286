from __future__ import annotations

import itertools
import re
import time
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.thinking import LONGEST_TAG, Piece, ThinkSplitter, without_thinking
from tests.support.machine import at_most

PARTS = [
    "<think>",
    "</think>",
    "<THINK>",
    "<thinking >",
    "</Thinking\t>",
    "<thin\u212a>",  # a Kelvin sign is not a k
    "\u0130",  # longer in lower case
    "<thi",
    "nk>",
    "</",
    "<",
    ">",
    "a",
    "答",
    " ",
    "\n",
    "\u3000",
    "```",
    "~~~~",
    "`",
    "\n```py\n",
    "\n```\n",
]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=14).map("".join)
CUTS = st.lists(st.integers(0, 90), max_size=8)


def split(chunks: Sequence[str], begins_thinking: bool = False) -> list[Piece]:
    splitter = ThinkSplitter(begins_thinking)
    pieces = [piece for chunk in chunks for piece in splitter.feed(chunk)]
    return [*pieces, *splitter.flush()]


def joined(pieces: Sequence[Piece]) -> list[tuple[bool, str]]:
    grouped = itertools.groupby(pieces, key=lambda piece: piece.thinking)
    return [(thinking, "".join(piece.text for piece in group)) for thinking, group in grouped]


def pieces_of(text: str, begins_thinking: bool = False) -> list[tuple[bool, str]]:
    return joined(split([text], begins_thinking))


def state(chunks: Sequence[str], begins_thinking: bool = False) -> tuple[bool, bool, bool]:
    splitter = ThinkSplitter(begins_thinking)
    for chunk in chunks:
        splitter.feed(chunk)
    splitter.flush()
    return splitter.unclosed, splitter.stray_closer, splitter.assumed


def cut(text: str, cuts: Sequence[int]) -> list[str]:
    edges = [0, *sorted(min(each, len(text)) for each in cuts), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


def test_thinking_and_answer_are_separated() -> None:
    assert joined(split(["<think>why", " so</think>because"])) == [(True, "why so"), (False, "because")]


def test_a_tag_split_anywhere_is_recognised() -> None:
    text = "<Think>a</THINKING >b"
    for at in range(len(text) + 1):
        assert joined(split([text[:at], text[at:]])) == [(True, "a"), (False, "b")]


@pytest.mark.parametrize("tag", ["<think>", "<THINKING>", "<Think    >", "<think\t \t>"])
def test_the_forms_of_a_tag(tag: str) -> None:
    assert pieces_of(f"{tag}a{tag.replace('<', '</')}b") == [(True, "a"), (False, "b")]


@pytest.mark.parametrize(
    "tag", ["< think>", "<think     >", "<think\n>", "<thinks>", "<thin\u212a>", "<think/"]
)
def test_text_that_only_looks_like_a_tag_is_text(tag: str) -> None:
    """Discriminates: folding case beyond ASCII; accepting any number of blanks, which could be held back for
    ever."""
    assert pieces_of(f"{tag}a") == [(False, f"{tag}a")]


def test_a_tag_within_a_line_of_the_answer_is_text() -> None:
    assert pieces_of("see `<think>` and <think> here") == [(False, "see `<think>` and <think> here")]


def test_a_tag_that_begins_a_line_of_the_answer_begins_thinking_again() -> None:
    """Discriminates: an opening tag counting only while no content has begun."""
    assert pieces_of("One.\n  <think>hm</think>Two.") == [(False, "One.\n  "), (True, "hm"), (False, "Two.")]


@pytest.mark.parametrize(
    "fenced",
    [
        "```xml\n<think>\n```",
        "~~~\n<think>\n~~~",
        "````\n```\n<think>\n````",
        "~~~\n```\n<think>\n",
        "  ```\n <think>",
    ],
)
def test_a_tag_in_a_code_fence_is_text(fenced: str) -> None:
    """Discriminates: a fence closed by another kind, or by fewer characters than opened it."""
    assert pieces_of(f"See:\n{fenced}") == [(False, f"See:\n{fenced}")]


@pytest.mark.parametrize(
    "closed", ["```\nx\n```\n", "~~~ a`b\n~~~~~ \n", "```not a fence```\n", "``\n", "```\n```\r\n"]
)
def test_after_a_fence_a_tag_counts_again(closed: str) -> None:
    """Discriminates: inline code of three marks taken for a fence; a longer closing fence not taken."""
    assert pieces_of(f"{closed}<think>hm") == [(False, closed), (True, "hm")]


def test_fences_inside_thinking_do_not_matter() -> None:
    assert pieces_of("<think>```\n</think>\n<think>b</think>c") == [
        (True, "```\n"),
        (False, "\n"),
        (True, "b"),
        (False, "c"),
    ]


def test_thinking_that_is_never_closed_stays_thinking() -> None:
    assert joined(split(["<think>on and </thi"])) == [(True, "on and </thi")]
    assert state(["<think>on"]) == (True, False, False)


def test_a_template_may_have_begun_the_thinking() -> None:
    assert pieces_of("why</think>so", begins_thinking=True) == [(True, "why"), (False, "so")]


def test_a_redundant_opening_tag_is_removed_once() -> None:
    text = "\n<think>\n<think>why</think>so"
    assert pieces_of(text, begins_thinking=True) == [(True, "\n\n<think>why"), (False, "so")]
    assert state(["<think>"], begins_thinking=True) == (True, False, False)
    assert state(["x <think>"], begins_thinking=True) == (True, False, True)


def test_an_unmatched_closing_tag_is_text_and_is_reported_if_it_is_alone_on_its_line() -> None:
    """Discriminates: reporting one within a line, in a fence, or after thinking that was opened."""
    assert pieces_of("why\n</think>\nso") == [(False, "why\n</think>\nso")]
    for text in ("why\n</think>\nso", "why\n </Thinking> \n", "why\n</think>", "</think>\n"):
        assert state([text])[1], text
    for text in (
        "why</think>\nso",
        "`</think>`\n</think>\n",
        "```\n</think>\n```",
        "```\n</think>\n```\n</think>\n",
        "<think>a</think>\n</think>\n",
        "a\n</think> b",
        "a\n</think><think>b",
        "a\n</think> <thi",  # held back until the end
    ):
        assert not state([text])[1], text
    assert not state(["why</think>\n</think>\n"], begins_thinking=True)[1]


def test_text_assumed_to_be_thinking_is_the_answer_if_thinking_is_sent_separately() -> None:
    splitter = ThinkSplitter(begins_thinking=True)
    assert list(splitter.feed(" <")) == [Piece(" ", thinking=True)]
    assert list(splitter.answer_now()) == [Piece("<", thinking=True)]
    assert list(splitter.feed("The answer")) == [Piece("The answer", thinking=False)]
    assert list(splitter.answer_now()) == []


TAG = re.compile(r"</?think(?:ing)?[ \t]{0,4}>", re.IGNORECASE | re.ASCII)


@given(TEXTS, CUTS, st.booleans())
@example("a\n```<think>\n`", [4], False)
@example("\n```\n<think>", [2, 3, 4], False)
@example("a\n</think> ", [3, 10], False)
def test_every_partition_splits_alike_and_nothing_is_lost(text: str, cuts: list[int], begins: bool) -> None:
    """Discriminates: losing the state of the line where a delta ends."""
    chunks = cut(text, cuts)
    pieces = split(chunks, begins)
    assert joined(pieces) == pieces_of(text, begins)
    assert state(chunks, begins) == state([text], begins)
    assert all(piece.text for piece in pieces)
    assert recognised_only(text, pieces)


def recognised_only(text: str, pieces: Sequence[Piece]) -> bool:
    """The text equals the emitted text with whole tags inserted: a walk over both that does not know the
    rules."""
    reply = "".join(piece.text for piece in pieces)
    reached: dict[int, set[int]] = {0: {0}}  # how much of `reply` may be consumed at this offset of the text
    for at in range(len(text)):
        for used in reached.get(at, set()):
            if used < len(reply) and reply[used] == text[at]:
                reached.setdefault(at + 1, set()).add(used + 1)
            if tag := TAG.match(text, at):
                reached.setdefault(tag.end(), set()).add(used)
    return len(reply) in reached.get(len(text), set())


@given(TEXTS, st.booleans())
def test_no_more_is_held_back_than_a_tag_may_need(text: str, begins: bool) -> None:
    for index in range(1, len(text) + 1):
        splitter = ThinkSplitter(begins)
        splitter.feed(text[:index])
        assert sum(len(piece.text) for piece in splitter.flush()) <= len(LONGEST_TAG) - 1


NAMES = st.sampled_from(["think", "thinking", "THINK", "Thinking", "tHiNk"])
BLANKS = st.sampled_from(["", " ", "    ", "\t"])
WORDS = st.text(st.sampled_from("ab 答.,\n"), min_size=1, max_size=12).map(lambda text: f"x{text}")


@st.composite
def fenced_tags(draw: st.DrawFn) -> str:
    """A code fence that shows tags, with lines that do not close it."""
    kind, count = draw(st.sampled_from("`~")), draw(st.integers(3, 5))
    other = "~" if kind == "`" else "`"
    lines = st.sampled_from(
        ["<think>", "</think>", kind * (count - 1), other * 5, kind * count + " x", "  <thinking>", "x"]
    )
    body = "\n".join(draw(st.lists(lines, max_size=5)))
    return f"\n{kind * count}xml\n{body}\n{kind * (count + draw(st.integers(0, 2)))}\n"


@st.composite
def inline_tags(draw: st.DrawFn) -> str:
    return f"x `<{draw(NAMES)}>` </{draw(NAMES)}> {draw(WORDS)}"


@st.composite
def thoughts(draw: st.DrawFn) -> tuple[str, str]:
    """The text and the thinking in it."""
    thought = draw(WORDS) + draw(st.sampled_from(["", "\n```\n", "<think>", "</ think>", "`"]))
    opening = f"<{draw(NAMES)}{draw(BLANKS)}>"
    return f"{opening}{thought}</{draw(NAMES)}{draw(BLANKS)}>", thought


@given(st.lists(thoughts() | WORDS | fenced_tags() | inline_tags(), max_size=6), CUTS)
def test_an_answer_generated_by_the_grammar_is_parsed_correctly(
    parts: list[str | tuple[str, str]], cuts: list[int]
) -> None:
    """Discriminates: counting a tag in inline code or a fence; losing the line at a thought within it."""
    text, content, thinking = "", "", ""
    for part in parts:
        if isinstance(part, str):
            text, content = text + part, content + part
        else:
            begin = "" if content.endswith("\n") or not content.strip() else "\n"
            text, content, thinking = text + begin + part[0], content + begin, thinking + part[1]
    pieces = split(cut(text, cuts))
    assert "".join(piece.text for piece in pieces if not piece.thinking) == content
    assert "".join(piece.text for piece in pieces if piece.thinking) == thinking


HOSTILE = [
    "<", "`", "<thin", "\n", "\n<", "\n<think", "```\n", "\n`", "~~~\n```\n", "<think></think>", "</think>",
    "\n</think>", " ", "\n ", "<think\t", "\n<think>\n</think>", "</think", "\u3000", "~",
]  # fmt: skip


SIZES = (1_000_000, 2_000_000, 4_000_000)


def seconds(text: str, size: int, begins_thinking: bool) -> float:
    splitter = ThinkSplitter(begins_thinking)
    began = time.process_time()
    for at in range(0, len(text), size):
        splitter.feed(text[at : at + size])
    splitter.flush()
    return time.process_time() - began


@pytest.mark.full("works through many cases, for seconds")
@pytest.mark.parametrize("begins_thinking", [False, True])
@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_megabyte_is_read_quickly(text: str, begins_thinking: bool) -> None:
    """Discriminates: copying the rest of the text at each tag; a pattern that backtracks."""
    whole = text * (1_000_000 // len(text))
    with at_most(2):  # less than half a second on a quiet machine
        seconds(whole, len(whole), begins_thinking)


@pytest.mark.parametrize("text", ["<", "`", "<thin", "\n", "<think></think>", "\n`"])
def test_four_times_the_text_takes_about_four_times_the_time(text: str) -> None:
    """In one delta and in deltas of 4,096 characters. Discriminates: joining all the text held back."""
    for size in (4_000_000, 4_096):
        one, two, four = (seconds(text * (chars // len(text)), size, False) for chars in SIZES)
        assert max(two / 2, four / 4) < 2 * one + 0.05, (text, size, one, two, four)


WHOLE_TEXTS = st.lists(st.sampled_from(["<think>", "</think>", "\n", " ", "a", "```\n", "答"]), max_size=12)


def test_tags_determine_what_is_removed() -> None:
    assert without_thinking("<think>hm</think>\n\nThe fee is 300. ") == "The fee is 300."
    assert without_thinking("<think>never closed") == ""


def test_a_text_that_begins_in_thinking_is_removed_up_to_the_closing_tag() -> None:
    assert without_thinking("hm</think> So.", begins_thinking=True) == "So."
    assert without_thinking("<think>hm</think> So.", begins_thinking=True) == "So."
    assert without_thinking("hm", begins_thinking=True) == ""


def test_a_wrong_guess_loses_nothing_unless_a_limit_cut_the_text() -> None:
    """Discriminates: an empty reply from a model that no longer thinks; partial thinking as the reply."""
    assert without_thinking(" The fee. ", begins_thinking=True, guessed=True) == "The fee."
    assert without_thinking("Hm, the", begins_thinking=True, guessed=True, cut=True) == ""
    assert without_thinking("The", guessed=True, cut=True) == "The"


def test_a_guess_confirmed_by_a_tag_is_kept() -> None:
    assert without_thinking("<think>hm", begins_thinking=True, guessed=True) == ""
    assert without_thinking("hm</think>", begins_thinking=True, guessed=True) == ""


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("I reason\n</think>\nThe summary.", "The summary."),
        ("I reason\n </think > \n\nIt is.\n</think>\nSo.", "It is.\n</think>\nSo."),
        ("I reason\n</think>", ""),
        ("I reason <think>\n</think>\nThe summary.", "The summary."),
    ],
)
def test_a_closing_tag_alone_on_its_line_ends_thinking_without_an_opening_tag(text: str, reply: str) -> None:
    """Discriminates: keeping what a streamed answer must keep because it was already sent."""
    assert without_thinking(text, guessed=True) == reply


@pytest.mark.parametrize("text", ["The tag </think> ends it.\nSo.", "Write\n```\n</think>\n```\nat the end."])
def test_a_quoted_closing_tag_is_text(text: str) -> None:
    """Discriminates: cutting at any closing tag."""
    assert without_thinking(text, guessed=True) == text


def test_a_setting_is_not_overruled_by_the_text() -> None:
    """Discriminates: guessing for a model that is configured never to begin in thinking."""
    text = "One\n</think>\ntwo"
    assert without_thinking(text) == text


@given(WHOLE_TEXTS.map("".join), st.booleans(), st.booleans(), st.booleans())
def test_a_text_without_an_opening_tag_is_kept_or_removed_from_its_beginning(
    text: str, begins: bool, guessed: bool, cut: bool
) -> None:
    """Discriminates: cutting at the last closing tag; trimming one way only."""
    text = text.replace("<think>", "")
    reply = without_thinking(text, begins, guessed=guessed, cut=cut)
    _, closing, after = text.partition("</think>")
    if closing and begins:
        assert reply == after.strip()
    elif closing:
        assert reply in (text.strip(), after.strip())
    else:
        assert reply == ("" if begins and (cut or not guessed) else text.strip())
