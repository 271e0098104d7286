"""The lines of PDF pages without running heads, footers and page numbers, which stand in the middle of
sentences when pages are read one after the other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

_EDGE_LINES = 2
_LINE_CHARS = 100
_LEAST_PAGES = 4  # fewer tell nothing of what repeats
_REPEATED_SHARE = 0.6
_NUMBERED_SHARE = 0.5
_MAX_NUMBERS = 4  # in a line that counts the pages: chapter 2.1, page 7 of 90
_NUMBER = re.compile(r"(?<!\d)\d{1,4}(?!\d)")


def without_margins(pages: Sequence[list[str]]) -> list[list[str]]:
    """Left out are lines that most pages begin or end with, and those in which a number counts the pages and
    that are the same on several pages but for their numbers."""
    if len(pages) < _LEAST_PAGES:
        return [*pages]
    edges = [_edges(page) for page in pages]
    margins = {*_repeated(pages, edges), *_numbered(pages, edges)}
    return [
        [line for index, line in enumerate(page) if (number, index) not in margins]
        for number, page in enumerate(pages)
    ]


def _edges(page: Sequence[str]) -> set[int]:
    filled = [index for index, line in enumerate(page) if line]
    edges = (*filled[:_EDGE_LINES], *filled[-_EDGE_LINES:])
    return {index for index in edges if len(page[index]) <= _LINE_CHARS}


def _repeated(pages: Sequence[list[str]], edges: Sequence[set[int]]) -> Iterator[tuple[int, int]]:
    """Page and line of what stands, word for word, on most pages."""
    counts = Counter(
        text for page, edge in zip(pages, edges, strict=True) for text in {page[index] for index in edge}
    )
    for number, edge in enumerate(edges):
        yield from (
            (number, index)
            for index in edge
            if counts[pages[number][index]] >= _REPEATED_SHARE * len(pages)
            and not _NUMBER.fullmatch(pages[number][index])  # a figure that is often the same
        )


def _numbered(pages: Sequence[list[str]], edges: Sequence[set[int]]) -> list[tuple[int, int]]:
    """Page and line of what counts the pages."""
    found = [
        (value - number, number, index)
        for number, edge in enumerate(edges)
        for index in edge
        for value in _numbers(pages[number][index])
    ]
    firsts = Counter(first for first, _ in {(first, number) for first, number, _ in found})
    first, count = firsts.most_common(1)[0] if firsts else (0, 0)
    if count < _NUMBERED_SHARE * len(pages):
        return []
    counting = [(number, index) for start, number, index in found if start == first]
    forms = Counter(_NUMBER.sub("0", pages[number][index]) for number, index in counting)
    return [place for place in counting if forms[_NUMBER.sub("0", pages[place[0]][place[1]])] > 1]


def _numbers(line: str) -> set[int]:
    numbers = _NUMBER.findall(line)
    return {*map(int, numbers)} if len(numbers) <= _MAX_NUMBERS else set()
