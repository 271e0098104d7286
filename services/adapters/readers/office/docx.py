"""DOCX: sections by heading style (English and Chinese names), tables as Markdown, in document order.

Read as well: automatic numbers as Word shows them, text boxes, content controls, notes (after the paragraph
that refers to them), and what page headers and footers say, once, at the end. Left out: tracked deletions,
comments, tables of contents.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import cast

import docx
from docx.document import Document as DocxDocument
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.exceptions import OpcError
from docx.opc.part import Part
from docx.oxml.ns import nsmap, qn
from docx.oxml.parser import parse_xml
from docx.oxml.text.paragraph import CT_P
from docx.text.paragraph import Paragraph
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from lxml.etree import XMLSyntaxError, _Element

from core.errors import UnreadableDocumentError
from services.adapters.readers.outline import Outline, spanned_table

# The words of Word's XML: what a reader of the page sees, tracked insertions made and deletions left out.


_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_MATHS = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
PARAGRAPH, TABLE, ROW, CELL = qn("w:p"), qn("w:tbl"), qn("w:tr"), qn("w:tc")
TEXT_BOX = qn("w:txbxContent")
_WORDS = (qn("w:t"), f"{_MATHS}t")
_SYMBOL, _CHECK_BOX = qn("w:sym"), qn("w:checkBox")
# What the fonts of symbols show in place of a character: what is checked or not says something.
_SYMBOLS = {
    "wingdings": {
        0x6C: "●", 0x6E: "■", 0x6F: "☐", 0x71: "☐", 0x72: "☐", 0x9E: "•", 0x9F: "•", 0xA1: "○", 0xA7: "▪",
        0xA8: "☐", 0xD8: "➢", 0xDF: "←", 0xE0: "→", 0xE1: "↑", 0xE2: "↓", 0xE7: "←", 0xE8: "→", 0xE9: "↑",
        0xEA: "↓", 0xEF: "←", 0xF0: "→", 0xF1: "↑", 0xF2: "↓", 0xF3: "↔", 0xFB: "✗", 0xFC: "✓", 0xFD: "☒",
        0xFE: "☑",
    },
    "wingdings 2": {0x4F: "✗", 0x50: "✓", 0x51: "☒", 0x52: "☑", 0x53: "☒", 0x54: "☒", 0xA3: "☐"},
    "symbol": {
        0xA3: "≤", 0xAB: "↔", 0xAC: "←", 0xAD: "↑", 0xAE: "→", 0xAF: "↓", 0xB0: "°", 0xB1: "±", 0xB3: "≥",
        0xB4: "×", 0xB7: "•", 0xD6: "√",
    },
}  # fmt: skip
_BREAKS = {qn("w:tab"): "\t", qn("w:br"): "\n", qn("w:cr"): "\n", qn("w:noBreakHyphen"): "-"}
# Deleted or moved away, said elsewhere, said twice (the fallback of a newer form), or not text at all.
_UNREAD = frozenset(
    (qn("w:del"), qn("w:moveFrom"), qn("w:rPr"), qn("w:pPr"), qn("w:rt"), qn("w:sdtPr"), qn("w:tblPr"),
     f"{_MC}Fallback", TEXT_BOX)
)  # fmt: skip
_TEXT_WRAPPERS = frozenset(
    (qn("w:sdt"), qn("w:sdtContent"), qn("w:ins"), qn("w:moveTo"), qn("w:customXml"), qn("w:smartTag"))
)
WORD = nsmap["w"]


def within(element: _Element, *, boxes: bool = False) -> Iterator[_Element]:
    """What is inside and read, in document order; with or without text boxes. Depth costs no stack."""
    pending = [*reversed(element)]
    while pending:
        child = pending.pop()
        if child.tag in _UNREAD and not (boxes and child.tag == TEXT_BOX):
            continue
        yield child
        pending.extend(reversed(child))


def inner_content(parent: _Element) -> Iterator[_Element]:
    """Paragraphs and tables, also those in content controls and insertions."""
    pending = [*reversed(parent)]
    while pending:
        child = pending.pop()
        if child.tag in (PARAGRAPH, TABLE):
            yield child
        elif child.tag in _TEXT_WRAPPERS:
            pending.extend(reversed(child))


def text_of(paragraph: _Element) -> str:
    """Without its text boxes."""
    words: list[str] = []
    for element in within(paragraph):
        if element.tag in _WORDS:
            words.append(element.text or "")
        elif element.tag in _BREAKS:
            words.append(_BREAKS[element.tag])
        elif element.tag == _SYMBOL:
            words.append(_symbol(element))
        elif element.tag == _CHECK_BOX:
            words.append("☑" if _is_checked(element) else "☐")
    return "".join(words).strip()


def _symbol(element: _Element) -> str:
    """The character that a `w:sym` shows; "" for a sign of a font of symbols that has none here."""
    font, char = element.get(qn("w:font"), "").lower(), element.get(qn("w:char"), "")
    code = int(char, 16) if re.fullmatch("[0-9A-Fa-f]{1,4}", char) else 0
    if font in _SYMBOLS:
        return _SYMBOLS[font].get(code & 0xFF, "")
    return chr(code) if chr(code).isprintable() else ""


def _is_checked(box: _Element) -> bool:
    """Of a form's check box: as it was filled in, else as it was at first."""
    for tag in ("w:checked", "w:default"):
        if (state := box.find(tag, {"w": WORD})) is not None:
            return state.get(qn("w:val"), "1").lower() in ("1", "true", "on")
    return False


