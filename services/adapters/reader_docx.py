"""DOCX: sections by heading style (English and Chinese names), tables as Markdown, in document order.

Read as well: text boxes, content controls, notes (after the paragraph that refers to them), and what page
headers and footers say, once, at the end. Left out: tracked deletions, comments, tables of contents.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable
from io import BytesIO
from typing import cast

import docx
from docx.document import Document as DocxDocument
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.exceptions import OpcError
from docx.opc.part import Part
from docx.oxml.ns import qn
from docx.oxml.parser import parse_xml
from docx.oxml.text.paragraph import CT_P
from docx.text.paragraph import Paragraph
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from lxml.etree import XMLSyntaxError, _Element

from core.errors import UnreadableDocumentError
from services.adapters.docx_tables import only_cell, table_text
from services.adapters.docx_text import PARAGRAPH, inner_content, references, text_boxes, text_of, within
from services.adapters.office_parts import saved
from services.adapters.outline import Outline, with_dates

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
            documents = _Document(docx.Document(BytesIO(content))).read()
        except (OpcError, zipfile.BadZipFile, XMLSyntaxError) as error:
            raise UnreadableDocumentError("The file is not a valid DOCX document.") from error
        return with_dates(documents, saved=[saved(content)])


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
    found = [
        relation.target_part
        for relation in document.part.rels.values()
        if relation.reltype in relations and not relation.is_external
    ]
    return sorted(found, key=lambda part: str(part.partname))


def _heading_level(paragraph: Paragraph) -> int | None:
    """1 for the title, 2 for "Heading 1" and so on; the style, those it is based on, or an outline level."""
    style = paragraph.style
    seen = 0
    while style is not None and seen < 10:  # a damaged file's styles can be based on each other
        name = (style.name or "").strip()
        if match := _HEADING_STYLE.match(name):
            return int(match.group(1)) + 1
        if name.lower() in _TITLE_STYLES:
            return 1
        style = style.base_style
        seen += 1
    level = paragraph._p.find(f"{qn('w:pPr')}/{qn('w:outlineLvl')}")
    value = level.get(qn("w:val"), "9") if level is not None else "9"
    return int(value) + 2 if value in "012345678" and value else None


def _style_name(paragraph: Paragraph) -> str:
    return (paragraph.style.name or "").strip() if paragraph.style else ""


def _is_list_item(paragraph: Paragraph) -> bool:
    numbered = paragraph._p.find(f"{qn('w:pPr')}/{qn('w:numPr')}") is not None
    return numbered or bool(_LIST_STYLE.match(_style_name(paragraph)))
