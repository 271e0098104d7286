"""Do the bytes fit what the file's name promises? Looked at before any parser touches them."""

from __future__ import annotations

import stat
import zipfile
from io import BytesIO

from core.errors import UnreadableDocumentError, UnsupportedMediaError
from services.knowledge.formats import DocumentFormat

_PDF_HEADER_WITHIN = 1024  # readers accept junk before %PDF-
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED_OFFICE = "EncryptedPackage".encode("utf-16-le")
_BINARY_HEADERS = (
    b"PK\x03\x04", b"\x7fELF", b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"\x1f\x8b", b"7z\xbc\xaf", b"Rar!",
    b"%PDF-", _OLE,
)  # fmt: skip
_WORD_DOCUMENT = "word/document.xml"
_MAX_MEMBERS = 1_000
_MAX_EXPANDED_BYTES = 200_000_000
_MAX_RATIO = 100
_RATIO_COUNTS_FROM_BYTES = 1_000_000


def sniff(content: bytes) -> DocumentFormat:
    """What a file without an ending seems to be; anything that is not a PDF or an archive may be text."""
    if content.startswith(b"%PDF-"):
        return DocumentFormat.PDF
    return DocumentFormat.DOCX if content.startswith(b"PK\x03\x04") else DocumentFormat.TEXT


def check_content(document_format: DocumentFormat, content: bytes) -> None:
    """Raises UnsupportedMediaError, or UnreadableDocumentError (`encrypted`, `archive_limit`)."""
    if document_format is DocumentFormat.PDF:
        if b"%PDF-" not in content[:_PDF_HEADER_WITHIN]:
            raise UnsupportedMediaError("The file should be a PDF, but its content is something else.")
    elif document_format is DocumentFormat.DOCX:
        _check_docx(content)
    elif content.startswith(_BINARY_HEADERS) or (content.startswith(b"MZ") and b"\0" in content[:256]):
        raise UnsupportedMediaError(f"The file should be {document_format}, but its content is not text.")


def _check_docx(content: bytes) -> None:
    if content.startswith(_OLE) and _ENCRYPTED_OFFICE in content:
        raise UnreadableDocumentError("The document is protected by a password.", code="encrypted")
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        members = []
    _check_members(members)
    if _WORD_DOCUMENT not in {member.filename for member in members}:
        raise UnsupportedMediaError("The file should be a DOCX, but its content is something else.")


def _check_members(members: list[zipfile.ZipInfo]) -> None:
    expanded = sum(member.file_size for member in members)
    if (
        len(members) > _MAX_MEMBERS
        or expanded > _MAX_EXPANDED_BYTES
        or any(_is_bomb(member) or _leads_out(member) for member in members)
    ):
        raise UnreadableDocumentError("The document's archive is not safe to unpack.", code="archive_limit")


def _is_bomb(member: zipfile.ZipInfo) -> bool:
    return member.file_size > _RATIO_COUNTS_FROM_BYTES and member.file_size > _MAX_RATIO * max(
        1, member.compress_size
    )


def _leads_out(member: zipfile.ZipInfo) -> bool:
    """A name that leaves the archive, or a symbolic link."""
    parts = member.filename.replace("\\", "/").split("/")
    return ".." in parts or parts[0] == "" or stat.S_ISLNK(member.external_attr >> 16)
