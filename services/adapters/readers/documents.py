"""Turns files into parsed documents: checks that the bytes are what the name promises and safe to unpack,
then calls that format's reader.

A zip-based document (DOCX, PPTX, XLSX, EPUB) is unpacked once, piece by piece, without storing it, to count
its bytes: an archive's statements of its own sizes are not trusted. Nested archives are not opened. Codes:
`archive_limit` (too many or too large members, names outside the archive, links), `unsafe_xml` (entities,
which expand to anything and can name files; office programs never write them), `encrypted`, and
`unreadable_document` for an archive that is damaged or truncated.
"""

from __future__ import annotations

import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib import import_module
from io import BytesIO
from pathlib import PurePath

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from core.errors import EmptyFileError, UnreadableDocumentError, UnsupportedMediaError
from core.formats import DocumentFormat, format_of, language_of
from core.knowledge import ParsedDocument, Section
from core.text import scrub, without_break_hints
from services.knowledge.parsing.dates import HEAD_CHARS, DateClues, document_date
from services.knowledge.parsing.pieces import Scans, too_complex

SECTION_BREAK = "\n\n"
# Module and class; imported only when such a file arrives, because the reading process must start quickly.
READERS = {
    DocumentFormat.MARKDOWN: ("markdown", "MarkdownReader"),
    DocumentFormat.TEXT: ("text", "PlainTextReader"),
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
    DocumentFormat.PICTURE: ("pdf", "PictureReader"),
}
# Errors that the libraries are known to raise on hostile bytes, besides their own.
LIB_ERRORS = (ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, OSError, RuntimeError,
              SyntaxError, TypeError, ValueError, struct.error, zlib.error)  # fmt: skip


def parse_document(file_name: str, content: bytes, scans: Scans | None = None) -> ParsedDocument:
    """Blocking, and slow if the file is hostile: run it in a separate process. `scans`: what was recognised
    on scanned pages, or in the picture.

    Raises EmptyFileError, UnsupportedMediaError, or UnreadableDocumentError with the code `encrypted`,
    `no_text`, `encoding`, `archive_limit`, `unsafe_xml`, `too_complex` or `unreadable_document`.
    """
    if not content:
        raise EmptyFileError("The file is empty.")
    document_format = format_of(file_name) or sniff(content)
    documents = read_sections(file_name, document_format, content, scans)
    sections = _sections(documents)
    scanned = tuple(page for each in documents if (page := each.metadata.get("scanned")))
    if not (sections or scanned):
        raise UnreadableDocumentError("The file has no text that can be read.", code="no_text")
    date = document_date(_date_clues(file_name, documents, sections), datetime.now(UTC).date())
    return ParsedDocument(PurePath(file_name).stem, sections, date, scanned)


def _date_clues(file_name: str, documents: Sequence[Document], sections: Sequence[Section]) -> DateClues:
    first = documents[0].metadata
    return DateClues(
        file_name=file_name,
        declared=first.get("declared_dates", ()),
        head="\n".join(section.text[:HEAD_CHARS] for section in sections[:3]),
        titles=next((section.heading[:1] for section in sections if section.heading), ()),
    )


def _reader(file_name: str, document_format: DocumentFormat, scans: Scans | None) -> BaseReader:
    module, name = READERS[document_format]
    reader = getattr(import_module(f"services.adapters.readers.{module}"), name)
    match document_format:
        case DocumentFormat.CODE:
            made = reader(language_of(file_name))
        case DocumentFormat.PDF | DocumentFormat.PICTURE:
            made = reader(scans)
        case _:
            made = reader()
    if not isinstance(made, BaseReader):
        raise TypeError(f"{name} is no reader")
    return made


def read_sections(
    file_name: str, document_format: DocumentFormat, content: bytes, scans: Scans | None = None
) -> list[Document]:
    """Read a file with that format's reader, for `parse_document` or for a file inside another.

    Raises UnsupportedMediaError or UnreadableDocumentError.
    """
    check_content(document_format, content)
    reader = _reader(file_name, document_format, scans)
    try:
        return reader.load_data(_transitional(document_format, content))
    except (MemoryError, RecursionError):
        raise too_complex("takes too much memory to read") from None
    except LIB_ERRORS as error:
        raise UnreadableDocumentError(
            f"The file is not a valid {document_format} document: open it in its program, save it again and "
            f"add that."
        ) from error


