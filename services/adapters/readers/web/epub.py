"""EPUB: chapters in reading order, each read as a page, under the book's and the chapter's titles. A page
that is a table of contents is left out: it has the words of all chapters."""

from __future__ import annotations

import posixpath
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from urllib.parse import unquote, urlsplit

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from lxml import etree
from lxml.etree import _Element

from core.errors import UnreadableDocumentError
from services.adapters.readers.decoding import decode
from services.adapters.readers.outline import section_document, with_dates
from services.adapters.readers.web.html import read_parsed
from services.adapters.readers.web.tree import is_contents, parse_html

# An EPUB's metadata: its title and dates, its chapters in reading order and their names.


_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
# Fonts are scrambled even in books without copy protection.
_FONT_SCRAMBLING = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_PAGES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")


@dataclass(frozen=True, slots=True)
class Chapter:
    """A file of the archive. `title` is its name in the table of contents, "" if it has none."""

    path: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Package:
    title: str
    dates: tuple[str, ...]
    chapters: tuple[Chapter, ...]


def read_package(book: zipfile.ZipFile) -> Package:
    """Raises UnreadableDocumentError, with the code `encrypted` if the chapters are."""
    path = _package_path(book)
    root = _xml(book, path)
    if root is None:
        raise UnreadableDocumentError("The file is not a valid EPUB: it has no table of its parts.")
    base = posixpath.dirname(path)
    items = {item.get("id", ""): item for item in _all(root, "manifest/item")}
    names = _names(book, base, items)
    spine = (items.get(reference.get("idref", "")) for reference in _all(root, "spine/itemref"))
    pages = (item for item in spine if item is not None and item.get("media-type", "") in _PAGES)
    paths = [_resolved(base, page.get("href", "")) for page in pages]
    _refuse_locked(book, paths)
    return Package(
        title=next(filter(None, map(_text, _all(root, "metadata//title"))), ""),
        dates=tuple(filter(None, map(_text, sorted(_all(root, "metadata//date"), key=_is_change)))),
        chapters=tuple(Chapter(path, names.get(path, "")) for path in dict.fromkeys(paths)),
    )


def _package_path(book: zipfile.ZipFile) -> str:
    container = _xml(book, _CONTAINER)
    files = _all(container, "rootfiles/rootfile") if container is not None else []
    named = (_resolved("", file.get("full-path", "")) for file in files)
    packages = (name for name in book.namelist() if name.lower().endswith(".opf"))
    return next((path for path in (*named, *packages) if path in book.namelist()), "")


def _refuse_locked(book: zipfile.ZipFile, chapters: list[str]) -> None:
    encryption = _xml(book, _ENCRYPTION)
    for data in _all(encryption, ".//EncryptedData") if encryption is not None else ():
        methods = [method.get("Algorithm", "") for method in _all(data, "EncryptionMethod")]
        uris = [_resolved("", one.get("URI", "")) for one in _all(data, ".//CipherReference")]
        if not set(methods) <= set(_FONT_SCRAMBLING) and set(uris) & set(chapters):
            raise UnreadableDocumentError("The book is locked by its seller's copy protection.", "encrypted")


def _names(book: zipfile.ZipFile, base: str, items: dict[str, _Element]) -> dict[str, str]:
    """The first name of each path in the table of contents, of either EPUB version."""
    names: dict[str, str] = {}
    for item in items.values():
        is_nav = "nav" in item.get("properties", "").split()
        if not is_nav and item.get("media-type") != "application/x-dtbncx+xml":
            continue
        path = _resolved(base, item.get("href", ""))
        contents = _xml(book, path)
        if contents is None:
            continue
        for href, title in _links(contents) if is_nav else _points(contents):
            names.setdefault(_resolved(posixpath.dirname(path), href), title)
    return names


def _links(contents: _Element) -> Iterator[tuple[str, str]]:
    for link in _all(contents, ".//nav//a"):
        yield link.get("href", ""), _text(link)


def _points(contents: _Element) -> Iterator[tuple[str, str]]:
    for point in _all(contents, ".//navPoint"):
        label = next(map(_text, _all(point, "navLabel/text")), "")
        yield next((content.get("src", "") for content in _all(point, "content")), ""), label


def _xml(book: zipfile.ZipFile, path: str) -> _Element | None:
    """None if the file is missing or not XML. Entities are not expanded, nothing is fetched."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, recover=True)
    try:
        return etree.fromstring(book.read(path), parser)
    except (KeyError, etree.XMLSyntaxError, ValueError):
        return None


def _all(root: _Element, path: str) -> list[_Element]:
    """`findall` for any namespace: EPUB versions use different ones."""
    steps = [step if step in ("", ".") else f"{{*}}{step}" for step in path.split("/")]
    return root.findall("/".join(steps))


def _text(element: _Element) -> str:
    return " ".join("".join(map(str, element.itertext())).split())


def _is_change(date: _Element) -> bool:
    """Whether EPUB 2 marks it as a modification date; other dates sort first."""
    return any(value == "modification" for value in date.attrib.values())


def _resolved(base: str, href: str) -> str:
    """The archive member that a link (percent-encoded, with a fragment) points to."""
    return posixpath.normpath(posixpath.join(base, unquote(urlsplit(href).path))).lstrip("/")


# XML has self-closing tags, HTML does not: <title/> would swallow the page.
_CLOSED = re.compile(r"<([A-Za-z][\w:-]{0,40})((?:\s[^<>]*)?)/>")
_DECLARED = re.compile(rb"""<\?xml[^>]{0,100}encoding\s{0,4}=\s{0,4}["']([\w-]{1,40})""")
_LOCKED = 0x1


class EpubReader(BaseReader):
    """A missing or damaged chapter does not affect the others."""

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
    page = parse_html(_CLOSED.sub(r"<\1\2></\1>", text))
    sections = [] if is_contents(page) else read_parsed(page)
    return [section_document(section.text, _path(section, chapter, title)) for section in sections]


def _path(section: Document, chapter: Chapter, title: str) -> list[str]:
    """Book title and headings; a page without headings gets its name in the table of contents."""
    headings: list[str] = section.metadata["heading"] or [chapter.title]
    path = [title, *headings] if headings[0] != title else headings
    return [heading for heading in path if heading]
