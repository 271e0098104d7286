"""A PDF's bookmarks as headings: on which page, how deep. Notes of a tool, so nothing in them is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pypdf
from pypdf.errors import PyPdfError
from pypdf.generic import Destination

from core.text import scrub

_MAX_TITLE_CHARS = 200
_MAX_DEPTH = 6
_WORD = re.compile(r"[^\W\d_]{2}|[\u3400-\u9fff]")
_NUMBERING = re.compile(
    r"\s*(?:第\s*[\d一二三四五六七八九十百]+\s*[章节條条篇部]|[一二三四五六七八九十]+(?=[、.．])"
    r"|(?:chapter|appendix|section|part)\s+[\dA-Z]{1,4}\b|(?:[A-Z]\.?)?\d+(?:\.\d+)*|[A-Z]\b)[\s.．、:：)）]*",
    re.IGNORECASE,
)
_FILE_NAME = re.compile(r"\.(?:docx?|pptx?|xlsx?|pdf|indd)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Bookmark:
    """`page` counts from 0; `level` from 1, the outermost."""

    page: int
    level: int
    title: str


def bookmarks(pdf: pypdf.PdfReader) -> list[Bookmark]:
    """In the outline's order. A title without a word (a page's number) or that names a file is none."""
    try:
        return list(_flat(pdf, pdf.outline, 1))
    except (PyPdfError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return []  # a damaged outline costs nobody the document


def place(lines: Sequence[str], titles: Sequence[str]) -> list[tuple[int, int] | None]:
    """For each title in order, the lines [start, end) that say it; None where none do."""
    said = [_forms(line) for line in lines]
    places: list[tuple[int, int] | None] = []
    at = 0
    for title in titles:
        found = _find(said, _forms(title), at)
        at = found[1] if found else at
        places.append(found)
    return places


def _flat(pdf: pypdf.PdfReader, items: object, level: int) -> Iterator[Bookmark]:
    for item in items if isinstance(items, list) else ():
        if isinstance(item, list):
            yield from _flat(pdf, item, level + 1)
        elif isinstance(item, Destination):
            title = " ".join(scrub(str(item.title or "")).split())[:_MAX_TITLE_CHARS]
            page = pdf.get_destination_page_number(item)
            if page is not None and _WORD.search(title) and not _FILE_NAME.search(title):
                yield Bookmark(page, min(level, _MAX_DEPTH), title)


def _find(said: Sequence[tuple[str, str]], title: tuple[str, str], at: int) -> tuple[int, int] | None:
    """A title may take two lines of the page."""
    for index in range(at, len(said)):
        if _same(said[index], title):
            return index, index + 1
        if index + 1 < len(said) and said[index][0] and title[0].startswith(said[index][0]):
            both = (said[index][0] + said[index + 1][0], said[index][1] + said[index + 1][0])
            if _same(both, title):
                return index, index + 2
    return None


def _same(line: tuple[str, str], title: tuple[str, str]) -> bool:
    return bool(title[1]) and not {*line}.isdisjoint(title)


def _forms(text: str) -> tuple[str, str]:
    """Its letters, with and without the number that it begins with: bookmarks often lack it."""
    return _letters(text), _letters(_NUMBERING.sub("", text, count=1))


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()
