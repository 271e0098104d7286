"""Sentences with their offsets, and which of a question's terms a text has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from core.relevance.sparse import WeightedTerm, folded, is_cjk, word_stems

MAX_PASSAGE_CHARS = 300
LONGEST_SEARCHED = 50_000  # characters; far beyond any chunk

_CLOSING = "”’\"'」』）)\\]"
# Possessive, and a full stop only where no full stop stands before it: no input makes this backtrack.
_END = re.compile(rf"[。！？!?；…]++[{_CLOSING}]*+|(?<!\.)\.++[{_CLOSING}]*+(?=\s|$)|\n++")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|al|Mr|Mrs|Ms|Dr|Prof|St|No|Fig|Eq|Inc|Ltd|Co|Jr|Sr|approx)|\b[A-Z])$"
)
_OWN_LINE = re.compile(r"\s*(?:[-*+•]\s|\d{1,3}[.)、]\s?|#{1,6}\s|\||>|```|~~~| {4}|\t)")
_ABBREVIATION_WINDOW = 8
_FENCE = ("```", "~~~")


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` up to, not including, `end` of a text; never empty, never blank."""

    start: int
    end: int


def sentences(text: str) -> list[Span]:
    """Sentences in order, without the white space around them.

    A Markdown list item, table row, heading or line of fenced code ends at its line; a line of running
    text that ends in mid-sentence goes on in the next.
    """
    spans: list[Span] = []
    start, fenced = 0, False
    for match in _END.finditer(text):
        at, end = match.span()
        if (fenced and text[at] != "\n") or (not fenced and _goes_on(text, start, at, end)):
            continue
        if text.startswith(_FENCE, start):
            fenced = not fenced
        _append(spans, text, start, end)
        start = end
    _append(spans, text, start, len(text))
    return spans


def presence(question: Sequence[WeightedTerm], text: str) -> list[bool]:
    """Which of the question's terms the text has, in the question's order."""
    lowered = folded(text).lower()
    cjk = [is_cjk(term.text) for term in question]
    stems = frozenset() if all(cjk) else word_stems(text)
    return [
        term.text in lowered if by_character else term.text in stems
        for term, by_character in zip(question, cjk, strict=True)
    ]


def _goes_on(text: str, start: int, at: int, end: int) -> bool:
    """Whether the sentence that began at `start` does not end with the mark at `at`…`end` after all."""
    if text[at] == "\n":
        if end - at > 1 or text.startswith(_FENCE, start) or text.startswith(_FENCE, end):
            return False
        after = text[end : end + 8]
        own_line = _OWN_LINE.match(text, start, min(start + 16, len(text))) or _OWN_LINE.match(after)
        return not own_line and not after.isspace() and after != ""
    if text[at] != "." or not text[at - 1].isalnum():
        return False
    before = text[max(start, at - _ABBREVIATION_WINDOW) : at]
    return bool(_ABBREVIATION.search(before)) or before.strip().isdigit()


def _append(spans: list[Span], text: str, start: int, end: int) -> None:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    if start < end:
        spans.append(Span(start, end))
