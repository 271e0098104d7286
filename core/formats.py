"""Which kinds of document can be read, by the ending of their name."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path, PurePath

from core.errors import UnsupportedMediaError


class DocumentFormat(StrEnum):
    MARKDOWN = "Markdown"
    TEXT = "plain text"
    HTML = "HTML"
    PDF = "PDF"
    DOCX = "DOCX"
    PPTX = "PPTX"
    XLSX = "XLSX"
    CSV = "CSV"
    JSON = "JSON"
    JSON_LINES = "JSON Lines"
    EPUB = "EPUB"
    EMAIL = "e-mail"
    CODE = "source code"


_LANGUAGES = {
    ".py": "python", ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".jsx": "jsx",
    ".ts": "typescript", ".tsx": "tsx", ".vue": "vue", ".css": "css", ".scss": "scss",
    ".java": "java", ".kt": "kotlin", ".scala": "scala", ".swift": "swift", ".go": "go", ".rs": "rust",
    ".c": "c", ".h": "c", ".cpp": "cpp", ".cc": "cpp", ".hpp": "cpp", ".cs": "csharp", ".dart": "dart",
    ".rb": "ruby", ".php": "php", ".pl": "perl", ".lua": "lua", ".r": "r", ".sql": "sql",
    ".sh": "bash", ".bash": "bash", ".ps1": "powershell", ".bat": "bat", ".proto": "protobuf",
    ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".ini": "ini", ".cfg": "ini", ".xml": "xml",
}  # fmt: skip
FORMATS = {
    ".md": DocumentFormat.MARKDOWN,
    ".markdown": DocumentFormat.MARKDOWN,
    ".txt": DocumentFormat.TEXT,
    ".text": DocumentFormat.TEXT,
    ".log": DocumentFormat.TEXT,
    ".rst": DocumentFormat.TEXT,
    ".tex": DocumentFormat.TEXT,
    ".org": DocumentFormat.TEXT,
    ".html": DocumentFormat.HTML,
    ".htm": DocumentFormat.HTML,
    ".xhtml": DocumentFormat.HTML,
    ".pdf": DocumentFormat.PDF,
    ".docx": DocumentFormat.DOCX,
    ".pptx": DocumentFormat.PPTX,
    ".xlsx": DocumentFormat.XLSX,
    ".xlsm": DocumentFormat.XLSX,
    ".csv": DocumentFormat.CSV,
    ".tsv": DocumentFormat.CSV,
    ".json": DocumentFormat.JSON,
    ".jsonl": DocumentFormat.JSON_LINES,
    ".ndjson": DocumentFormat.JSON_LINES,
    ".epub": DocumentFormat.EPUB,
    ".eml": DocumentFormat.EMAIL,
    **dict.fromkeys(_LANGUAGES, DocumentFormat.CODE),
}
# What people have and we cannot read: the format that their own program can save it as.
SAVE_AS = {
    **dict.fromkeys((".doc", ".docm", ".dot", ".dotx", ".wps", ".rtf", ".odt", ".pages"), "DOCX"),
    **dict.fromkeys((".xls", ".xlsb", ".xlt", ".xltx", ".et", ".ods", ".numbers"), "XLSX"),
    **dict.fromkeys((".ppt", ".pptm", ".pps", ".ppsx", ".pot", ".potx", ".dps", ".odp", ".key"), "PPTX"),
    **dict.fromkeys((".mhtml", ".mht", ".webarchive"), "HTML"),
    **dict.fromkeys((".mobi", ".azw", ".azw3"), "EPUB"),
    **dict.fromkeys((".msg",), "EML"),
    **dict.fromkeys((".caj", ".ofd", ".djvu", ".ps"), "PDF"),
}
PICTURES = (
    ".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".heic", ".heif", ".avif", ".jfif",
)  # fmt: skip


def format_of(file_name: str) -> DocumentFormat | None:
    """The format that the name promises; None when it has no ending and promises nothing.

    Raises UnsupportedMediaError saying what to do with the file, or naming the supported kinds.
    """
    ending = PurePath(file_name).suffix.lower()
    if not ending:
        return None
    if better := save_as(file_name):
        raise UnsupportedMediaError(
            f"A file ending in '{ending}' cannot be read: save it as {better} in the program it comes from, "
            f"and add that."
        )
    if ending in PICTURES:
        raise UnsupportedMediaError(
            f"A picture ('{ending}') cannot be read: let a program recognise its text (OCR), save that as a "
            f"PDF with text, and add it."
        )
    if ending not in FORMATS:
        supported = ", ".join(DocumentFormat)
        raise UnsupportedMediaError(f"A file ending in '{ending}' cannot be read; supported: {supported}.")
    return FORMATS[ending]


def save_as(file_name: str) -> str | None:
    """The format that its own program can save it as; None for what is read, and for what never can be."""
    return SAVE_AS.get(PurePath(file_name).suffix.lower())


def is_supported(file_name: str) -> bool:
    return PurePath(file_name).suffix.lower() in FORMATS


def language_of(file_name: str) -> str:
    """The language that a source file's ending stands for, as a Markdown fence names it; "" when unknown."""
    return _LANGUAGES.get(PurePath(file_name).suffix.lower(), "")


def supported_files(folder: Path) -> list[Path]:
    """Every file under the folder that can be read, sorted by path; hidden ones and links are left out."""
    return [path for path in visible_files(folder) if is_supported(path.name)]


def visible_files(folder: Path) -> list[Path]:
    """Of every kind, likewise."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