def text_boxes(paragraph: _Element) -> Iterator[_Element]:
    """Those in it that are not inside another one."""
    pending = [*reversed(paragraph)]
    while pending:
        child = pending.pop()
        if child.tag == TEXT_BOX:
            yield child
        elif child.tag not in _UNREAD:
            pending.extend(reversed(child))


def references(paragraph: _Element, kind: str) -> list[str]:
    """The ids of the notes of this kind (footnote, endnote) that the paragraph refers to."""
    tag = qn(f"w:{kind}Reference")
    return [element.get(qn("w:id"), "") for element in within(paragraph) if element.tag == tag]


def cell_text(cell: _Element, numbering: Numbering) -> str:
    """Its paragraphs, and those of tables and boxes in it, as one line, with their numbers. A table in it
    reads "Name, Phone; Wu, 8101"."""
    words, joint, is_first_row, is_first_cell = "", " ", False, False
    for element in within(cell, boxes=True):
        if element.tag == TABLE:
            joint, is_first_row = " ", True
        elif element.tag == ROW:
            joint, is_first_row, is_first_cell = " " if is_first_row else "; ", False, True
        elif element.tag == CELL:
            joint, is_first_cell = joint if is_first_cell or joint == "; " else ", ", False
        elif element.tag == PARAGRAPH:
            label = (numbering.label(element) or "").removeprefix(_BULLET)
            if text := " ".join(f"{label}{text_of(element)}".split()):
                words, joint = f"{words}{joint}{text}", " "
    return words.strip()


def number_of(element: _Element, path: str, default: int) -> int:
    """The `w:val` of the first element at this path (w: names); the default when there is none."""
    node = element.find(path, {"w": WORD})
    value = node.get(qn("w:val"), "") if node is not None else ""
    return int(value[:9]) if value.isascii() and value.isdigit() else default


# Automatic numbers: shown before a paragraph, but no part of its text; "Article 2" elsewhere refers to them.


