"""DOCX: sections by heading style (English and Chinese names), tables as Markdown, in document order.
If no heading has a style, short bold paragraphs are the headings, or else numbered ones.

Also read: automatic numbers as Word shows them, text boxes, content controls, notes (after the paragraph that
refers to them), charts and diagrams, and page headers and footers, once, at the end. Left out: tracked
deletions, comments, tables of contents.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import takewhile
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
from services.adapters.readers.office.numbering import BULLET, MAX_STYLE_STEPS, Numbering, number_of
from services.adapters.readers.outline import Outline, spanned_table
from services.adapters.readers.text import heading_levels

# The text in Word's XML as a reader of the page sees it, with tracked insertions and without deletions.


_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_MATHS = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
PARAGRAPH, TABLE, ROW, CELL = qn("w:p"), qn("w:tbl"), qn("w:tr"), qn("w:tc")
TEXT_BOX = qn("w:txbxContent")
_WORDS = (qn("w:t"), f"{_MATHS}t")
_SYMBOL, _CHECK_BOX = qn("w:sym"), qn("w:checkBox")
# The characters that symbol fonts show: whether a box is checked is information.
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
# Deleted or moved away, read elsewhere, duplicated (the fallback of a newer form), or not text at all.
_SKIPPED = frozenset(
    (qn("w:del"), qn("w:moveFrom"), qn("w:rPr"), qn("w:pPr"), qn("w:rt"), qn("w:sdtPr"), qn("w:tblPr"),
     f"{_MC}Fallback", TEXT_BOX)
)  # fmt: skip
_TEXT_WRAPPERS = frozenset(
    (qn("w:sdt"), qn("w:sdtContent"), qn("w:ins"), qn("w:moveTo"), qn("w:customXml"), qn("w:smartTag"))
)
WORD = nsmap["w"]


def within(element: _Element, *, boxes: bool = False) -> Iterator[_Element]:
    """The elements inside that are read, in document order, with or without text boxes. Iterative."""
    pending = [*reversed(element)]
    while pending:
        child = pending.pop()
        if child.tag in _SKIPPED and not (boxes and child.tag == TEXT_BOX):
            continue
        yield child
        pending.extend(reversed(child))


def inner_content(parent: _Element) -> Iterator[_Element]:
    """Paragraphs and tables, including those in content controls and insertions."""
    return _outermost(parent, (PARAGRAPH, TABLE), lambda child: child.tag in _TEXT_WRAPPERS)


def _outermost(
    parent: _Element, tags: Collection[str], is_entered: Callable[[_Element], bool]
) -> Iterator[_Element]:
    """The elements with these tags, in document order, but not those inside them. Iterative."""
    pending = [*reversed(parent)]
    while pending:
        child = pending.pop()
        if child.tag in tags:
            yield child
        elif is_entered(child):
            pending.extend(reversed(child))


def text_of(paragraph: _Element) -> str:
    """A paragraph's text, without its text boxes."""
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
    """The character that a `w:sym` shows; "" for an unknown character of a symbol font."""
    font, char = element.get(qn("w:font"), "").lower(), element.get(qn("w:char"), "")
    code = int(char, 16) if re.fullmatch("[0-9A-Fa-f]{1,4}", char) else 0
    if font in _SYMBOLS:
        return _SYMBOLS[font].get(code & 0xFF, "")
    return chr(code) if chr(code).isprintable() else ""


def _is_checked(box: _Element) -> bool:
    """The state of a form's check box: as filled in, else its default."""
    for tag in ("w:checked", "w:default"):
        if (state := box.find(tag, {"w": WORD})) is not None:
            return state.get(qn("w:val"), "1").lower() in ("1", "true", "on")
    return False


def text_boxes(paragraph: _Element) -> Iterator[_Element]:
    """The paragraph's outermost text boxes."""
    return _outermost(paragraph, (TEXT_BOX,), lambda child: child.tag not in _SKIPPED)


def references(paragraph: _Element, kind: str) -> list[str]:
    """The ids of the notes of this kind (footnote, endnote) that the paragraph refers to."""
    tag = qn(f"w:{kind}Reference")
    return [element.get(qn("w:id"), "") for element in within(paragraph) if element.tag == tag]


