"""Is it text that somebody wrote, or bytes that happen to decode? For encodings in which most bytes do."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import cache

_SAMPLE_CHARS = 65_536
_STRANGE_SHARE = 0.02  # newer than our tables, or a symbol font's bullets
_OTHERS_SHARE = 0.1  # letters of a third language; formulas in Greek
_COMMON_HAN_SHARE = 0.65
# The first characters of Unicode names; languages that are written in several scripts have them together.
_SCRIPTS = {
    "CJK": "east", "HIRAGANA": "east", "KATAKANA": "east", "KATAKANA-HIRAGANA": "east", "HANGUL": "east",
    "BOPOMOFO": "east", "FULLWIDTH": "east", "HALFWIDTH": "east", "IDEOGRAPHIC": "east",
    "LATIN": "latin", "MODIFIER": "latin", "FEMININE": "latin", "MASCULINE": "latin", "MICRO": "latin",
    "CYRILLIC": "cyrillic", "GREEK": "greek", "ARABIC": "arabic", "HEBREW": "hebrew", "THAI": "thai",
    "DEVANAGARI": "devanagari", "BENGALI": "bengali", "TAMIL": "tamil", "TELUGU": "telugu",
    "GEORGIAN": "georgian", "ARMENIAN": "armenian", "LAO": "lao", "KHMER": "khmer", "MYANMAR": "myanmar",
    "TIBETAN": "tibetan", "MONGOLIAN": "mongolian",
}  # fmt: skip
_RARE = "rare"
# Of the most used characters: encoding, and first and last lead byte.
_LEVELS = (("gb2312", 0xB0, 0xD7), ("big5", 0xA4, 0xC6), ("shift_jis", 0x88, 0x97))


def is_written(text: str) -> bool:
    """Assigned characters, and besides ASCII one living script: with accents among plain letters if Latin, of
    common characters if Chinese."""
    counts = Counter(text[:_SAMPLE_CHARS])
    foreign = {char: count for char, count in counts.items() if not char.isascii()}
    total = sum(counts.values())
    strange = sum(count for char, count in foreign.items() if _is_strange(char))
    if strange > _STRANGE_SHARE * total:
        return False
    letters = {char: count for char, count in foreign.items() if char.isalpha()}
    han = {char: count for char, count in letters.items() if unicodedata.name(char, "").startswith("CJK")}
    common = sum(count for char, count in han.items() if _is_common_han(char))
    if common < _COMMON_HAN_SHARE * sum(han.values()):
        return False
    plain = sum(count for char, count in counts.items() if char.isascii() and char.isalpha())
    return _is_one_script(letters, plain) and _signs_are_fewer(foreign, letters, total)


def _is_one_script(letters: dict[str, int], plain: int) -> bool:
    scripts: Counter[str] = Counter()
    for char, count in letters.items():
        scripts[_script(char)] += count
    latin = scripts.pop("latin", 0)
    foreign = sum(scripts.values())
    rare = scripts.pop(_RARE, 0)
    others = foreign - max(scripts.values(), default=0)
    return latin <= plain and max(others, rare) <= _OTHERS_SHARE * (foreign + plain)


def _signs_are_fewer(foreign: dict[str, int], letters: dict[str, int], total: int) -> bool:
    """Than all else: no text is punctuation, marks and symbols only."""
    signs = sum(count for char, count in foreign.items() if char not in letters)
    return 2 * signs <= total


@cache
def _script(char: str) -> str:
    return _SCRIPTS.get(unicodedata.name(char, "").partition(" ")[0], _RARE)


def _is_strange(char: str) -> bool:
    """Not assigned, private, or invisible but for what joins and directs words."""
    kind = unicodedata.category(char)
    return kind in ("Cn", "Co", "Cs", "Cc") or (kind == "Cf" and not "\u200b" <= char <= "\u206f")


@cache
def _is_common_han(char: str) -> bool:
    return any(first <= lead <= last for lead, first, last in _leads(char))


def _leads(char: str) -> Iterator[tuple[int, int, int]]:
    for encoding, first, last in _LEVELS:
        raw = char.encode(encoding, "ignore")
        if raw:
            yield raw[0], first, last
