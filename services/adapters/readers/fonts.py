"""The characters of a PDF's fonts, which pypdf knows less of than the documents that people have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from pypdf.generic import DictionaryObject
from pypdf.generic._font import Font

_MAX_ENTRIES = 1_000_000  # characters and widths of the cached fonts, about 150 MB


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
            font = read.__get__(None, Font)(resource)
            entries += len(font.character_map) + len(font.character_widths)
            if entries > _MAX_ENTRIES:
                fonts.clear()
                entries = len(font.character_map) + len(font.character_widths)
            fonts[id(resource)] = resource, _with_standard_characters(font, resource)
        return fonts[id(resource)][1]

    try:
        setattr(Font, "from_font_resource", staticmethod(read_once))  # noqa: B010 - mypy knows it as a method
        yield
    finally:
        setattr(Font, "from_font_resource", read)  # noqa: B010


def _with_standard_characters(font: Font, resource: DictionaryObject) -> Font:
    """Many Chinese, Japanese and Korean fonts do not map their glyphs to characters, since these are numbered
    as in one of Adobe's collections, which viewers know. pypdf takes the numbers for characters."""
    if font.character_map or resource.get("/Encoding") not in ("/Identity-H", "/Identity-V"):
        return font
    if characters := _characters(_collection(resource)):
        font.character_map = characters  # shared: pypdf only reads it
        font.space_char = next(code for code, char in characters.items() if char == " ")
        font.space_width = font.character_widths.get(font.space_char, font.space_width)
    return font


def _collection(resource: DictionaryObject) -> str:
    descendants: Any = resource.get("/DescendantFonts")
    with suppress(AttributeError, IndexError, KeyError, TypeError):  # a font as it must not be
        info = descendants.get_object()[0].get_object()["/CIDSystemInfo"].get_object()
        return f"{info['/Registry']}-{info['/Ordering']}"
    return ""


@cache
def _characters(collection: str) -> dict[str, str]:
    """The characters of a collection by the code that pypdf passes, a glyph's number as a character."""
    if collection not in ("Adobe-GB1", "Adobe-CNS1", "Adobe-Japan1", "Adobe-Korea1"):
        return {}
    from pdfminer.cmapdb import CMapDB  # takes 0.3 s with its table, and few documents need it

    return {chr(code): char for code, char in CMapDB.get_unicode_map(collection).cid2unichr.items()}
