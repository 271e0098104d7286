"""Supported document formats, by file extension; and what the rest of a file's name tells us."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache
from importlib.util import find_spec
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
    PICTURE = "image"


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
    ".mhtml": DocumentFormat.HTML,
    ".mht": DocumentFormat.HTML,
    ".pdf": DocumentFormat.PDF,
    **dict.fromkeys((".docx", ".docm", ".dotx", ".dotm"), DocumentFormat.DOCX),
    **dict.fromkeys((".pptx", ".pptm", ".ppsx", ".ppsm", ".potx", ".potm"), DocumentFormat.PPTX),
    **dict.fromkeys((".xlsx", ".xlsm", ".xltx", ".xltm"), DocumentFormat.XLSX),
    ".csv": DocumentFormat.CSV,
    ".tsv": DocumentFormat.CSV,
    ".json": DocumentFormat.JSON,
    ".jsonl": DocumentFormat.JSON_LINES,
    ".ndjson": DocumentFormat.JSON_LINES,
    ".epub": DocumentFormat.EPUB,
    ".eml": DocumentFormat.EMAIL,
    **dict.fromkeys(_LANGUAGES, DocumentFormat.CODE),
}
# Formats that people have and we cannot read → the format that the original program can save them as.
_SAVE_AS = {
    "DOCX": "doc dot wps wpt rtf odt ott fodt pages hwp hwpx wpd",
    "XLSX": "xls xlsb xlt et ett ods ots fods numbers dif dbf mdb accdb",
    "PPTX": "ppt pps pot dps dpt odp otp fodp key",
    "HTML": "webarchive",
    "EPUB": "mobi azw azw3 fb2",
    "EML": "msg oft mbox pst",
    "PDF": "caj ofd djvu ps xps oxps one pub vsd vsdx mpp xmind",
}
SAVE_AS = {f".{ending}": better for better, endings in _SAVE_AS.items() for ending in endings.split()}
PICTURES = (
    ".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".heic", ".heif", ".avif", ".jfif",
)  # fmt: skip
# Those that one page is photographed or scanned as. Folders hold other pictures, too, so they leave them out.
RECOGNISED = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
PACKED = (".zip", ".rar", ".7z", ".tar", ".gz", ".tgz", ".bz2", ".xz")


# Increase a format's number when its reader reads so much better that stored documents should be read again.
_READERS = dict.fromkeys(DocumentFormat, 1)


@cache
def recognises_text() -> bool:
    """Whether text recognition is installed (the extra `ocr`), so that pictures and scans can be read."""
    return all(map(find_spec, ("rapidocr", "pypdfium2")))


def readable_endings() -> list[str]:
    return sorted([*FORMATS, *(RECOGNISED if recognises_text() else ())])


def format_of(file_name: str) -> DocumentFormat | None:
    """Return the format that the extension stands for; None without an extension.

    Raises UnsupportedMediaError saying what to do with the file, or naming the supported formats.
    """
    ending = PurePath(file_name).suffix.lower()
    if not ending:
        return None
    if better := save_as(file_name):
        raise UnsupportedMediaError(
            f"A file ending in '{ending}' cannot be read: save it as {better} in the program it comes from, "
            f"and add that."
        )
    if ending in RECOGNISED and recognises_text():
        return DocumentFormat.PICTURE
    if ending in PICTURES and recognises_text():
        raise UnsupportedMediaError(f"Images ('{ending}') cannot be read: save it as JPG, and add that.")
    if ending in PICTURES:
        raise UnsupportedMediaError(
            f"Images ('{ending}') cannot be read: run text recognition (OCR), save the result as a PDF "
            "with text, and add that."
        )
    if ending in PACKED:
        raise UnsupportedMediaError(
            f"An archive ('{ending}') cannot be read: unpack it, and add the files that are in it."
        )
    if ending not in FORMATS:
        supported = ", ".join(
            kind for kind in DocumentFormat if kind in FORMATS.values() or recognises_text()
        )
        raise UnsupportedMediaError(f"A file ending in '{ending}' cannot be read; supported: {supported}.")
    return FORMATS[ending]


def reading_of(file_name: str) -> int:
    """Return the number of the reading that the file would get now. It grows with every better reader; a
    PDF's is odd with text recognition. Documents of releases that recorded none have 0."""
    kind = FORMATS.get(PurePath(file_name).suffix.lower(), DocumentFormat.TEXT)
    return 2 * _READERS[kind] + (kind is DocumentFormat.PDF and recognises_text())


