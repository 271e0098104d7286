"""Do the bytes fit what the file's name promises, and are they safe to unpack? Looked at before any parser
touches them. A zip-based document (DOCX, PPTX, XLSX, EPUB) is unpacked once, piece by piece, kept nowhere,
and counted: what an archive says of its own sizes is not believed. Archives inside are not opened.

Codes: `archive_limit` (too many or too large members, names that lead out, links), `unsafe_xml` (entities,
which expand to anything and can name files; office programs never write them), `encrypted`, and
`unreadable_document` for an archive that is damaged or cut short.
"""

from __future__ import annotations

import re
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from io import BytesIO

from core.errors import UnreadableDocumentError, UnsupportedMediaError
from core.formats import DocumentFormat

MAX_MEMBERS = 1_000
MAX_EXPANDED_BYTES = 200_000_000
MAX_RATIO = 100
RATIO_COUNTS_FROM_BYTES = 1_000_000
_PIECE_BYTES = 1 << 18
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the only ones that these formats allow
_ENCRYPTED_FLAG = 1
_XML = (".xml", ".rels", ".vml", ".opf", ".ncx")
_DECLARED = re.compile(rb"<!(?:DOCTYPE|ENTITY)")
_ENTITY = re.compile(rb"<!ENTITY")
_LONGEST = len("<!DOCTYPE")
_ENCODING = re.compile(rb"""<\?xml[^>]{0,200}encoding\s*=\s*["']\s*([\w.:-]{1,40})""")
# In these, "<!" can only be written as it is (UTF-16 has its NULs taken out).
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
    """By its main part; DOCX when it has none of those that are known, whose check will say so."""
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
                    f"check its ending."
                )
            _unpack(archive, members, document_format)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError) as error:
        raise UnreadableDocumentError(
            "The file is damaged or was not copied whole: open it in its program, save it again and add that."
        ) from error


def _article(document_format: DocumentFormat) -> str:
    return f"{'an' if document_format[0] in 'EX' else 'a'} {document_format}"


def _check_members(members: list[zipfile.ZipInfo]) -> None:
    """By what the archive says of itself, which costs nothing."""
    if any(member.flag_bits & _ENCRYPTED_FLAG for member in members):
        raise protected()
    if len(members) > MAX_MEMBERS:
        raise _unsafe(f"it holds more than {MAX_MEMBERS:,} files")
    if any(_leads_out(member) for member in members):
        raise _unsafe("it holds links or names that lead out of it")
    if any(member.compress_type not in _PACKINGS for member in members):
        raise _unsafe("it is packed in a way that documents never are")
    for member in members:
        _check_ratio(member.file_size, max(member.compress_size, 0))
    _check_expanded(sum(member.file_size for member in members))


def _unpack(archive: zipfile.ZipFile, members: Iterable[zipfile.ZipInfo], kind: DocumentFormat) -> None:
    expanded = 0
    for member in members:
        before = expanded
        pieces = _pieces(archive, member)
        looked_at = _looked_at(pieces, kind) if member.filename.lower().endswith(_XML) else pieces
        for piece in looked_at:
            expanded += len(piece)
            _check_expanded(expanded)
            _check_ratio(expanded - before, member.compress_size)


def _pieces(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    with archive.open(member) as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _looked_at(pieces: Iterable[bytes], kind: DocumentFormat) -> Iterator[bytes]:
    """The same pieces, as long as the XML in them declares nothing; the pages of a book begin with a doctype,
    but an entity is refused there, too."""
    forbidden = _ENTITY if kind is DocumentFormat.EPUB else _DECLARED
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
        tail = text[-_LONGEST:]
        yield piece


def _check_expanded(expanded_bytes: int) -> None:
    if expanded_bytes > MAX_EXPANDED_BYTES:
        raise _unsafe(f"unpacked it takes more than {MAX_EXPANDED_BYTES // 1_000_000} MB")


def _check_ratio(expanded_bytes: int, packed_bytes: int) -> None:
    if expanded_bytes > RATIO_COUNTS_FROM_BYTES and expanded_bytes > MAX_RATIO * max(1, packed_bytes):
        raise _unsafe(f"a file in it unpacks to more than {MAX_RATIO} times its size")


def _leads_out(member: zipfile.ZipInfo) -> bool:
    """A name that leaves the archive, or a symbolic link."""
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


def sniff(content: bytes) -> DocumentFormat:
    """What a file without an ending seems to be; anything that is not a PDF or an archive may be text."""
    if content.startswith(b"%PDF-"):
        return DocumentFormat.PDF
    return kind_of_archive(content) if content.startswith(_ZIP) else DocumentFormat.TEXT


def check_content(document_format: DocumentFormat, content: bytes) -> None:
    """Raises UnsupportedMediaError, or UnreadableDocumentError with one of the codes above."""
    if document_format is DocumentFormat.PDF:
        if b"%PDF-" not in content[:_PDF_HEADER_WITHIN]:
            raise UnsupportedMediaError(
                "The file should be a PDF, but its content is something else: check its ending."
            )
    elif document_format in _MAIN_PARTS:
        _check_packed(document_format, content)
    elif content.startswith(_BINARY_HEADERS) or (content.startswith(b"MZ") and b"\0" in content[:256]):
        raise UnsupportedMediaError(
            f"The file should be {document_format}, but its content is not text: check its ending."
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
            f"The file is called {document_format}, but its content is something else: check its ending."
        )
    check_archive(document_format, content)
