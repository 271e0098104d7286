"""Stretches of text cut until they fit: between sentences, else clauses, else words, else characters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from core.citing.passages import sentences

CountTokens = Callable[[str], int]

_CLAUSE_END = re.compile(r"[，；、：]|[,;:](?=\s)")
_WORD_END = re.compile(r"\s++")
_LONGEST_TOKEN_CHARS = 16
_MORE_THAN_ANY_LIMIT = 1 << 40


class Ruler:
    """Measures texts against a limit in tokens.

    `count` may count marks that the embedder adds to every text; they are taken off again. What cannot fit
    by its length is said to be too long without being counted: counting is what takes the time.
    """

    def __init__(self, count: CountTokens, limit: int) -> None:
        self.limit = limit
        self.count = count
        self._marks = count("a") - 1  # of "" a vocabulary may count the space before nothing
        self._gaps = {"": 0}

    def tokens(self, text: str) -> int:
        if len(text) > self.limit * _LONGEST_TOKEN_CHARS:
            return _MORE_THAN_ANY_LIMIT
        return self.exact(text)

    def exact(self, text: str) -> int:
        return self.count(text) - self._marks

    def gap(self, white: str) -> int:
        """Of white space between two stretches; the same few come again and again."""
        if len(white) > 2:
            return self.exact(white)
        if white not in self._gaps:
            self._gaps[white] = self.exact(white)
        return self._gaps[white]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch `text[start:end]` without white space at its ends, and how many tokens it takes."""

    start: int
    end: int
    tokens: int


Cut = Callable[[str, int, int], Iterator[tuple[int, int]]]


def span_of(text: str, start: int, end: int, ruler: Ruler) -> Span | None:
    """The stretch with white space trimmed; None when nothing is left."""
    stretch = text[start:end]
    stripped = stretch.strip()
    if not stripped:
        return None
    start += len(stretch) - len(stretch.lstrip())
    return Span(start, start + len(stripped), ruler.tokens(stripped))


def cut_to_fit(text: str, span: Span, ruler: Ruler) -> Iterator[Span]:
    """The span in pieces within the ruler's limit (a single character is never cut). Linear time."""
    return _cut(text, span, ruler, (_sentences, _clauses, _words))


def _cut(text: str, span: Span, ruler: Ruler, cuts: Sequence[Cut]) -> Iterator[Span]:
    if span.tokens <= ruler.limit:
        yield span
    elif not cuts:
        yield from _windows(text, span, ruler)
    else:
        for start, end in cuts[0](text, span.start, span.end):
            if piece := span_of(text, start, end, ruler):
                yield from _cut(text, piece, ruler, cuts[1:])


def _sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for sentence in sentences(text[start:end]):
        yield start + sentence.start, start + sentence.end


def _clauses(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    return _between(text, start, end, _CLAUSE_END)


def _words(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    return _between(text, start, end, _WORD_END)


def _between(text: str, start: int, end: int, mark: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    for match in mark.finditer(text, start, end):
        yield start, match.end()
        start = match.end()
    yield start, end


def _windows(text: str, span: Span, ruler: Ruler) -> Iterator[Span]:
    """Of about as many characters as there may be tokens; halved where characters take several."""
    for start in range(span.start, span.end, ruler.limit):
        if piece := span_of(text, start, min(start + ruler.limit, span.end), ruler):
            yield from _halved(text, piece, ruler)


def _halved(text: str, span: Span, ruler: Ruler) -> Iterator[Span]:
    if span.tokens <= ruler.limit or span.end - span.start == 1:
        yield span
        return
    middle = (span.start + span.end) // 2
    for start, end in ((span.start, middle), (middle, span.end)):
        if piece := span_of(text, start, end, ruler):
            yield from _halved(text, piece, ruler)
