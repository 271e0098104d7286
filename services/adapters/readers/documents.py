"""Files → parsed documents: are the bytes what the name promises? Then that format's reader is asked."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import PurePath

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from core.errors import EmptyFileError, UnreadableDocumentError
from core.formats import DocumentFormat, format_of, language_of
from core.knowledge import ParsedDocument, Section
from core.text import scrub
from services.adapters.readers.content_check import check_content, sniff
from services.knowledge.parsing.dates import HEAD_CHARS, DateClues, document_date
from services.knowledge.parsing.pieces import too_complex

SECTION_BREAK = "\n\n"
# Module and class; imported when a file of the kind comes: the process that reads must start in a moment.
READERS = {
    DocumentFormat.MARKDOWN: ("markdown", "MarkdownReader"),
    DocumentFormat.TEXT: ("code", "PlainTextReader"),
    DocumentFormat.HTML: ("web.html", "HtmlReader"),
    DocumentFormat.PDF: ("pdf", "PdfReader"),
    DocumentFormat.DOCX: ("office.docx", "DocxReader"),
    DocumentFormat.PPTX: ("office.pptx", "PptxReader"),
    DocumentFormat.XLSX: ("office.xlsx", "XlsxReader"),
    DocumentFormat.CSV: ("sheets", "CsvReader"),
    DocumentFormat.JSON: ("json", "JsonReader"),
    DocumentFormat.JSON_LINES: ("json", "JsonLinesReader"),
    DocumentFormat.EPUB: ("web.epub", "EpubReader"),
    DocumentFormat.EMAIL: ("web.email", "EmailReader"),
    DocumentFormat.CODE: ("code", "CodeReader"),
}
# What the libraries are known to raise on hostile bytes, besides their own errors.
_CONFUSED = (ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, OSError, RuntimeError,
             SyntaxError, TypeError, ValueError, struct.error, zlib.error)  # fmt: skip


def parse_document(file_name: str, content: bytes) -> ParsedDocument:
    """Blocking, and as slow as the file is hostile: run it in a process of its own.

    Raises EmptyFileError, UnsupportedMediaError, or UnreadableDocumentError with the code `encrypted`,
    `no_text`, `encoding`, `archive_limit`, `unsafe_xml`, `too_complex` or `unreadable_document`.
    """
    if not content:
        raise EmptyFileError("The file is empty.")
    document_format = format_of(file_name) or sniff(content)
    documents = read_sections(file_name, document_format, content)
    sections = _sections(documents)
    if not sections:
        raise UnreadableDocumentError(_WITHOUT_TEXT[document_format is DocumentFormat.PDF], code="no_text")
    date = document_date(_date_clues(file_name, documents, sections), datetime.now(UTC).date())
    return ParsedDocument(PurePath(file_name).stem, sections, date)


_WITHOUT_TEXT = (
    "The file has no text that can be read.",
    "The file has no text that can be read: if it is a scan, run text recognition (OCR) on it and add that.",
)


def _date_clues(file_name: str, documents: Sequence[Document], sections: Sequence[Section]) -> DateClues:
    first = documents[0].metadata
    return DateClues(
        file_name=file_name,
        declared=first.get("declared_dates", ()),
        head="\n".join(section.text[:HEAD_CHARS] for section in sections[:3]),
        titles=next((section.heading[:1] for section in sections if section.heading), ()),
    )


def _reader(file_name: str, document_format: DocumentFormat) -> BaseReader:
    module, name = READERS[document_format]
    reader = getattr(import_module(f"services.adapters.readers.{module}"), name)
    made = reader(language_of(file_name)) if document_format is DocumentFormat.CODE else reader()
    if not isinstance(made, BaseReader):
        raise TypeError(f"{name} is no reader")
    return made


def read_sections(file_name: str, document_format: DocumentFormat, content: bytes) -> list[Document]:
    """What `parse_document` makes sections of, by that format's reader; likewise for a file inside another.

    Raises UnsupportedMediaError or UnreadableDocumentError.
    """
    check_content(document_format, content)
    reader = _reader(file_name, document_format)
    try:
        return reader.load_data(content)
    except (MemoryError, RecursionError):
        raise too_complex("takes too much memory to read") from None
    except _CONFUSED as error:
        raise UnreadableDocumentError(
            f"The file is not a valid {document_format} document: open it in its program, save it again and "
            f"add that."
        ) from error


def _sections(documents: Iterable[Document]) -> tuple[Section, ...]:
    sections: list[Section] = []
    char_start = 0
    for document in documents:
        text = scrub(document.text).strip()
        if not text:
            continue
        starts = tuple(document.metadata.get("page_starts", ()))
        heading = tuple(str(title) for title in document.metadata.get("heading", ()))
        sections.append(Section(text, heading, document.metadata.get("page"), char_start, starts))
        char_start += len(text) + len(SECTION_BREAK)
    return tuple(sections)
