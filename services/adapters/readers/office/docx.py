"""DOCX: sections by heading style (English and Chinese names), tables as Markdown, in document order.

Read as well: text boxes, content controls, notes (after the paragraph that refers to them), and what page
headers and footers say, once, at the end. Left out: tracked deletions, comments, tables of contents.
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
    return "".join(words).strip()


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


def cell_text(cell: _Element) -> str:
    """Its paragraphs, and those of tables and boxes in it, as one line."""
    paragraphs = (text_of(element) for element in within(cell, boxes=True) if element.tag == PARAGRAPH)
    return " ".join(" ".join(text.split()) for text in paragraphs if text)


def number_of(element: _Element, path: str, default: int) -> int:
    """The `w:val` of the first element at this path (w: names); the default when there is none."""
    node = element.find(path, {"w": WORD})
    value = node.get(qn("w:val"), "") if node is not None else ""
    return int(value) if value.isascii() and value.isdigit() else default


# Word tables as rows of text: merged cells in their columns, header rows that belong together joined.


_MAX_COLUMNS = 500
_MAX_HEADER_ROWS = 3
_WRAPPERS = (qn("w:sdt"), qn("w:sdtContent"), qn("w:customXml"))


@dataclass(frozen=True, slots=True)
class _Row:
    """`spans` says for each column over how many the cell goes that begins there."""

    cells: list[str]
    spans: list[int]


def table_text(table: _Element) -> str:
    rows: list[_Row] = []
    for element in _children(table, ROW):
        rows.append(_row(element, rows[-1].cells if rows else []))
    return spanned_table([row.cells for row in rows], [row.spans for row in rows], _MAX_HEADER_ROWS)


def only_cell(table: _Element) -> _Element | None:
    """The cell of a table that has only one: a frame around text."""
    cells = [cell for row in _children(table, ROW) for cell in _children(row, CELL)]
    return cells[0] if len(cells) == 1 else None


def _row(element: _Element, above: list[str]) -> _Row:
    """What a cell merged over several rows says is said in each of them."""
    row = _Row([], [])
    for cell in _children(element, CELL):
        column = len(row.cells)
        span = min(max(1, number_of(cell, "w:tcPr/w:gridSpan", 1)), _MAX_COLUMNS)
        text = cell_text(cell)
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
                self._outline.block(table_text(element))

    def _paragraph(self, element: _Element, depth: int) -> None:
        paragraph = Paragraph(cast("CT_P", element), self._document._body)
        text = text_of(element)
        level = _heading_level(paragraph)
        if level and text:
            self._outline.heading(level, " ".join(text.split()))
        elif text and not _CONTENTS_STYLE.match(_style_name(paragraph)):
            self._outline.block(f"- {text}" if _is_list_item(paragraph) else text)
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
    while style is not None and steps < 10:  # a damaged file's styles can be based on each other
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


def _is_list_item(paragraph: Paragraph) -> bool:
    numbered = paragraph._p.find(f"{qn('w:pPr')}/{qn('w:numPr')}") is not None
    return numbered or bool(_LIST_STYLE.match(_style_name(paragraph)))
