"""Do the bytes fit what the file's name promises? Looked at before any parser touches them."""

from __future__ import annotations

from core.errors import UnsupportedMediaError
from core.formats import DocumentFormat
from services.adapters.readers.archive_check import ARCHIVES, check_archive, kind_of_archive, protected

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
    """Raises UnsupportedMediaError, or UnreadableDocumentError with the codes of archive_check."""
    if document_format is DocumentFormat.PDF:
        if b"%PDF-" not in content[:_PDF_HEADER_WITHIN]:
            raise UnsupportedMediaError(
                "The file should be a PDF, but its content is something else: check its ending."
            )
    elif document_format in ARCHIVES:
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
