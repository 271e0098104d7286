"""A passage that somebody copied, found again in the text it was copied from."""

from __future__ import annotations

import re
import unicodedata

SHORTEST = 2  # characters without space: one stands anywhere
_QUOTES = frozenset("\"'`´‘’‚‛“”„‟«»‹›「」『』﹁﹂﹃﹄")
_DASHES = frozenset("-\u2010\u2011\u2012\u2013\u2014\u2015\u2212")
_INVISIBLE = frozenset("\u200b\u200c\u200d\u2060\ufeff\u00ad")
_ELLIPSES = re.compile(r"^\.{2,}|\.{2,}$")


def find_verbatim(copied: str, text: str) -> str:
    """The text's own characters for `copied`; "" when it is not there.

    White space, quotation marks, dashes, letter case, full-width forms and an ellipsis at either end may
    differ: models change them as they copy.
    """
    wanted = _ELLIPSES.sub("", "".join(map(_fold, copied)))
    if len(wanted) < SHORTEST:
        return ""
    pieces = [_fold(char) for char in text]
    origin = [at for at, piece in enumerate(pieces) for _ in piece]
    found = "".join(pieces).find(wanted)
    if found < 0:
        return ""
    return _with_quotes(text, origin[found], origin[found + len(wanted) - 1] + 1, copied.strip())


def _with_quotes(text: str, start: int, end: int, copied: str) -> str:
    """The quotation marks at either end were folded away: those that were copied belong to it."""
    if copied[0] in _QUOTES and start > 0 and text[start - 1] in _QUOTES:
        start -= 1
    if copied[-1] in _QUOTES and end < len(text) and text[end] in _QUOTES:
        end += 1
    return text[start:end]


def _fold(char: str) -> str:
    if char.isspace() or char in _QUOTES or char in _INVISIBLE:
        return ""
    if char in _DASHES:
        return "-"
    if char.isascii():
        return char.lower()
    return "".join(unicodedata.normalize("NFKC", char).split()).casefold()
