"""EPUB: its chapters in reading order, each read as a page, under the book's and the chapter's titles."""

from __future__ import annotations

import re
import zipfile
import zlib
from io import BytesIO

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from core.errors import UnreadableDocumentError
from services.adapters.decoding import decode
from services.adapters.epub_package import Chapter, read_package
from services.adapters.outline import section_document, with_dates
from services.adapters.reader_html import read_html

# XML may close an element in its own tag, HTML may not: <title/> would swallow the page.
_CLOSED = re.compile(r"<([A-Za-z][\w:-]{0,40})((?:\s[^<>]*)?)/>")
_DECLARED = re.compile(rb"""<\?xml[^>]{0,100}encoding\s{0,4}=\s{0,4}["']([\w-]{1,40})""")
_LOCKED = 0x1


class EpubReader(BaseReader):
    """A chapter that is missing or damaged costs nobody the others."""

    def load_data(self, content: bytes) -> list[Document]:
        try:
            book = zipfile.ZipFile(BytesIO(content))
        except zipfile.BadZipFile as error:
            raise UnreadableDocumentError("The file is not a valid EPUB document.") from error
        with book:
            if any(member.flag_bits & _LOCKED for member in book.infolist()):
                raise UnreadableDocumentError("The book is protected by a password.", code="encrypted")
            package = read_package(book)
            sections: list[Document] = []
            for chapter in package.chapters:
                sections += _read(book, chapter, package.title)
        if not sections and package.chapters:
            raise UnreadableDocumentError("None of the book's chapters has text that can be read.", "no_text")
        return with_dates(sections, package.dates)


def _read(book: zipfile.ZipFile, chapter: Chapter, title: str) -> list[Document]:
    try:
        content = book.read(chapter.path)
    except (KeyError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError):
        return []
    declared = _DECLARED.match(content)
    try:
        text = decode(content, declared.group(1).decode() if declared else None)
    except UnreadableDocumentError:
        return []
    sections = read_html(_CLOSED.sub(r"<\1\2></\1>", text))
    return [section_document(section.text, _path(section, chapter, title)) for section in sections]


def _path(section: Document, chapter: Chapter, title: str) -> list[str]:
    """Book, chapter, headings; a page without headings is named by the table of contents."""
    headings: list[str] = section.metadata["heading"] or [chapter.title]
    path = [title, *headings] if headings[0] != title else headings
    return [heading for heading in path if heading]