def _sections(documents: Iterable[Document]) -> tuple[Section, ...]:
    sections: list[Section] = []
    char_start = 0
    for document in documents:
        starts = tuple(document.metadata.get("page_starts", ()))
        text = scrub(document.text)
        text = (text if starts else without_break_hints(text)).strip()  # the starts are places in the text
        if not text:
            continue
        heading = tuple(without_break_hints(str(title)) for title in document.metadata.get("heading", ()))
        sections.append(Section(text, heading, document.metadata.get("page"), char_start, starts))
        char_start += len(text) + len(SECTION_BREAK)
    return tuple(sections)


# Checks that run before any parser touches an archive.

MAX_MEMBERS = 1_000
MAX_EXPANDED_BYTES = 200_000_000
MAX_RATIO = 100
RATIO_COUNTS_FROM_BYTES = 1_000_000
# Drawings and previews of embedded files: mostly one colour, so that a harmless one shrinks a thousandfold.
_DRAWINGS, _DRAWING_BYTES = (".emf", ".wmf", ".bmp", ".bin", ".tif", ".tiff", ".pict"), 20_000_000
_PIECE_BYTES = 1 << 18
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the only ones that these formats allow
_ENCRYPTED_FLAG = 1
_XML = (".xml", ".rels", ".vml", ".opf", ".ncx")
_DOCTYPE_OR_ENTITY = re.compile(rb"<!(?:DOCTYPE|ENTITY)")
_ENTITY = re.compile(rb"<!ENTITY")
_STRICT, _STRICT_WITHIN_BYTES = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/"), 8_192
_KNOWN = rb"http://schemas.openxmlformats.org/\1/2006/"
# Templates, slide shows and files with macros, which nothing runs, differ in the type of their main part.
_TYPES, _OPEN = "[Content_Types].xml", "application/vnd.openxmlformats-officedocument"
_KIND_OF_MAIN = re.compile(
    rb"application/vnd\.(?:ms-word|ms-powerpoint|openxmlformats-officedocument\.(?:wordprocessing|presentation)ml)"
    rb"\.(?:document|presentation|slideshow|template)(?:\.macroEnabled(?:Template)?)?\.main\+xml"
)
_USUAL_KINDS = {
    DocumentFormat.DOCX: f"{_OPEN}.wordprocessingml.document.main+xml".encode(),
    DocumentFormat.PPTX: f"{_OPEN}.presentationml.presentation.main+xml".encode(),
}
_MAX_KEYWORD_BYTES = len("<!DOCTYPE")
_ENCODING = re.compile(rb"""<\?xml[^>]{0,200}encoding\s*=\s*["']\s*([\w.:-]{1,40})""")
# In these, "<!" can only be written literally (NULs of UTF-16 are removed first).
_PLAIN_ENCODING = re.compile(
    rb"(?:utf-?(?:8|16(?:le|be)?)|(?:us-)?ascii|iso-8859-\d+|windows-125\d|gb(?:2312|k|18030))$",
    re.IGNORECASE,
)


_MAIN_PARTS = {
    DocumentFormat.DOCX: "word/document.xml",
    DocumentFormat.PPTX: "ppt/presentation.xml",
    DocumentFormat.XLSX: "xl/workbook.xml",
    DocumentFormat.EPUB: "META-INF/container.xml",
}


