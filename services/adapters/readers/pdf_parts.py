"""What a PDF has besides its pages' lines: damage, bookmarks, forms, and the characters of its fonts, which
pypdf knows less of than the documents that people have."""

from __future__ import annotations

import re
import unicodedata
from collections import ChainMap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import starmap
from typing import Any

import pypdf
from pypdf.errors import DependencyError, PyPdfError
from pypdf.generic import Destination, DictionaryObject, NullObject, StreamObject
from pypdf.generic._font import Font

from core.formats import words_of_name
from core.text import scrub
from services.adapters.readers.documents import LIB_ERRORS

FAULTS = (PyPdfError, DependencyError, *LIB_ERRORS)
"""What pypdf raises if a part of the file is damaged."""
_EMPTY_BYTES = 20  # of nothing or a blank, packed


def is_damaged(page: pypdf.PageObject) -> bool:
    """Whether a page that seems empty has content that cannot be unpacked: pypdf then takes it for empty."""
    contents: Any = page.get("/Contents", NullObject()).get_object()
    streams = [each.get_object() for each in (contents if isinstance(contents, list) else [contents])]
    packed = (each for each in streams if isinstance(each, StreamObject) and len(each._data) > _EMPTY_BYTES)
    return any(not each.get_data().strip() for each in packed)


# A PDF's bookmarks as headings, with page and level. Tools generate them, so errors in them are ignored.


