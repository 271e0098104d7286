"""Text hygiene: what enters from outside is brought to one form before it is stored or streamed."""

from __future__ import annotations

import re
import unicodedata

_LINE_BREAKS = re.compile("\r\n|[\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_MANY_NEWLINES = re.compile(r"\n{3,}")
_INVISIBLE = frozenset("\u200b\u200c\u200d\u2060\ufeff\u00ad\u180e")


def scrub(text: str) -> str:
    """Every Unicode line break becomes LF, NUL is dropped, a lone surrogate becomes U+FFFD (PROTOCOL 2)."""
    if text.isascii() and text.isprintable():
        return text
    text = _LINE_BREAKS.sub("\n", text.replace("\0", ""))
    return _SURROGATES.sub("\ufffd", text)


def preprocess_question(text: str) -> str:
    """Scrubbed, stripped, at most two newlines in a row; invisible characters alone count as empty."""
    text = _MANY_NEWLINES.sub("\n\n", scrub(text)).strip()
    if all(char in _INVISIBLE or char.isspace() for char in text):
        return ""
    return text


def is_mostly_chinese(text: str) -> bool:
    """True when a person reading Chinese wrote this: a fifth of its letters are CJK ideographs."""
    letters = [char for char in text if char.isalpha()]
    cjk = sum("\u3400" <= char <= "\u9fff" for char in letters)
    return cjk * 5 >= len(letters) > 0


def fold_width(text: str) -> str:
    """NFKC: full-width letters and digits become the ordinary ones."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)
