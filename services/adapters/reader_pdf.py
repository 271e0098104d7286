"""PDF: one section per page, its lines joined back into paragraphs."""

from __future__ import annotations

import re
from datetime import datetime
from io import BytesIO

import pypdf
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from pypdf.errors import DependencyError, PyPdfError

from core.errors import UnreadableDocumentError
from core.text import scrub
from services.adapters.outline import section_document, with_dates

_PARAGRAPH_END = re.compile(r"[。！？；：.!?;:”」』）)]\s*$")
_CJK = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f]")
_FULL_LINE_SHARE = 0.7


class PdfReader(BaseReader):
    def load_data(self, content: bytes) -> list[Document]:
        try:
            pdf = pypdf.PdfReader(BytesIO(content))
            _unlock(pdf)
            pages = [
                section_document(_paragraphs(scrub(page.extract_text())), page=number)
                for number, page in enumerate(pdf.pages, start=1)
            ]
            return with_dates(pages, saved=[_created(pdf)])
        except (PyPdfError, DependencyError) as error:
            raise UnreadableDocumentError("The file is not a valid PDF document.") from error


def _unlock(pdf: pypdf.PdfReader) -> None:
    """Many PDFs are locked with an empty password, against printing only."""
    if not pdf.is_encrypted:
        return
    try:
        unlocked = bool(pdf.decrypt(""))
    except (DependencyError, PyPdfError, NotImplementedError):
        unlocked = False
    if not unlocked:
        raise UnreadableDocumentError("The PDF is protected by a password.", code="encrypted")


def _created(pdf: pypdf.PdfReader) -> datetime | None:
    """When the PDF was made. Its date of change is a later tool's: a signature, a merge."""
    try:
        return pdf.metadata.creation_date if pdf.metadata else None
    except (PyPdfError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None  # a damaged note costs nobody the document


def _paragraphs(text: str) -> str:
    """A line as long as the page's lines, that ends no sentence, goes on in the next one."""
    lines = [line.strip() for line in text.split("\n")]
    full = _FULL_LINE_SHARE * max(map(len, lines))
    joined = ""
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        goes_on = len(line) >= full and following and not _PARAGRAPH_END.search(line)
        joined += _continued(line, following) if goes_on else f"{line}\n"
    return joined


def _continued(line: str, following: str) -> str:
    if line.endswith("-") and line[-2:-1].isalpha() and following[0].islower():
        return line[:-1]
    return line if _CJK.match(line[-1]) and _CJK.match(following[0]) else f"{line} "