def cell_text(cell: _Element, numbering: Numbering) -> str:
    """A cell's paragraphs, including those of nested tables and boxes, as one line, with their numbers. A
    nested table reads "Name, Phone; Wu, 8101"."""
    words, joint, is_first_row, is_first_cell = "", " ", False, False
    for element in within(cell, boxes=True):
        if element.tag == TABLE:
            joint, is_first_row = " ", True
        elif element.tag == ROW:
            joint, is_first_row, is_first_cell = " " if is_first_row else "; ", False, True
        elif element.tag == CELL:
            joint, is_first_cell = joint if is_first_cell or joint == "; " else ", ", False
        elif element.tag == PARAGRAPH:
            label = (_label(element, numbering) or "").removeprefix(BULLET)
            if text := " ".join(f"{label}{text_of(element)}".split()):
                words, joint = f"{words}{joint}{text}", " "
    return words.strip()


def _label(paragraph: _Element, numbering: Numbering) -> str | None:
    """Like `Numbering.label`, but a paragraph that was deleted with its mark takes no number."""
    is_deleted = paragraph.find("w:pPr/w:rPr/w:del", {"w": WORD}) is not None and not text_of(paragraph)
    return None if is_deleted else numbering.label(paragraph)


# Word tables as rows of text: merged cells stay in their columns, multi-row headers are joined.


_MAX_COLUMNS = 500
_MAX_HEADER_ROWS = 3
_WRAPPERS = (qn("w:sdt"), qn("w:sdtContent"), qn("w:customXml"))


@dataclass(frozen=True, slots=True)
class _Row:
    """`spans` says for each column how many columns the cell that begins there spans."""

    cells: list[str]
    spans: list[int]


def table_text(table: _Element, numbering: Numbering) -> str:
    rows: list[_Row] = []
    for element in _children(table, ROW):
        rows.append(_row(element, rows[-1].cells if rows else [], numbering))
    return spanned_table([row.cells for row in rows], [row.spans for row in rows], _MAX_HEADER_ROWS)


def only_cell(table: _Element) -> _Element | None:
    """The cell of a single-cell table, which is just a frame around text."""
    cells = [cell for row in _children(table, ROW) for cell in _children(row, CELL)]
    return cells[0] if len(cells) == 1 else None


def _row(element: _Element, above: list[str], numbering: Numbering) -> _Row:
    """The text of a vertically merged cell is repeated in each of its rows."""
    row = _Row([], [])
    for cell in _children(element, CELL):
        column = len(row.cells)
        span = min(max(1, number_of(cell, "w:tcPr/w:gridSpan", 1)), _MAX_COLUMNS)
        text = cell_text(cell, numbering)
        if _is_continued(cell) and not text and column < len(above):
            text = above[column]
        row.cells.extend([text, *[""] * (span - 1)])
        row.spans.extend([span, *[1] * (span - 1)])
    return row


def _is_continued(cell: _Element) -> bool:
    merge = cell.find("w:tcPr/w:vMerge", {"w": WORD})
    return merge is not None and merge.get(qn("w:val"), "continue") == "continue"


def _children(parent: _Element, tag: str) -> Iterator[_Element]:
    return _outermost(parent, (tag,), lambda child: child.tag in _WRAPPERS)