_BULLET = "- "
_MAX_LABEL_CHARS = 60  # repeated for every paragraph: a small file must not become a huge one
_MAX_STYLE_STEPS = 10  # a damaged file's styles can be based on each other
_PLACEHOLDER = re.compile("%([1-9])")
_DIGITS = "零一二三四五六七八九"
_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"),
    (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip


def figure_in(number_format: str, value: int) -> str:
    """A number in one of Word's formats; decimal where the format is another or does not reach that far."""
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
            return re.sub("^一十", "十", _counted(value, "零"))
        case "japaneseCounting" if value < 10_000:
            return re.sub("一(?=[十百千])", "", _counted(value, ""))
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


def _counted(value: int, zero: str) -> str:
    """一百二十三; `zero` stands for the places between that are empty."""
    digits = zip(f"{value:04}", "千百十 ", strict=True)
    text = "".join(_DIGITS[int(digit)] + unit if digit != "0" else "零" for digit, unit in digits)
    return re.sub("零+", zero, text.replace(" ", "").strip("零")) or _DIGITS[0]


@dataclass(frozen=True, slots=True)
class _List:
    """A `w:num`. `counts` by level belong to its definition: all lists of that one go on counting."""

    levels: dict[int, _Element]
    counts: dict[int, int]
    starts: dict[int, int]  # of this list alone, from its first paragraph of that level on
    begun: set[int]

    def label(self, level: int) -> str:
        """Counts a paragraph; what is shown before it, the space included."""
        definition = self.levels.get(level)
        if definition is None:
            return _BULLET
        self._count(level)
        if self._format(level) == "bullet":
            return _BULLET
        pattern = definition.find("w:lvlText", {"w": WORD})
        text = pattern.get(qn("w:val"), "") if pattern is not None else ""
        is_legal = definition.find("w:isLgl", {"w": WORD}) is not None
        shown = _PLACEHOLDER.sub(
            lambda match: self._figure(int(match[1]) - 1, is_legal), text[:_MAX_LABEL_CHARS]
        )
        return f"{shown.strip()} ".lstrip()

    def _count(self, level: int) -> None:
        is_restart = level in self.starts and level not in self.begun
        self.begun.add(level)
        going_on = level in self.counts and not is_restart
        self.counts[level] = self.counts[level] + 1 if going_on else self._start(level)
        for deeper in [other for other in self.counts if other > level]:
            if level < number_of(self.levels.get(deeper, self.levels[level]), "w:lvlRestart", deeper):
                del self.counts[deeper]

    def _start(self, level: int) -> int:
        definition = self.levels.get(level)
        default = number_of(definition, "w:start", 0) if definition is not None else 1
        return self.starts.get(level, default)

    def _format(self, level: int) -> str:
        node = self.levels[level].find("w:numFmt", {"w": WORD}) if level in self.levels else None
        return node.get(qn("w:val"), "decimal") if node is not None else "decimal"

    def _figure(self, level: int, is_legal: bool) -> str:
        number_format = self._format(level)
        value = self.counts.get(level, self._start(level))
        return figure_in("decimal" if is_legal and number_format != "none" else number_format, value)


class Numbering:
    """The document's lists. Ask for each paragraph once, in document order: asking counts it."""

    def __init__(self, document: DocxDocument) -> None:
        parts = _related(document, [RELATIONSHIP_TYPE.NUMBERING])
        roots = [parse_xml(part.blob) for part in parts]
        self._nums = {node.get(qn("w:numId")): node for root in roots for node in root.iter(qn("w:num"))}
        self._definitions = {
            node.get(qn("w:abstractNumId")): node for root in roots for node in root.iter(qn("w:abstractNum"))
        }
        styles = [*document.styles.element.iter(qn("w:style"))]
        self._styles = {style.get(qn("w:styleId"), ""): style for style in styles}
        self._lists: dict[str, _List | None] = {}
        self._counts: dict[str, dict[int, int]] = {}

    def label(self, paragraph: _Element) -> str | None:
        """ "第一条 ", "1.1 ", "- ", or "" where nothing is shown; None for a paragraph in no list."""
        holders = [paragraph, *self._based_on(_value(paragraph, "w:pPr/w:pStyle"))]
        num_id = next(filter(None, (_value(holder, "w:pPr/w:numPr/w:numId") for holder in holders)), "")
        if not num_id or _is_deleted(paragraph):
            return None
        if num_id == "0":
            return ""
        if num_id not in self._lists:
            self._lists[num_id] = self._list(num_id)
        numbered = self._lists[num_id]
        return numbered.label(_level(holders, numbered)) if numbered else _BULLET

    def _based_on(self, style_id: str) -> Iterator[_Element]:
        for _ in range(_MAX_STYLE_STEPS):
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
        overrides = num.findall("w:lvlOverride", {"w": WORD})
        levels = {_ilvl(node): node for node in definition.findall("w:lvl", {"w": WORD})}
        levels |= {_ilvl(node): node for each in overrides for node in each.findall("w:lvl", {"w": WORD})}
        starts = {_ilvl(node): number_of(node, "w:startOverride", -1) for node in overrides}
        starts = {level: start for level, start in starts.items() if start >= 0}
        return _List(levels, self._counts.setdefault(abstract_id, {}), starts, set())


def _level(holders: list[_Element], numbered: _List) -> int:
    """The paragraph's own level, else the one that is linked to its style, else the style's."""
    if own := _value(holders[0], "w:pPr/w:numPr/w:ilvl"):
        return int(own) if own in "012345678" else 0
    linked = {_value(node, "w:pStyle"): level for level, node in numbered.levels.items()}
    for style in holders[1:]:
        level = linked.get(style.get(qn("w:styleId"), "-"))
        if level is not None:
            return level
    return next((number_of(style, "w:pPr/w:numPr/w:ilvl", 0) for style in holders[1:]
                 if _value(style, "w:pPr/w:numPr/w:ilvl")), 0)  # fmt: skip


def _is_deleted(paragraph: _Element) -> bool:
    """Whether it was deleted with its mark, so that it takes no number."""
    return paragraph.find("w:pPr/w:rPr/w:del", {"w": WORD}) is not None and not text_of(paragraph)


def _value(element: _Element, path: str) -> str:
    node = element.find(path, {"w": WORD})
    return node.get(qn("w:val"), "") if node is not None else ""


def _ilvl(element: _Element) -> int:
    value = element.get(qn("w:ilvl"), "")
    return int(value) if value and value in "012345678" else 0


# Word tables as rows of text: merged cells in their columns, header rows that belong together joined.


_MAX_COLUMNS = 500
_MAX_HEADER_ROWS = 3
_WRAPPERS = (qn("w:sdt"), qn("w:sdtContent"), qn("w:customXml"))


@dataclass(frozen=True, slots=True)
class _Row:
    """`spans` says for each column over how many the cell goes that begins there."""

    cells: list[str]
    spans: list[int]


def table_text(table: _Element, numbering: Numbering) -> str:
    rows: list[_Row] = []
    for element in _children(table, ROW):
        rows.append(_row(element, rows[-1].cells if rows else [], numbering))
    return spanned_table([row.cells for row in rows], [row.spans for row in rows], _MAX_HEADER_ROWS)


def only_cell(table: _Element) -> _Element | None:
    """The cell of a table that has only one: a frame around text."""
    cells = [cell for row in _children(table, ROW) for cell in _children(row, CELL)]
    return cells[0] if len(cells) == 1 else None


def _row(element: _Element, above: list[str], numbering: Numbering) -> _Row:
    """What a cell merged over several rows says is said in each of them."""
    row = _Row([], [])
    for cell in _children(element, CELL):
        column = len(row.cells)
        span = min(max(1, number_of(cell, "w:tcPr/w:gridSpan", 1)), _MAX_COLUMNS)
        text = cell_text(cell, numbering)
        if _goes_on(cell) and not text and column < len(above):
            text = above[column]
        row.cells.extend([text, *[""] * (span - 1)])
        row.spans.extend([span, *[1] * (span - 1)])
    return row


def _goes_on(cell: _Element) -> bool:
    merge = cell.find("w:tcPr/w:vMerge", {"w": WORD})
    return merge is not None and merge.get(qn("w:val"), "continue") == "continue"


def _children(parent: _Element, tag: str) -> Iterator[_Element]:
    pending = [*reversed(parent)]
    while pending:
        child = pending.pop()
        if child.tag == tag:
            yield child
        elif child.tag in _WRAPPERS:
            pending.extend(reversed(child))


_HEADING_STYLE = re.compile(r"(?:heading|标题|標題)\s*([1-9])$", re.IGNORECASE)
_TITLE_STYLES = ("title", "标题", "標題")
_LIST_STYLE = re.compile(r"list|列表|项目符号", re.IGNORECASE)
_CONTENTS_STYLE = re.compile(r"(?:toc|目录|目錄)\s*[1-9]$", re.IGNORECASE)
_NOTES = {"footnote": RELATIONSHIP_TYPE.FOOTNOTES, "endnote": RELATIONSHIP_TYPE.ENDNOTES}
_MARGINS = (RELATIONSHIP_TYPE.HEADER, RELATIONSHIP_TYPE.FOOTER)
_PAGE_NUMBER = re.compile(r"(?:page|of|第|页|頁|共|[\W\d_])+$", re.IGNORECASE)
_MAX_DEPTH = 20


class DocxReader(BaseReader):
    def load_data(self, content: bytes) -> list[Document]:
        try:
            return _Document(docx.Document(BytesIO(content))).read()
        except (OpcError, zipfile.BadZipFile, XMLSyntaxError) as error:
            raise UnreadableDocumentError("The file is not a valid DOCX document.") from error


class _Document:
    def __init__(self, document: DocxDocument) -> None:
        self._document = document
        self._outline = Outline()
        self._numbering = Numbering(document)
        self._notes = {kind: _notes(document, related) for kind, related in _NOTES.items()}

    def read(self) -> list[Document]:
        self._blocks(inner_content(self._document.element.body), 0)
        self._outline.leave(1)
        self._outline.block("\n".join(_margins(self._document)))
        return self._outline.finish()

    def _blocks(self, elements: Iterable[_Element], depth: int) -> None:
        for element in elements:
            if element.tag == PARAGRAPH:
                self._paragraph(element, depth)
            elif (frame := only_cell(element)) is not None and depth < _MAX_DEPTH:
                self._blocks(inner_content(frame), depth + 1)
            else:
                self._outline.block(table_text(element, self._numbering))

    def _paragraph(self, element: _Element, depth: int) -> None:
        paragraph = Paragraph(cast("CT_P", element), self._document._body)
        text, label = text_of(element), self._numbering.label(element)
        level, style = _heading_level(paragraph), _style_name(paragraph)
        if level and text:
            self._outline.heading(level, " ".join(f"{(label or '').removeprefix(_BULLET)}{text}".split()))
        elif text and not _CONTENTS_STYLE.match(style):
            if label is None and _LIST_STYLE.match(style):
                label = _BULLET
            self._outline.block(f"{label or ''}{text}")
        for kind, notes in self._notes.items():
            for reference in references(element, kind):
                self._outline.block(notes.get(reference, ""))
        for box in text_boxes(element) if depth < _MAX_DEPTH else ():
            self._blocks(inner_content(box), depth + 1)


def _notes(document: DocxDocument, relation: str) -> dict[str, str]:
    """The texts of the footnotes or endnotes by their id."""
    return {
        note.get(qn("w:id"), ""): " ".join(filter(None, map(text_of, inner_content(note))))
        for part in _related(document, [relation])
        for note in parse_xml(part.blob)
        if note.get(qn("w:type"), "normal") == "normal"
    }


def _margins(document: DocxDocument) -> Iterable[str]:
    """The lines of all page headers and footers, each once; page numbers are left out."""
    lines = (
        text_of(element)
        for part in _related(document, _MARGINS)
        for element in within(parse_xml(part.blob), boxes=True)
        if element.tag == PARAGRAPH
    )
    return dict.fromkeys(line for line in lines if line and not _PAGE_NUMBER.match(line))


def _related(document: DocxDocument, relations: Iterable[str]) -> Iterable[Part]:
    parts = [
        relation.target_part
        for relation in document.part.rels.values()
        if relation.reltype in relations and not relation.is_external
    ]
    return sorted(parts, key=lambda part: str(part.partname))


def _heading_level(paragraph: Paragraph) -> int | None:
    """1 for the title, 2 for "Heading 1" and so on; the style, those it is based on, or an outline level."""
    style = paragraph.style
    steps = 0
    while style is not None and steps < _MAX_STYLE_STEPS:
        name = (style.name or "").strip()
        if match := _HEADING_STYLE.match(name):
            return int(match.group(1)) + 1
        if name.lower() in _TITLE_STYLES:
            return 1
        style = style.base_style
        steps += 1
    level = paragraph._p.find(f"{qn('w:pPr')}/{qn('w:outlineLvl')}")
    value = level.get(qn("w:val"), "9") if level is not None else "9"
    return int(value) + 2 if value in "012345678" and value else None


def _style_name(paragraph: Paragraph) -> str:
    return (paragraph.style.name or "").strip() if paragraph.style else ""