def kind_of_archive(content: bytes) -> DocumentFormat:
    """The format by the archive's main part; DOCX if none is known, whose check then refuses it."""
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            names = set(archive.namelist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        names = set()
    return next((kind for kind, part in _MAIN_PARTS.items() if part in names), DocumentFormat.DOCX)


def check_archive(document_format: DocumentFormat, content: bytes) -> None:
    """Raises UnsupportedMediaError, or UnreadableDocumentError with one of the codes above."""
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            members = archive.infolist()
            _check_members(members)
            if _MAIN_PARTS[document_format] not in {member.filename for member in members}:
                raise UnsupportedMediaError(
                    f"The file should be {_article(document_format)}, but its content is something else: "
                    "check its extension."
                )
            _unpack(archive, members, document_format)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError) as error:
        raise UnreadableDocumentError(
            "The file is damaged or was not copied whole: open it in its program, save it again and add that."
        ) from error


def _transitional(document_format: DocumentFormat, content: bytes) -> bytes:
    """A file saved as "Strict Open XML", a template or one with macros, with the names that the libraries
    know; others as they are."""
    if document_format not in _MAIN_PARTS:
        return content
    out = BytesIO()
    with zipfile.ZipFile(BytesIO(content)) as archive, zipfile.ZipFile(out, "w") as copy:
        with archive.open(_MAIN_PARTS[document_format]) as main:
            is_strict = _STRICT.search(main.read(_STRICT_WITHIN_BYTES))
        types = archive.read(_TYPES) if _TYPES in archive.namelist() else b""
        usual = _KIND_OF_MAIN.sub(_USUAL_KINDS.get(document_format, b""), types)
        if usual == types and not is_strict:
            return content
        for name in dict.fromkeys(archive.namelist()):
            part = usual if name == _TYPES else archive.read(name)
            copy.writestr(name, _STRICT.sub(_KNOWN, part) if name.lower().endswith(_XML) else part)
    return out.getvalue()


def _article(document_format: DocumentFormat) -> str:
    return f"{'an' if document_format[0] in 'EX' else 'a'} {document_format}"


def _check_members(members: list[zipfile.ZipInfo]) -> None:
    """Check the archive's own directory first, which costs nothing."""
    if any(member.flag_bits & _ENCRYPTED_FLAG for member in members):
        raise protected()
    if len(members) > MAX_MEMBERS:
        raise _unsafe(f"it holds more than {MAX_MEMBERS:,} files")
    if any(_leads_out(member) for member in members):
        raise _unsafe("it holds links or names that lead out of it")
    if any(member.compress_type not in _PACKINGS for member in members):
        raise _unsafe("it is packed in a way that documents never are")
    for member in members:
        _check_ratio(member, member.file_size)
    _check_expanded(sum(member.file_size for member in members))


def _unpack(archive: zipfile.ZipFile, members: Iterable[zipfile.ZipInfo], kind: DocumentFormat) -> None:
    expanded = 0
    for member in members:
        before = expanded
        pieces = _pieces(archive, member)
        checked = _checked_xml(pieces, kind) if member.filename.lower().endswith(_XML) else pieces
        for piece in checked:
            expanded += len(piece)
            _check_expanded(expanded)
            _check_ratio(member, expanded - before)