_HEADING_STYLE = re.compile(r"(?:heading|标题|標題)\s*([1-9])$", re.IGNORECASE)
_TITLE_STYLES = ("title", "标题", "標題")
_LIST_STYLE = re.compile(r"list|列表|项目符号", re.IGNORECASE)
# A table of contents or of figures, and the heading above it, which is based on a chapter's.
_CONTENTS_STYLE = re.compile(
    r"(?:toc|contents|.*目录|.*目錄)\s*[1-9]$|(?:toc|contents)\s*(?:heading|标题|標題)\s*\d?$"
    r"|table of figures$|图表目录$|圖表目錄$",
    re.IGNORECASE,
)
_DRAWN = "http://schemas.openxmlformats.org/drawingml/2006"
_GRAPHICS = {f"{{{_DRAWN}/chart}}chart": qn("r:id"), f"{{{_DRAWN}/diagram}}relIds": qn("r:dm")}
_NOTES = {"footnote": RELATIONSHIP_TYPE.FOOTNOTES, "endnote": RELATIONSHIP_TYPE.ENDNOTES}
_MARGINS = (RELATIONSHIP_TYPE.HEADER, RELATIONSHIP_TYPE.FOOTER)
_PAGE_NUMBER = re.compile(r"(?:page|of|第|页|頁|共|[\W\d_])+$", re.IGNORECASE)
_MAX_DEPTH = 20
_MAX_BOLD_SHARE = 2 / 3  # of the paragraphs: if more are bold, bold does not mark headings
_MAX_TITLE_CHARS = 80
_NOT_A_TITLE_END = re.compile(r"[。；;，,.：:]$")


class DocxReader(BaseReader):
    def load_data(self, content: bytes) -> list[Document]:
        try:
            return _Document(docx.Document(BytesIO(content))).read()
        except (OpcError, zipfile.BadZipFile, XMLSyntaxError) as error:
            raise UnreadableDocumentError("The file is not a valid DOCX document.") from error


@dataclass(frozen=True, slots=True)
class _Paragraph:
    """`style` is its style's name; `level` its heading level, if its style or outline level makes it one."""

    words: Paragraph
    text: str
    style: str
    level: int | None


class _Document:
    def __init__(self, document: DocxDocument) -> None:
        self._document = document
        self._outline = Outline()
        lists = _related(document, [RELATIONSHIP_TYPE.NUMBERING])
        self._numbering = Numbering(document, [parse_xml(part.blob) for part in lists])
        self._notes = {kind: _notes(document, related) for kind, related in _NOTES.items()}
        self._styles: dict[str | None, tuple[str, int | None]] = {}  # python-docx's lookup is slow
        self._levels: dict[_Element, int] = {}  # of headings without a style

    def read(self) -> list[Document]:
        body = inner_content(self._document.element.body)
        paragraphs = [self._read_paragraph(element) for element in body if element.tag == PARAGRAPH]
        with_text = [paragraph for paragraph in paragraphs if paragraph.text]
        self._levels = _bold_levels(with_text) or _worded_levels(with_text)
        self._blocks(inner_content(self._document.element.body), 0)
        self._outline.leave(1)
        self._outline.block("\n".join(_margins(self._document)))
        return self._outline.finish()

    def _read_paragraph(self, element: _Element) -> _Paragraph:
        paragraph = Paragraph(cast("CT_P", element), self._document._body)
        style = paragraph._p.style
        if style not in self._styles:
            self._styles[style] = _style_of(paragraph)
        name, level = self._styles[style]
        text = "" if _CONTENTS_STYLE.match(name) else text_of(element)
        return _Paragraph(paragraph, text, name, level or _outline_level(element))

    def _blocks(self, elements: Iterable[_Element], depth: int) -> None:
        for element in elements:
            if element.tag == PARAGRAPH:
                self._paragraph(element, depth)
            elif (frame := only_cell(element)) is not None and depth < _MAX_DEPTH:
                self._blocks(inner_content(frame), depth + 1)
            else:
                self._outline.block(table_text(element, self._numbering))

    def _paragraph(self, element: _Element, depth: int) -> None:
        paragraph, label = self._read_paragraph(element), _label(element, self._numbering)
        text, level = paragraph.text, paragraph.level or self._levels.get(element)
        if level and text:
            self._outline.heading(level, " ".join(f"{(label or '').removeprefix(BULLET)}{text}".split()))
        elif text:
            if label is None and _LIST_STYLE.match(paragraph.style):
                label = BULLET
            self._outline.block(f"{label or ''}{text}")
        for kind, notes in self._notes.items():
            for reference in references(element, kind):
                self._outline.block(notes.get(reference, ""))
        for graphic in self._graphics(element):
            self._outline.block(graphic)
        for box in text_boxes(element) if depth < _MAX_DEPTH else ():
            self._blocks(inner_content(box), depth + 1)

    def _graphics(self, paragraph: _Element) -> Iterator[str]:
        """The charts and diagrams in the paragraph."""
        parts = self._document.part.related_parts
        drawn = (each for each in within(paragraph) if each.tag in _GRAPHICS)
        for relation in (each.get(_GRAPHICS[each.tag], "") for each in drawn):
            from services.adapters.readers.office.pptx import drawn_text  # slow, and seldom needed

            if relation in parts:
                yield drawn_text(parts[relation].blob)


