"""Which kinds of document can be read, by the ending of their name."""

from __future__ import annotations

from enum import StrEnum
from pathlib import PurePath

from core.errors import UnsupportedMediaError


class DocumentFormat(StrEnum):
    MARKDOWN = "Markdown"
    TEXT = "plain text"
    HTML = "HTML"
    PDF = "PDF"
    DOCX = "DOCX"


FORMATS = {
    ".md": DocumentFormat.MARKDOWN,
    ".markdown": DocumentFormat.MARKDOWN,
    ".txt": DocumentFormat.TEXT,
    ".text": DocumentFormat.TEXT,
    ".log": DocumentFormat.TEXT,
    ".csv": DocumentFormat.TEXT,
    ".html": DocumentFormat.HTML,
    ".htm": DocumentFormat.HTML,
    ".pdf": DocumentFormat.PDF,
    ".docx": DocumentFormat.DOCX,
}


def format_of(file_name: str) -> DocumentFormat | None:
    """The format that the name promises; None when it has no ending and promises nothing.

    Raises UnsupportedMediaError naming the supported endings.
    """
    ending = PurePath(file_name).suffix.lower()
    if not ending:
        return None
    if ending not in FORMATS:
        supported = ", ".join(FORMATS)
        raise UnsupportedMediaError(f"A file ending in '{ending}' cannot be read; supported: {supported}.")
    return FORMATS[ending]


def is_supported(file_name: str) -> bool:
    return PurePath(file_name).suffix.lower() in FORMATS