def _pieces(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    with archive.open(member) as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _checked_xml(pieces: Iterable[bytes], kind: DocumentFormat) -> Iterator[bytes]:
    """Pass the pieces through, refusing doctypes and entities in XML; the pages of an EPUB may have a
    doctype, but no entity."""
    forbidden = _ENTITY if kind is DocumentFormat.EPUB else _DOCTYPE_OR_ENTITY
    tail = b""
    for number, piece in enumerate(pieces):
        text = tail + piece.replace(b"\0", b"")
        encoding = _ENCODING.search(text[:400]) if number == 0 else None
        if forbidden.search(text) or (encoding and not _PLAIN_ENCODING.match(encoding.group(1))):
            raise UnreadableDocumentError(
                "The document's XML declares entities, which is not safe to read: save it again in the "
                "program it comes from and add that.",
                code="unsafe_xml",
            )
        tail = text[-_MAX_KEYWORD_BYTES:]
        yield piece


def _check_expanded(expanded_bytes: int) -> None:
    if expanded_bytes > MAX_EXPANDED_BYTES:
        raise _unsafe(f"unpacked it takes more than {MAX_EXPANDED_BYTES // 1_000_000} MB")


def _check_ratio(member: zipfile.ZipInfo, expanded_bytes: int) -> None:
    is_drawing = member.filename.lower().endswith(_DRAWINGS)
    if expanded_bytes <= (_DRAWING_BYTES if is_drawing else RATIO_COUNTS_FROM_BYTES):
        return
    if expanded_bytes > MAX_RATIO * max(1, member.compress_size):
        raise _unsafe(f"a file in it unpacks to more than {MAX_RATIO} times its size")


def _leads_out(member: zipfile.ZipInfo) -> bool:
    """Whether it is a symbolic link, or its name points outside the archive."""
    parts = member.filename.replace("\\", "/").split("/")
    return (
        ".." in parts or parts[0] == "" or parts[0].endswith(":") or stat.S_ISLNK(member.external_attr >> 16)
    )


def _unsafe(why: str) -> UnreadableDocumentError:
    return UnreadableDocumentError(f"The document is not safe to unpack: {why}.", code="archive_limit")


def protected() -> UnreadableDocumentError:
    return UnreadableDocumentError(
        "The document is protected by a password: save it without one and add that.", code="encrypted"
    )


_PDF_HEADER_WITHIN = 1024  # readers accept junk before %PDF-
_ZIP = b"PK\x03\x04"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED_OFFICE = "EncryptedPackage".encode("utf-16-le")
_BINARY_HEADERS = (
    _ZIP, b"\x7fELF", b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"\x1f\x8b", b"7z\xbc\xaf", b"Rar!",
    b"%PDF-", _OLE,
)  # fmt: skip
# Text that is only for office programs: RTF, and the XML of Word and Excel 2003 and of Word's flat files.
_MISNAMED = (
    (re.compile(rb"\s*\{\\rtf\d"), "DOCX"),
    (re.compile(rb"(?:\xef\xbb\xbf)?<\?xml.{0,300}<\?mso-application\s+progid=.Word", re.DOTALL), "DOCX"),
    (re.compile(rb"(?:\xef\xbb\xbf)?<\?xml.{0,300}<\?mso-application\s+progid=.Excel", re.DOTALL), "XLSX"),
)


def sniff(content: bytes) -> DocumentFormat:
    """Guess the format of a file without an extension; anything but a PDF or an archive may be text."""
    if content.startswith(b"%PDF-"):
        return DocumentFormat.PDF
    return kind_of_archive(content) if content.startswith(_ZIP) else DocumentFormat.TEXT


def check_content(document_format: DocumentFormat, content: bytes) -> None:
    """Raises UnsupportedMediaError, or UnreadableDocumentError with one of the codes above."""
    if document_format is DocumentFormat.PDF:
        if b"%PDF-" not in content[:_PDF_HEADER_WITHIN]:
            raise UnsupportedMediaError(
                "The file should be a PDF, but its content is something else: check its extension."
            )
    elif document_format in _MAIN_PARTS:
        _check_packed(document_format, content)
    elif document_format is DocumentFormat.PICTURE:
        return  # the process that recognises its text opens it
    elif content.startswith(_BINARY_HEADERS) or (content.startswith(b"MZ") and b"\0" in content[:256]):
        raise UnsupportedMediaError(
            f"The file should be {document_format}, but its content is not text: check its extension."
        )
    elif better := next((better for mark, better in _MISNAMED if mark.match(content[:1024])), None):
        raise UnsupportedMediaError(
            f"The file is called {document_format}, but its content is something else: save it as {better} "
            "in the program it comes from, and add that."
        )


def _check_packed(document_format: DocumentFormat, content: bytes) -> None:
    if content.startswith(_OLE):
        if _ENCRYPTED_OFFICE in content:
            raise protected()
        raise UnsupportedMediaError(
            f"The file is of an old binary format: save it as {document_format} in the program it comes "
            f"from, and add that."
        )
    if not content.startswith(b"PK"):
        raise UnsupportedMediaError(
            f"The file is called {document_format}, but its content is something else: check its extension."
        )
    check_archive(document_format, content)
