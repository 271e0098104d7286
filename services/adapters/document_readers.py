"""Files → parsed documents: are the bytes what the name promises? Then that format's reader is asked."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import PurePath

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from core.errors import EmptyFileError, UnreadableDocumentError
from core.knowledge import ParsedDocument, Section
from core.text import scrub
from services.adapters.content_check import check_content, sniff
from services.adapters.reader_docx import DocxReader
from services.adapters.reader_html import HtmlReader
from services.adapters.reader_markdown import MarkdownReader
from services.adapters.reader_pdf import PdfReader
from services.adapters.reader_text import PlainTextReader
from services.knowledge.document_dates import HEAD_CHARS, DateClues, document_date
from services.knowledge.formats import DocumentFormat, format_of

SECTION_BREAK = "\n\n"
_READERS: dict[DocumentFormat, type[BaseReader]] = {
    DocumentFormat.MARKDOWN: MarkdownReader,
    DocumentFormat.TEXT: PlainTextReader,
    DocumentFormat.HTML: HtmlReader,
    DocumentFormat.PDF: PdfReader,
    DocumentFormat.DOCX: DocxReader,
}
# What the libraries are known to raise on hostile bytes, besides their own errors.
_CONFUSED = (ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, OSError, RuntimeError,
             SyntaxError, TypeError, ValueError, struct.error, zlib.error)  # fmt: skip


def parse_document(file_name: str, content: bytes) -> ParsedDocument:
    """Blocking, and as slow as the file is hostile: run it in a process of its own.

    Raises EmptyFileError, UnsupportedMediaError, or UnreadableDocumentError with the code `encrypted`,
    `no_text`, `encoding`, `archive_limit` or `unreadable_document`.
    """
    if not content:
        raise EmptyFileError("The file is empty.")
    document_format = format_of(file_name) or sniff(content)
    check_content(document_format, content)
    documents = _read(_READERS[document_format](), document_format, content)
    sections = _sections(documents)
    if not sections:
        raise UnreadableDocumentError("The file has no text that can be read.", code="no_text")
    date = document_date(_date_clues(file_name, documents, sections), datetime.now(UTC).date())
    return ParsedDocument(PurePath(file_name).stem, sections, date)


def _date_clues(file_name: str, documents: Sequence[Document], sections: Sequence[Section]) -> DateClues:
    first = documents[0].metadata
    return DateClues(
        file_name=file_name,
        declared=first.get("declared_dates", ()),
        head="\n".join(section.text[:HEAD_CHARS] for section in sections[:3]),
        titles=next((section.heading[:1] for section in sections if section.heading), ()),
        saved=first.get("saved", ()),
    )


def _read(reader: BaseReader, document_format: DocumentFormat, content: bytes) -> list[Document]:
    try:
        return reader.load_data(content)
    except MemoryError:
        raise UnreadableDocumentError("The file takes too much memory to read.", "too_complex") from None
    except _CONFUSED as error:
        raise UnreadableDocumentError(f"The file is not a valid {document_format} document.") from error


def _sections(documents: Iterable[Document]) -> tuple[Section, ...]:
    sections: list[Section] = []
    char_start = 0
    for document in documents:
        text = scrub(document.text).strip()
        if not text:
            continue
        heading = tuple(str(title) for title in document.metadata.get("heading", ()))
        sections.append(Section(text, heading, document.metadata.get("page"), char_start))
        char_start += len(text) + len(SECTION_BREAK)
    return tuple(sections)
