"""Text hygiene: what enters from outside is brought to one form before it is stored or streamed."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

Language = Literal["zh", "en"]

_LINE_BREAKS = re.compile("\r\n|[\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_MANY_NEWLINES = re.compile(r"\n{3,}")
_IDEOGRAPHS = re.compile("[\u3400-\u9fff]+")
_LATIN_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_'.-]*")
HELD_SHARE = 0.3  # ideographs for each Latin word
_INVISIBLE = frozenset("\u200b\u200c\u200d\u2060\ufeff\u00ad\u180e")


def scrub(text: str) -> str:
    """Every Unicode line break becomes LF, NUL is dropped, a lone surrogate becomes U+FFFD."""
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
    """True when a person reading Chinese wrote this: it has more CJK ideographs than Latin words.

    Words, not letters: a question about RERANK_SCORE_THRESHOLD in Chinese is a Chinese question.
    """
    return _has_more_ideographs(text, 1.0)


def holds_chinese(text: str) -> bool:
    """True when a text of a document is to be read as Chinese: it has ideographs, and not a few.

    Less than a question needs: a table of codes or a block of commands in a Chinese document has more Latin
    words than ideographs, and a text in English has next to none.
    """
    return _has_more_ideographs(text, HELD_SHARE)


def _has_more_ideographs(text: str, for_each_word: float) -> bool:
    ideographs = 0 if text.isascii() else sum(map(len, _IDEOGRAPHS.findall(text)))
    return ideographs > 0 and ideographs > for_each_word * len(_LATIN_WORD.findall(text))


def fold_width(text: str) -> str:
    """NFKC: full-width letters and digits become the ordinary ones."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def alike(text: str) -> str:
    """What texts that differ in case and width alone have in common."""
    return fold_width(fold_width(text).casefold())


class TextScrubber:
    """`scrub` for text that comes in pieces: a CRLF or a surrogate pair may be cut between two of them."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """The scrubbed text so far decided; at most one character is held back."""
        if not self._held and piece.isprintable():  # no line break, NUL or surrogate is
            return piece
        text = self._held + piece
        self._held = ""
        if text and (text[-1] == "\r" or "\ud800" <= text[-1] <= "\udbff"):
            text, self._held = text[:-1], text[-1]
        return scrub(_join_surrogates(text))

    def flush(self) -> str:
        """What was held back, at the end."""
        text, self._held = self._held, ""
        return scrub(text)


def _join_surrogates(text: str) -> str:
    if not _SURROGATES.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
