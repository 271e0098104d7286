"""Bytes → text for files that do not say their encoding: UTF-8, UTF-16, GB18030, then a guess."""

from __future__ import annotations

import codecs
import re

from charset_normalizer import from_bytes

from core.errors import UnreadableDocumentError

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x7f\ufffd\ufffe\uffff]")
_GUESSES = ["big5", "shift_jis", "euc_jp", "euc_kr", "cp1252", "cp1251", "iso8859_2"]
_SAMPLE_BYTES = 65_536
_COMMON_SHARE = 0.9


def decode(content: bytes, declared: str | None = None) -> str:
    """`declared` is what the document itself says; it is believed where it fits.

    Raises UnreadableDocumentError (`encoding`) when no encoding gives clean text.
    """
    for bom, encoding in _BOMS:
        if content.startswith(bom):
            return _required(_strict(content, encoding))
    text = _utf8(content) or (_declared(content, declared) if declared else None)
    return _required(text or _utf16_without_bom(content) or _gb18030(content) or _guess(content))


def _utf8(content: bytes) -> str | None:
    """Nothing else looks like UTF-8 by chance, so stray controls are forgiven; NULs are UTF-16's."""
    try:
        return None if b"\0" in content else content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _declared(content: bytes, name: str) -> str | None:
    # Pages that declare gb2312 use the characters of its supersets.
    return _strict(content, "gb18030" if name.lower() in ("gb2312", "gbk", "gb_2312-80") else name)


def _strict(content: bytes, encoding: str) -> str | None:
    """The text if every byte fits and nothing in it is binary."""
    try:
        text = content.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        return None
    return None if _CONTROLS.search(text) else text


def _required(text: str | None) -> str:
    if text is None:
        raise UnreadableDocumentError("The file's text encoding cannot be recognised.", code="encoding")
    return text


def _utf16_without_bom(content: bytes) -> str | None:
    """Line ends, spaces and ASCII leave NULs in every second byte; binary files leave them everywhere."""
    if len(content) % 2 or b"\0" not in content:
        return None
    evens, odds = content[::2].count(0), content[1::2].count(0)
    return _strict(content, "utf-16-be" if evens > odds else "utf-16-le")


def _gb18030(content: bytes) -> str | None:
    """Almost any two-byte text decodes as GB18030; it is believed when the characters are everyday ones."""
    text = _strict(content, "gb18030")
    if text is None:
        return None
    foreign = [char for char in text[:_SAMPLE_BYTES] if not char.isascii()]
    everyday = sum(_is_everyday(char) for char in foreign)
    return text if everyday >= _COMMON_SHARE * len(foreign) else None


def _is_everyday(char: str) -> bool:
    """Punctuation, or one of the 3,755 level-1 characters of GB 2312 (rows 16 to 55)."""
    try:
        row = char.encode("gb2312")[0]
    except UnicodeEncodeError:
        return False
    return row <= 0xA3 or 0xB0 <= row <= 0xD7


def _guess(content: bytes) -> str | None:
    best = from_bytes(content[:_SAMPLE_BYTES], cp_isolation=_GUESSES).best()
    return _strict(content, best.encoding) if best else None
