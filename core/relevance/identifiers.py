"""Part numbers, invoice numbers, error codes: what a question means exactly, and an embedding barely sees."""

from __future__ import annotations

import re

MOST_CODES = 16

_WORD = re.compile(r"[A-Za-z0-9]+(?:[-_./:][A-Za-z0-9]+)*")
_MANY_DIGITS = re.compile(r"\d{4}")
_YEAR = r"(?:1\d|20)\d\d"
_NO_CODE = re.compile(
    rf"{_YEAR}(?:[-/.]\d{{1,2}}){{0,2}}|\d{{1,2}}[-/.]\d{{1,2}}[-/.]{_YEAR}|{_YEAR}[-/]{_YEAR}|\d+(?:st|nd|rd|th|s)"
)
_LONGEST = 64


def identifiers(text: str) -> tuple[str, ...]:
    """Those of a text, in lower case, each once, in its order: words with four digits in a row that are no
    year or date, and words of letters with at least two digits that are no ordinal."""
    names: dict[str, None] = {}
    for match in _WORD.finditer(text):
        word = match.group().lower()
        if _is_identifier(word):
            names[word] = None
            if len(names) == MOST_CODES:
                break
    return tuple(names)


def shares(names: tuple[str, ...], texts: list[str]) -> list[float]:
    """Which share of the identifiers each text has, 0…1, as whole words."""
    if not names:
        return [0.0] * len(texts)
    patterns = [re.compile(rf"(?<![a-z0-9]){re.escape(code)}(?![a-z0-9])") for code in names]
    lowered = [text.lower() for text in texts]
    return [sum(bool(pattern.search(text)) for pattern in patterns) / len(names) for text in lowered]


def _is_identifier(word: str) -> bool:
    if len(word) > _LONGEST or _NO_CODE.fullmatch(word):
        return False
    digits = sum(char.isdigit() for char in word)
    mixed = digits >= 2 and any(char.isalpha() for char in word)
    return mixed or _MANY_DIGITS.search(word) is not None
