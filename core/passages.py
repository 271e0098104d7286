"""Sentences with their offsets, and the consecutive ones of a chunk that answer a question best."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from core.sparse import WeightedTerm, folded, is_cjk, word_stems

MAX_PASSAGE_CHARS = 300
LONGEST_SEARCHED = 50_000  # characters; far beyond any chunk
WORTH_ADDING = 0.15  # of the question's weight: what a neighbouring sentence must add to be taken along

_CLOSING = "”’\"'」』）)\\]"
# Possessive, and a full stop only where no full stop stands before it: no input makes this backtrack.
_END = re.compile(rf"[。！？!?；…]++[{_CLOSING}]*+|(?<!\.)\.++[{_CLOSING}]*+(?=\s|$)|\n++")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|al|Mr|Mrs|Ms|Dr|Prof|St|No|Fig|Eq|Inc|Ltd|Co|Jr|Sr|approx)|\b[A-Z])$"
)
_OWN_LINE = re.compile(r"\s*(?:[-*+•]\s|\d{1,3}[.)、]\s?|#{1,6}\s|\||>|```|~~~| {4}|\t)")
# A heading or a table's ruler does not answer, whatever words it has.
_NO_ANSWER = re.compile(r"#{1,6}\s|```|~~~|[|:\-\s]+$|[=\-*_\s]+$")
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


def key_passage(question: Sequence[WeightedTerm], text: str) -> str:
    """The verbatim consecutive sentences that hold most of the question, at most about 300 characters.

    Nothing of the question in the text: its opening sentences. A blank text gives "".
    """
    text = text[:LONGEST_SEARCHED]
    spans = sentences(text)
    return passage_of(
        question, text, spans, [presence(question, text[span.start : span.end]) for span in spans]
    )


def passage_of(
    question: Sequence[WeightedTerm], text: str, spans: Sequence[Span], present: Sequence[Sequence[bool]]
) -> str:
    """`key_passage` for those who know the sentences and what each of them has."""
    if not spans:
        return ""
    fits = [not _NO_ANSWER.match(text, span.start, span.end) for span in spans]
    values = [_value(question, row) if any(row) else 0.0 for row in present]
    best = max(range(len(spans)), key=lambda at: (fits[at], values[at], -at))
    if values[best] == 0.0:  # then what stands under the heading that has the words
        heading = max(range(len(spans)), key=lambda at: (values[at], -at))
        best = next((at for at in range(heading, len(spans)) if fits[at]), best)
    first, last = _grown(question, spans, present, fits, best)
    return _cut(question, text[spans[first].start : spans[last].end])


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


def _value(question: Sequence[WeightedTerm], present: Sequence[bool]) -> float:
    return sum(term.weight for term, here in zip(question, present, strict=True) if here)


def _grown(
    question: Sequence[WeightedTerm],
    spans: Sequence[Span],
    present: Sequence[Sequence[bool]],
    fits: Sequence[bool],
    best: int,
) -> tuple[int, int]:
    """First and last sentence: the best one, and the neighbours that add to it and still fit."""
    wanted = sum(term.weight for term in question) * WORTH_ADDING
    first = last = best
    has = list(present[best])
    for step in (1, -1, 1, -1):
        at = last + 1 if step == 1 else first - 1
        if not 0 <= at < len(spans) or not fits[at]:
            continue
        low, high = min(first, at), max(last, at)
        added = [here and not known for here, known in zip(present[at], has, strict=True)]
        if spans[high].end - spans[low].start <= MAX_PASSAGE_CHARS and _value(question, added) >= wanted > 0:
            first, last = low, high
            has = [here or known for here, known in zip(present[at], has, strict=True)]
    return first, last


def _cut(question: Sequence[WeightedTerm], passage: str) -> str:
    """A sentence that is too long is cut to the stretch that begins shortly before its first match."""
    if len(passage) <= MAX_PASSAGE_CHARS:
        return passage
    lowered = passage.lower()
    found = [at for term in question if (at := lowered.find(term.text)) >= 0]
    start = max(0, min(found, default=0) - MAX_PASSAGE_CHARS // 4)
    start = min(start, len(passage) - MAX_PASSAGE_CHARS)
    return passage[start : start + MAX_PASSAGE_CHARS].strip()
