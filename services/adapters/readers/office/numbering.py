"""Word's automatic numbers: shown before a paragraph but not part of its text; "Article 2" refers to them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from docx.document import Document as DocxDocument
from docx.oxml.ns import nsmap, qn
from lxml.etree import _Element

_W = {"w": nsmap["w"]}
BULLET = "- "
_MAX_LABEL_CHARS = 60  # as it repeats for every paragraph, a small file could otherwise become huge
MAX_STYLE_STEPS = 10  # styles in a damaged file can be based on each other
_PLACEHOLDER = re.compile("%([1-9])")
_DIGITS = "零一二三四五六七八九"
_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"),
    (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip


def format_number(number_format: str, value: int) -> str:
    """A number in one of Word's formats; decimal if the format is unknown or does not go that far."""
    match number_format:
        case "none":
            return ""
        case "decimalZero":
            return f"{value:02}"
        case "lowerLetter" | "upperLetter" if 0 < value <= 26 * 5:
            letters = chr(ord("a") + (value - 1) % 26) * ((value - 1) // 26 + 1)
            return letters.upper() if number_format == "upperLetter" else letters
        case "lowerRoman" | "upperRoman" if 0 < value < 4000:
            return _roman(value).upper() if number_format == "upperRoman" else _roman(value)
        case "chineseCounting" | "chineseCountingThousand" if value < 10_000:
            return re.sub("^一十", "十", _chinese_number(value, "零"))
        case "japaneseCounting" if value < 10_000:
            return re.sub("一(?=[十百千])", "", _chinese_number(value, ""))
        case "ideographDigital":
            return "".join(_DIGITS[int(digit)] for digit in str(value)).replace("零", "〇")
        case _:
            return str(value)


def _roman(value: int) -> str:
    letters = ""
    for worth, letter in _ROMAN:
        letters += letter * (value // worth)
        value %= worth
    return letters


def _chinese_number(value: int, zero: str) -> str:
    """A Chinese number such as 一百二十三; `zero` stands for empty places in between."""
    digits = zip(f"{value:04}", "千百十 ", strict=True)
    text = "".join(_DIGITS[int(digit)] + unit if digit != "0" else "零" for digit, unit in digits)
    return re.sub("零+", zero, text.replace(" ", "").strip("零")) or _DIGITS[0]


@dataclass(frozen=True, slots=True)
class _List:
    """A `w:num`. `counts`, by level, belong to its definition: all its lists continue the same count."""

    levels: dict[int, _Element]
    counts: dict[int, int]
    starts: dict[int, int]  # for this list only, from its first paragraph of that level on
    begun: set[int]

    def label(self, level: int) -> str:
        """Count a paragraph and return what is shown before it, including the space."""
        definition = self.levels.get(level)
        if definition is None:
            return BULLET
        self._count(level)
        if self._format(level) == "bullet":
            return BULLET
        pattern = definition.find("w:lvlText", _W)
        text = pattern.get(qn("w:val"), "") if pattern is not None else ""
        is_legal = definition.find("w:isLgl", _W) is not None
        shown = _PLACEHOLDER.sub(
            lambda match: self._figure(int(match[1]) - 1, is_legal), text[:_MAX_LABEL_CHARS]
        )
        return f"{shown.strip()} ".lstrip()

    def _count(self, level: int) -> None:
        is_restart = level in self.starts and level not in self.begun
        self.begun.add(level)
        continues = level in self.counts and not is_restart
        self.counts[level] = self.counts[level] + 1 if continues else self._start(level)
        for deeper in [other for other in self.counts if other > level]:
            if level < number_of(self.levels.get(deeper, self.levels[level]), "w:lvlRestart", deeper):
                del self.counts[deeper]

    def _start(self, level: int) -> int:
        definition = self.levels.get(level)
        default = number_of(definition, "w:start", 0) if definition is not None else 1
        return self.starts.get(level, default)

    def _format(self, level: int) -> str:
        node = self.levels[level].find("w:numFmt", _W) if level in self.levels else None
        return node.get(qn("w:val"), "decimal") if node is not None else "decimal"

    def _figure(self, level: int, is_legal: bool) -> str:
        number_format = self._format(level)
        value = self.counts.get(level, self._start(level))
        return format_number("decimal" if is_legal and number_format != "none" else number_format, value)


class Numbering:
    """The document's lists. Call `label` once per paragraph, in document order, because it counts."""

    def __init__(self, document: DocxDocument, roots: Sequence[_Element]) -> None:
        """`roots` are those of the document's numbering parts."""
        self._nums = {node.get(qn("w:numId")): node for root in roots for node in root.iter(qn("w:num"))}
        self._definitions = {
            node.get(qn("w:abstractNumId")): node for root in roots for node in root.iter(qn("w:abstractNum"))
        }
        styles = [*document.styles.element.iter(qn("w:style"))]
        self._styles = {style.get(qn("w:styleId"), ""): style for style in styles}
        self._lists: dict[str, _List | None] = {}
        self._counts: dict[str, dict[int, int]] = {}

    def label(self, paragraph: _Element) -> str | None:
        """ "第一条 ", "1.1 ", "- ", or "" if nothing is shown; None for a paragraph that is in no list."""
        holders = [paragraph, *self._based_on(_value(paragraph, "w:pPr/w:pStyle"))]
        num_id = next(filter(None, (_value(holder, "w:pPr/w:numPr/w:numId") for holder in holders)), "")
        if not num_id:
            return None
        if num_id == "0":
            return ""
        if num_id not in self._lists:
            self._lists[num_id] = self._list(num_id)
        numbered = self._lists[num_id]
        return numbered.label(_level(holders, numbered)) if numbered else BULLET

    def _based_on(self, style_id: str) -> Iterator[_Element]:
        for _ in range(MAX_STYLE_STEPS):
            style = self._styles.get(style_id)
            if style is None:
                return
            yield style
            style_id = _value(style, "w:basedOn")

    def _list(self, num_id: str) -> _List | None:
        num = self._nums.get(num_id)
        abstract_id = _value(num, "w:abstractNumId") if num is not None else ""
        definition = self._definitions.get(abstract_id)
        if num is None or definition is None:
            return None
        linked = self._styles.get(_value(definition, "w:numStyleLink"))
        if linked is not None:
            num_of_style = self._nums.get(_value(linked, "w:pPr/w:numPr/w:numId"))
            abstract_id = _value(num_of_style, "w:abstractNumId") if num_of_style is not None else abstract_id
            definition = self._definitions.get(abstract_id, definition)
        overrides = num.findall("w:lvlOverride", _W)
        levels = {_ilvl(node): node for node in definition.findall("w:lvl", _W)}
        levels |= {_ilvl(node): node for each in overrides for node in each.findall("w:lvl", _W)}
        starts = {_ilvl(node): number_of(node, "w:startOverride", -1) for node in overrides}
        starts = {level: start for level, start in starts.items() if start >= 0}
        return _List(levels, self._counts.setdefault(abstract_id, {}), starts, set())


def _level(holders: list[_Element], numbered: _List) -> int:
    """The paragraph's own level, else the one linked to its style, else the style's."""
    if own := _value(holders[0], "w:pPr/w:numPr/w:ilvl"):
        return int(own) if own in "012345678" else 0
    linked = {_value(node, "w:pStyle"): level for level, node in numbered.levels.items()}
    for style in holders[1:]:
        level = linked.get(style.get(qn("w:styleId"), "-"))
        if level is not None:
            return level
    return next((number_of(style, "w:pPr/w:numPr/w:ilvl", 0) for style in holders[1:]
                 if _value(style, "w:pPr/w:numPr/w:ilvl")), 0)  # fmt: skip


def _value(element: _Element, path: str) -> str:
    node = element.find(path, _W)
    return node.get(qn("w:val"), "") if node is not None else ""


def _ilvl(element: _Element) -> int:
    value = element.get(qn("w:ilvl"), "")
    return int(value) if value and value in "012345678" else 0


def number_of(element: _Element, path: str, default: int) -> int:
    """The `w:val` of the first element at this path (w: names), or the default."""
    node = element.find(path, _W)
    value = node.get(qn("w:val"), "") if node is not None else ""
    return int(value[:9]) if value.isascii() and value.isdigit() else default