def save_as(file_name: str) -> str | None:
    """Return the format to save the file as; None if it can be read, or if no format helps."""
    return SAVE_AS.get(PurePath(file_name).suffix.lower())


def is_supported(file_name: str) -> bool:
    return PurePath(file_name).suffix.lower() in FORMATS


def language_of(file_name: str) -> str:
    """Return the language of a source file, by extension, as a Markdown fence names it; "" if unknown."""
    return _LANGUAGES.get(PurePath(file_name).suffix.lower(), "")


def supported_files(folder: Path) -> list[Path]:
    """List all readable files under the folder, sorted by path; hidden files and links are skipped."""
    return [path for path in visible_files(folder) if is_supported(path.name)]


def visible_files(folder: Path) -> list[Path]:
    """The same for files of every kind."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


# Default names that programs and people give to files; month names, since names may be dates.
_SEPARATORS = re.compile(r"[\s_\-–—.,;+~&@#()\[\]{}（）【】《》「」、，·]+")
_UNINFORMATIVE = re.compile(
    "scan(?:s|ned|ner)?|imgs?|images?|pic(?:ture)?s?|photos?|screenshots?|screen|shot|camera|video|audio|recording"
    "|doc(?:ument)?s?|files?|untitled|unnamed|unknown|noname|copy|new|downloads?|attachments?|uploads?"
    "|te?mp|temporary|tests?|text|notes?|final|draft|version|pages?|part|export|output|data|print|printout"
    "|readme|index|main|utils|config|init|default|book|work(?:book|sheet)|sheet|table|presentation|slides?"
    "|report|item|pasted?|whatsapp|wechat|telegram|microsoft|word|excel|powerpoint|adobe|acrobat|unicode"
    "|the|and|for|from|with|jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    "|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?",
    re.IGNORECASE,
)
_UNINFORMATIVE_ZH = re.compile(
    "新建|新增|文本|文字|文档|文檔|文件|档案|檔案|扫描件?|掃描|无标题|無標題|未命名|未标题|无名|副本|复件|拷贝|截图|截圖|截屏"
    "|屏幕|图片|圖片|图像|照片|相片|微信|最终|最終|定稿|草稿|终稿|初稿|修改|修订|版本?|附件|下载|下載|导出|导入|演示文稿|工作簿"
    "|工作表|表格|资料|打印|页面|[年月日号第页份个的一二三四五六七八九十]"
)
_IDENTIFIER = re.compile(r"[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}|[0-9a-f]{16,}", re.IGNORECASE)
_VOWEL = re.compile(r"[aeiouy]|[^\x00-\x7f]", re.IGNORECASE)  # every word has one; DSC and PXL do not
_IDEOGRAPH = re.compile("[\u3400-\u9fff\u3040-\u30ff\uac00-\ud7af]")
_MIN_LETTERS, _MIN_IDEOGRAPHS = 3, 2


def words_of_name(stem: str) -> str:
    """Turn a file's name without its extension into the words of a title; "" if it says nothing about the
    content: scan0001, 新建文档 (2), Untitled, a date, a hash."""
    words = [word for word in _SEPARATORS.split(stem) if word]
    informative = [word for word in _SEPARATORS.split(_IDENTIFIER.sub(" ", stem)) if _informs(word)]
    return " ".join(words) if informative else ""


def _informs(word: str) -> bool:
    ideographs = _IDEOGRAPH.findall(_UNINFORMATIVE_ZH.sub("", word))
    if ideographs:
        return len(ideographs) >= _MIN_IDEOGRAPHS
    named = word.isalpha() and len(word) >= _MIN_LETTERS and not _IDEOGRAPH.search(word)
    return named and _VOWEL.search(word) is not None and not _UNINFORMATIVE.fullmatch(word)
