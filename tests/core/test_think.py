from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from core.think import CLOSE_TAG, Piece, ThinkSplitter

TEXTS = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<THINK>", "<thi", "nk>", "</", "<", ">", "a", "答", " ", "\n", "`"]
    ),
    max_size=12,
).map("".join)


def split(chunks: list[str]) -> list[Piece]:
    splitter = ThinkSplitter()
    pieces = [piece for chunk in chunks for piece in splitter.feed(chunk)]
    return [*pieces, *splitter.flush()]


def joined(pieces: list[Piece]) -> list[tuple[bool, str]]:
    grouped = itertools.groupby(pieces, key=lambda piece: piece.thinking)
    return [(thinking, "".join(piece.text for piece in group)) for thinking, group in grouped]


def test_thinking_and_answer_are_told_apart() -> None:
    assert joined(split(["<think>why", " so</think>because"])) == [(True, "why so"), (False, "because")]


def test_a_tag_cut_anywhere_is_recognised() -> None:
    text = "<Think>a</THINK>b"
    for cut in range(len(text) + 1):
        assert joined(split([text[:cut], text[cut:]])) == [(True, "a"), (False, "b")]


def test_a_tag_after_the_answer_has_begun_is_text() -> None:
    assert joined(split(["see `<think>` here"])) == [(False, "see `<think>` here")]


def test_thinking_that_is_never_closed_stays_thinking() -> None:
    assert joined(split(["<think>on and </thi"])) == [(True, "on and </thi")]


@given(TEXTS, st.lists(st.integers(0, 60), max_size=8))
def test_every_partition_splits_alike_and_nothing_is_lost(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    chunks = [text[start:end] for start, end in itertools.pairwise(edges)]
    pieces = split(chunks)
    assert joined(pieces) == joined(split([text]))
    assert all(piece.text for piece in pieces)
    missing = len(text) - sum(len(piece.text) for piece in pieces)
    assert missing in {7 * opened + 8 * closed for opened in range(9) for closed in (opened, opened - 1)}


@given(TEXTS)
def test_no_more_is_held_back_than_a_tag_may_need(text: str) -> None:
    splitter = ThinkSplitter()
    said = recognised = 0
    for index, char in enumerate(text, start=1):
        inside = splitter.unclosed
        said += sum(len(piece.text) for piece in splitter.feed(char))
        if splitter.unclosed != inside:
            recognised += len(CLOSE_TAG if inside else "<think>")
        assert index - said - recognised <= len(CLOSE_TAG) - 1