MAX_TITLE_CHARS = 200
MAX_DEPTH = 6
WORD = re.compile(r"[^\W\d_]{2}|[\u3400-\u9fff]")
_FILE_NAME = re.compile(r"\.(?:docx?|pptx?|xlsx?|pdf|indd)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Bookmark:
    """`page` counts from 0; `level` from 1, the outermost."""

    page: int
    level: int
    title: str


def bookmarks(pdf: pypdf.PdfReader) -> list[Bookmark]:
    """The bookmarks in outline order, without titles that have no word (page numbers) or are file names."""
    try:
        return list(_flat(pdf, pdf.outline, 1))
    except FAULTS:
        return []  # a damaged outline must not cost the document


def _flat(pdf: pypdf.PdfReader, items: object, level: int) -> Iterator[Bookmark]:
    for item in items if isinstance(items, list) else ():
        if isinstance(item, list):
            yield from _flat(pdf, item, level + 1)
        elif isinstance(item, Destination):
            title = _words(str(item.title or ""))[:MAX_TITLE_CHARS]
            page = pdf.get_destination_page_number(item)
            if page is not None and WORD.search(title) and not _FILE_NAME.search(title):
                yield Bookmark(page, min(level, MAX_DEPTH), title)


# The fields of forms, whose values are not part of the page's text.


_HIDDEN, _PASSWORD, _RADIO, _PUSHED = 1 << 1, 1 << 13, 1 << 15, 1 << 16  # flags, the first of an annotation
_MAX_PARENTS = 20
_CHECKED, _UNCHECKED = "☑", "☐"
_INDEX = re.compile(r"\[\d+\]$")


def filled_fields(page: pypdf.PageObject) -> list[str]:
    """The page's fields as "label: value", check boxes as "☑ label"; none if nothing is filled in."""
    try:
        fields = [_field(each.get_object()) for each in page.annotations or ()]
    except FAULTS:
        return []  # a damaged form must not cost the page
    is_filled = any(value not in ("", _UNCHECKED) for _, value in fields)
    return [*dict.fromkeys(filter(None, starmap(_field_line, fields)))] if is_filled else []


def _field_line(label: str, value: str) -> str:
    if value in (_CHECKED, _UNCHECKED):
        return f"{value} {label}" if label else ""
    return f"{label.rstrip(':：')}: {value}" if label and value else value


def _field(widget: DictionaryObject) -> tuple[str, str]:
    """A field's label and value, which it may inherit; "" for none."""
    parents = [widget]
    while (parent := parents[-1].get("/Parent")) and len(parents) < _MAX_PARENTS:
        parents.append(parent.get_object())
    entries = ChainMap[str, Any](*parents)
    flags, kind = int(entries.get("/Ff", 0)), entries.get("/FT")
    label = _words(entries.get("/TU")) or words_of_name(_INDEX.sub("", str(entries.get("/T", ""))))
    if widget.get("/Subtype") != "/Widget" or int(widget.get("/F", 0)) & _HIDDEN or flags & _PASSWORD:
        return "", ""
    if kind == "/Btn":
        return label, "" if flags & _PUSHED else _button(widget, entries, is_radio=bool(flags & _RADIO))
    values = entries.get("/V") if kind in ("/Tx", "/Ch") else None
    options = {str(each[0]): each[1] for each in entries.get("/Opt") or () if isinstance(each, list)}
    chosen = values if isinstance(values, list) else [values]
    return label, ", ".join(filter(None, (_words(options.get(str(each), each)) for each in chosen)))


def _button(widget: DictionaryObject, entries: Mapping[str, Any], *, is_radio: bool) -> str:
    state = str(widget.get("/AS") or (not is_radio and entries.get("/V")) or "/Off").removeprefix("/")
    if is_radio:
        return "" if state == "Off" else words_of_name(state) or _CHECKED
    return _UNCHECKED if state == "Off" else _CHECKED


def _words(value: object) -> str:
    return " ".join(scrub(value).split()) if isinstance(value, str) else ""


# The characters of fonts.

_MAX_ENTRIES = 1_000_000  # characters and widths of the cached fonts, about 150 MB
_BLANK_WIDTH = 250  # of 1000, as in most fonts


@contextmanager
def cached_fonts() -> Iterator[None]:
    """Cache fonts by replacing their constructor while one document is read: pypdf parses a font's maps again
    on every page that uses it, most of the time of a long document, and offers no cache."""
    read = Font.__dict__["from_font_resource"]
    fonts: dict[int, tuple[DictionaryObject, Font]] = {}  # by id, which is only valid while the object lives
    entries = 0

    def read_once(resource: DictionaryObject) -> Font:
        nonlocal entries
        if id(resource) not in fonts:
            try:
                font = read.__get__(None, Font)(resource)
            except FAULTS:
                raise AttributeError from None  # on which pypdf takes the font's characters for unknown
            entries += len(font.character_map) + len(font.character_widths)
            if entries > _MAX_ENTRIES:
                fonts.clear()
                entries = len(font.character_map) + len(font.character_widths)
            fonts[id(resource)] = resource, _with_blank(_with_characters(font, resource))
        return fonts[id(resource)][1]

    try:
        setattr(Font, "from_font_resource", staticmethod(read_once))  # noqa: B010 - mypy knows it as a method
        yield
    finally:
        setattr(Font, "from_font_resource", read)  # noqa: B010


UNKNOWN = "\ufffd"
"""A glyph that may be any character."""


def _with_characters(font: Font, resource: DictionaryObject) -> Font:
    """Some fonts do not map their glyphs to characters, which pypdf then takes the glyphs' numbers for. Many
    Chinese, Japanese and Korean ones number them as one of Adobe's collections does, which viewers know. Of
    other embedded fonts they are unknown."""
    if font.character_map or resource.get("/Encoding") not in ("/Identity-H", "/Identity-V"):
        return font
    descendant = _descendant(resource)
    system = descendant.get("/CIDSystemInfo")
    if characters := _collection(str(system["/Ordering"]) if isinstance(system, dict) else ""):
        font.character_map = characters  # shared: pypdf only reads it
        font.space_char = next(code for code, char in characters.items() if char == " ")
        font.space_width = font.character_widths.get(font.space_char, font.space_width)
    elif font.font_descriptor.font_file is not None and _is_by_glyph(descendant):
        font.character_map = _unknown()
    return font


def _with_blank(font: Font) -> Font:
    """TeX's fonts contain no blank: words are just set apart. pypdf then takes the code of a blank for one,
    which is another, wider character, and overlooks most gaps."""
    if font.character_map.get(font.space_char, " ") != " ":
        font.space_width = min(font.space_width, _BLANK_WIDTH)
    return font


def _descendant(resource: DictionaryObject) -> Mapping[str, Any]:
    descendants: Any = resource.get("/DescendantFonts")
    with suppress(AttributeError, IndexError, TypeError):  # a font as it must not be
        descendants = descendants.get_object()[0].get_object()
    return descendants if isinstance(descendants, DictionaryObject) else {}


def _is_by_glyph(descendant: Mapping[str, Any]) -> bool:
    """Whether codes are the glyphs' numbers; otherwise they may be the characters' own."""
    return bool(descendant.get("/CIDToGIDMap", "/Identity") == "/Identity")


@cache
def _collection(name: str) -> dict[str, str]:
    """The characters of one of Adobe's collections by the code that pypdf passes, a glyph's number as a
    character; empty for another one."""
    if name not in ("GB1", "CNS1", "Japan1", "Korea1"):
        return {}
    from pdfminer.cmapdb import CMapDB  # takes 0.3 s with its table, and few documents need it

    return {chr(code): char for code, char in CMapDB.get_unicode_map(f"Adobe-{name}").cid2unichr.items()}


@cache
def _unknown() -> dict[str, str]:
    return dict.fromkeys(map(chr, range(1 << 16)), UNKNOWN)


# Some fonts map a character to the radical that looks the same, or two letters to their ligature, which
# nobody searches for. NFKC turns ligatures and Kangxi radicals into what people type. Below are the other
# radicals that stand for a whole character, and the dash that Chinese fonts use for "—":
_AS_TYPED = (
    {
        code: unicodedata.normalize("NFKC", chr(code))
        for code in (*range(0x2F00, 0x2FD6), *range(0xFB00, 0xFB07))
    }
    | dict.fromkeys((ord(UNKNOWN), *range(1, 9), *range(14, 32)), "")
    | dict.fromkeys((0xAD, 0x2010, 0x2011), "-")  # a soft hyphen that is drawn is a hyphen
    | str.maketrans(
        "⺁⺄⺈⺊⺍⺎⺐⺒⺓⺛⺜⺝⺞⺟⺠⺧⺩⺪⺬⺮⺶⺼⺽⻁⻄⻅⻆⻉⻋⻑⻓⻔⻗⻘⻙⻚⻛⻜⻝⻢⻣⻤⻥⻦⻧⻨⻩⻪⻫⻬⻭⻮⻯⻰⻱⻲⻳―",
        "厂乙刀卜小兀尢巳幺旡日月歺母民牛王疋示竹羊肉臼虎西见角贝车長长门雨青韦页风飞食马骨鬼鱼鸟卤麦黄黾斉齐歯齿竜龙龜亀龟—",
    )
)


def as_typed(text: str) -> str:
    return scrub(text).translate(_AS_TYPED)
