"""PDF: one section per page and bookmark, its lines joined back into paragraphs.

Bookmarks are the headings. Running heads, footers and page numbers are left out (pdf_margins.py). Tables are
lines with their cells in order: to find them, pdfplumber takes three times as long again as all the rest, and
it finds only those with ruled lines.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from io import BytesIO
from itertools import zip_longest

import pypdf
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from pypdf.errors import DependencyError, PyPdfError

from core.errors import UnreadableDocumentError
from core.text import scrub
from services.adapters.outline import Outline, with_dates
from services.adapters.pdf_margins import without_margins
from services.adapters.pdf_outline import Bookmark, bookmarks, place

_PARAGRAPH_END = re.compile(r"[。！？；：.!?;:”」』）)]\s*$")
_CJK = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f]")
_BULLET = re.compile("[\uf000-\uf0ff•●○■□▪▫◦‣⁃]\\s*")  # the first are those of symbol fonts
_FULL_LINE_SHARE = 0.7


class PdfReader(BaseReader):
    def load_data(self, content: bytes) -> list[Document]:
        logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # its warnings quote the document's bytes
        try:
            pdf = pypdf.PdfReader(BytesIO(content))
            _unlock(pdf)
            pages = [_lines(page.extract_text()) for page in pdf.pages]
            sections = _sections(without_margins(pages), bookmarks(pdf))
            return with_dates(sections, saved=[_created(pdf)])
        except (PyPdfError, DependencyError) as error:
            raise UnreadableDocumentError(
                "The file is not a valid PDF document: print it to a PDF again and add that."
            ) from error


def _unlock(pdf: pypdf.PdfReader) -> None:
    """Many PDFs are locked with an empty password, against printing only."""
    if not pdf.is_encrypted:
        return
    try:
        unlocked = bool(pdf.decrypt(""))
    except (DependencyError, PyPdfError, NotImplementedError):
        unlocked = False
    if not unlocked:
        raise UnreadableDocumentError(
            "The PDF is protected by a password: save it without one and add that.", code="encrypted"
        )


def _created(pdf: pypdf.PdfReader) -> datetime | None:
    """When the PDF was made. Its date of change is a later tool's: a signature, a merge."""
    try:
        return pdf.metadata.creation_date if pdf.metadata else None
    except (PyPdfError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None  # a damaged note costs nobody the document


def _lines(text: str) -> list[str]:
    lines = (line.strip() for line in scrub(text).split("\n"))
    return [_BULLET.sub("- ", line, count=1) if _BULLET.match(line) else line for line in lines]


def _sections(pages: Iterable[list[str]], marks: Sequence[Bookmark]) -> list[Document]:
    outline = Outline()
    by_page: dict[int, list[Bookmark]] = defaultdict(list)
    for mark in marks:
        by_page[mark.page].append(mark)
    for index, lines in enumerate(pages):
        outline.page(index + 1)
        _page(lines, by_page.get(index, []), outline)
    return outline.finish()


def _page(lines: Sequence[str], marks: Sequence[Bookmark], outline: Outline) -> None:
    """Bookmarks whose line is not found: the first, with those inside it, heads the page from where the one
    before it ended; the others only what comes after the page."""
    full = _FULL_LINE_SHARE * max(map(len, lines), default=0)
    done, deepest = 0, 0
    later: list[Bookmark] = []
    for mark, found in zip(marks, place(lines, [mark.title for mark in marks]), strict=True):
        if found is None and mark.level <= deepest:
            later.append(mark)
            continue
        start, end = found or (done, done)
        outline.block(_paragraphs(lines[done:start], full))
        outline.heading(mark.level, mark.title, said=found is None)
        done, deepest = end, mark.level if found is None else 0
        later = [] if found else later
    outline.block(_paragraphs(lines[done:], full))
    for mark in later:
        outline.heading(mark.level, mark.title, said=True)


def _paragraphs(lines: Sequence[str], full: float) -> str:
    """A line as long as the page's lines, that ends no sentence, goes on in the next one."""
    joined = ""
    for line, following in zip_longest(lines, lines[1:], fillvalue=""):
        goes_on = len(line) >= full and following and not _PARAGRAPH_END.search(line)
        joined += _continued(line, following) if goes_on else f"{line}\n"
    return joined


def _continued(line: str, following: str) -> str:
    if line.endswith("-") and line[-2:-1].isalpha() and following[0].islower():
        return line[:-1]
    return line if _CJK.match(line[-1]) and _CJK.match(following[0]) else f"{line} "
