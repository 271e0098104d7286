"""Decodes files that do not declare their encoding: UTF-8, UTF-16, GB18030, a mix of these, then a guess."""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import cache

from charset_normalizer import from_bytes

from core.errors import UnreadableDocumentError

# Is it text that somebody wrote, or bytes that happen to decode? For encodings in which most bytes decode.


_STRANGE_SHARE = 0.02  # characters newer than our tables, or a symbol font's bullets
_OTHERS_SHARE = 0.1  # letters of a third language, or Greek in formulas
_COMMON_HAN_SHARE = 0.65
# By the first word of Unicode names; scripts that one language uses together share a value.
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
# The most used Chinese characters: encoding, first and last lead byte.
_LEVELS = (("gb2312", 0xB0, 0xD7), ("big5", 0xA4, 0xC6), ("shift_jis", 0x88, 0x97))


def is_written(text: str) -> bool:
    """Whether somebody wrote this: assigned characters of, besides ASCII, one living script, with no more
    accented than plain letters if it is Latin, and mostly common characters if it is Chinese."""
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
    """No real text consists mostly of punctuation, marks and symbols."""
    signs = sum(count for char, count in foreign.items() if char not in letters)
    return 2 * signs <= total


@cache
def _script(char: str) -> str:
    return _SCRIPTS.get(unicodedata.name(char, "").partition(" ")[0], _RARE)


def _is_strange(char: str) -> bool:
    """Unassigned, private or invisible, except for joiners and direction marks."""
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
_SAMPLE_CHARS = 65_536
_COMMON_SHARE = 0.65  # measured: Big5 and Shift-JIS read as GB18030 reach 0.5, EUC-JP 0.57
_GOOD_PER_BAD = 20  # continuation bytes per invalid sequence, in UTF-8 that is merely damaged
# Codecs that are not charsets: they interpret escapes, or take quadratic time.
_NOT_CHARSETS = ("unicode_escape", "raw_unicode_escape", "punycode", "idna", "undefined", "mbcs", "oem")


def decode(content: bytes, declared: str | None = None) -> str:
    """`declared` is the document's own statement, used if the bytes fit it.

    Raises UnreadableDocumentError (`encoding`) when no encoding yields clean text.
    """
    if not content:
        return ""
    for bom, encoding in _BOMS:
        if content.startswith(bom):
            return _required(_strict(content, encoding))
    text = _utf8(content) or (_declared(content, declared) if declared else None)
    forms = (_utf16_without_bom, _mixed, _gb18030, _damaged_utf8, _utf16_everyday, _guess)
    return _required(text or next(filter(None, (form(content) for form in forms)), None))


def _utf8(content: bytes) -> str | None:
    """Nothing else looks like UTF-8 by chance, so stray controls are tolerated; NULs mean UTF-16."""
    try:
        return None if b"\0" in content else content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _declared(content: bytes, name: str) -> str | None:
    try:
        if codecs.lookup(name).name.replace("-", "_") in _NOT_CHARSETS:
            return None
    except (LookupError, ValueError):
        return None
    # Pages that declare gb2312 also use characters of its supersets.
    return _strict(content, "gb18030" if name.lower() in ("gb2312", "gbk", "gb_2312-80") else name)


def _strict(content: bytes, encoding: str) -> str | None:
    """The text, if every byte is valid and nothing in it is binary."""
    try:
        text = content.decode(encoding)
    except (LookupError, ValueError):
        return None
    return None if _CONTROLS.search(text) else text


def _required(text: str | None) -> str:
    if text is None:
        raise UnreadableDocumentError("The file's text encoding cannot be recognised.", code="encoding")
    return text


def _utf16_without_bom(content: bytes) -> str | None:
    """Line ends, spaces and ASCII put NULs in every second byte; binary files have them everywhere."""
    if len(content) % 2 or b"\0" not in content:
        return None
    evens, odds = content[::2].count(0), content[1::2].count(0)
    encodings = ("utf-16-be", "utf-16-le") if evens > odds else ("utf-16-le", "utf-16-be")
    texts = [_strict(content, encoding) for encoding in encodings]
    # A few Chinese characters (退, 一) have their NULs in the other byte.
    everyday = next((text for text in texts if text and _is_mostly_everyday(text) and is_written(text)), None)
    return everyday or (texts[0] if texts[0] and is_written(texts[0]) else None)


def _mixed(content: bytes) -> str | None:
    """Concatenated files: some lines are UTF-8, the rest GB18030."""
    if b"\0" in content:
        return None
    lines = content.split(b"\n")
    if all(line.isascii() or _utf8(line) is None for line in lines):
        return None
    texts: list[str] = []
    kinds: set[str] = set()
    for line in lines:
        text, kind = _line(line)
        if text is None:
            return None
        texts.append(text)
        kinds.add(kind)
    return "\n".join(texts) if {"utf-8", "gb18030"} <= kinds else None


def _line(line: bytes) -> tuple[str | None, str]:
    """A line's text and encoding. Short GB18030 can be valid UTF-8 by chance, with unusual characters."""
    if line.isascii():
        return line.decode("ascii"), "ascii"
    text = _utf8(line)
    if text is not None and _is_mostly_everyday(text):
        return text, "utf-8"
    gb18030 = _gb18030(line)
    return (text, "utf-8") if gb18030 is None and text is not None else (gb18030, "gb18030")


def _gb18030(content: bytes) -> str | None:
    """Almost any two-byte text decodes as GB18030; accept it only if it is mostly everyday characters."""
    text = _strict(content, "gb18030")
    return text if text is not None and _is_mostly_everyday(text) else None


def _is_mostly_everyday(text: str) -> bool:
    foreign = [char for char in text[:_SAMPLE_CHARS] if not char.isascii()]
    return sum(map(_is_everyday, foreign)) >= _COMMON_SHARE * len(foreign)


def _damaged_utf8(content: bytes) -> str | None:
    """UTF-8 cut in the middle of a character, or with bytes lost, recognised by its many valid characters."""
    if b"\0" in content:
        return None
    text = content.decode("utf-8", "replace")
    bad = text.count("\ufffd")
    good = len(content) - len(text)  # each non-ASCII character has one to three bytes beyond the first
    return text if good >= _GOOD_PER_BAD * bad else None


def _utf16_everyday(content: bytes) -> str | None:
    """Chinese UTF-16 without even a line end."""
    if len(content) % 2:
        return None
    texts = (_strict(content, encoding) for encoding in ("utf-16-le", "utf-16-be"))
    return next((text for text in texts if text and _is_mostly_everyday(text)), None)


@cache
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