def _notes(document: DocxDocument, relation: str) -> dict[str, str]:
    """The texts of the footnotes or endnotes, by id."""
    return {
        note.get(qn("w:id"), ""): " ".join(filter(None, map(text_of, inner_content(note))))
        for part in _related(document, [relation])
        for note in parse_xml(part.blob)
        if note.get(qn("w:type"), "normal") == "normal"
    }


def _margins(document: DocxDocument) -> Iterable[str]:
    """The lines of all page headers and footers, without duplicates and page numbers."""
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


def _style_of(paragraph: Paragraph) -> tuple[str, int | None]:
    """The style's name, and its level: 1 for the title, 2 for "Heading 1" and so on, by its own name or that
    of a style it is based on."""
    style = paragraph.style
    first = (style.name or "").strip() if style else ""
    steps = 0
    while style is not None and steps < MAX_STYLE_STEPS:
        name = (style.name or "").strip()
        if match := _HEADING_STYLE.match(name):
            return first, int(match.group(1)) + 1
        if name.lower() in _TITLE_STYLES:
            return first, 1
        style = style.base_style
        steps += 1
    return first, None


def _outline_level(paragraph: _Element) -> int | None:
    level = paragraph.find(f"{qn('w:pPr')}/{qn('w:outlineLvl')}")
    value = level.get(qn("w:val"), "9") if level is not None else "9"
    return int(value) + 2 if value in "012345678" and value else None


def _bold_levels(paragraphs: Sequence[_Paragraph]) -> dict[_Element, int]:
    """The heading levels of short bold paragraphs, if only the title has a heading style and not nearly
    everything is bold. Those at the very beginning are nested (title, kind of document, first section); a
    smaller font size means a deeper level."""
    styled = {paragraph.level for paragraph in paragraphs} - {None}
    if styled - {1}:
        return {}
    others = [paragraph for paragraph in paragraphs if paragraph.level is None]
    bold = [*filter(_is_bold_title, others)]
    if len(bold) > _MAX_BOLD_SHARE * len(others):
        return {}
    sizes = sorted({*map(_size, bold)}, reverse=True)
    opening = [*takewhile(_is_bold_title, others)] or bold[:1]
    first = 1 + len(styled)
    levels: dict[_Element, int] = {each.words._p: first + at for at, each in enumerate(opening)}
    for paragraph in bold[len(opening) :]:
        deeper = sizes.index(_size(paragraph)) - sizes.index(_size(opening[-1]))
        levels[paragraph.words._p] = max(first, first + len(opening) - 1 + deeper)
    return levels


def _worded_levels(paragraphs: Sequence[_Paragraph]) -> dict[_Element, int]:
    """The levels of numbered headings if nothing else marks any: Chinese offices set them in a typeface."""
    if any(paragraph.level for paragraph in paragraphs):
        return {}
    levels = heading_levels([paragraph.text for paragraph in paragraphs])
    return {paragraphs[at].words._p: level for at, level in levels.items()}


def _is_bold_title(paragraph: _Paragraph) -> bool:
    text = paragraph.text
    if len(text) > _MAX_TITLE_CHARS or _NOT_A_TITLE_END.search(text) or _LIST_STYLE.match(paragraph.style):
        return False
    runs = [run for run in paragraph.words.runs if run.text.strip()]
    return bool(runs) and all(run.bold for run in runs)


def _size(paragraph: _Paragraph) -> int:
    """The font size of its first text; 0 if only the style defines it."""
    return next((run.font.size or 0 for run in paragraph.words.runs if run.text.strip()), 0)
