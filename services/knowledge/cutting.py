"""Stretches of text cut until they fit: between sentences, else clauses, else words, else characters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from core.passages import sentences
from core.tokens import estimate_tokens

_CLAUSE_END = re.compile(r"[，；、：]|[,;:](?=\s)")
_WORD_END = re.compile(r"\s++")
_HEAVIEST_CHAR_TOKENS = 1.5


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch `text[start:end]` without white space at its ends, and how many tokens it takes."""

    start: int
    end: int
    tokens: int


Cut = Callable[[str, Span], Iterator[Span]]


def span_of(text: str, start: int, end: int) -> Span | None:
    """The stretch with white space trimmed; None when nothing is left."""
    stretch = text[start:end]
    stripped = stretch.strip()
    if not stripped:
        return None
    start += len(stretch) - len(stretch.lstrip())
    return Span(start, start + len(stripped), estimate_tokens(stripped))


def cut_to_fit(text: str, span: Span, limit_tokens: int) -> Iterator[Span]:
    """The span in pieces of at most `limit_tokens` (a single character is never cut). Linear time."""
    cuts = (_sentences, lambda text, span: _between(text, span, _CLAUSE_END),
            lambda text, span: _between(text, span, _WORD_END))  # fmt: skip
    return _cut(text, span, limit_tokens, cuts)


def _cut(text: str, span: Span, limit_tokens: int, cuts: Sequence[Cut]) -> Iterator[Span]:
    if span.tokens <= limit_tokens:
        yield span
    elif not cuts:
        yield from _windows(text, span, limit_tokens)
    else:
        for piece in cuts[0](text, span):
            yield from _cut(text, piece, limit_tokens, cuts[1:])


def _sentences(text: str, span: Span) -> Iterator[Span]:
    for sentence in sentences(text[span.start : span.end]):
        if piece := span_of(text, span.start + sentence.start, span.start + sentence.end):
            yield piece


def _between(text: str, span: Span, end: re.Pattern[str]) -> Iterator[Span]:
    start = span.start
    for match in end.finditer(text, span.start, span.end):
        if piece := span_of(text, start, match.end()):
            yield piece
        start = match.end()
    if piece := span_of(text, start, span.end):
        yield piece


def _windows(text: str, span: Span, limit_tokens: int) -> Iterator[Span]:
    width = max(1, int(limit_tokens / _HEAVIEST_CHAR_TOKENS))
    for start in range(span.start, span.end, width):
        if piece := span_of(text, start, min(start + width, span.end)):
            yield piece
