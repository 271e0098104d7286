"""DOCX: sections by heading style (English and Chinese names), tables as Markdown, in document order."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from datetime import datetime
from io import BytesIO

import docx
from docx.document import Document as DocxDocument
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.exceptions import OpcError
from docx.oxml.ns import qn
from docx.table import Table, _Row
from docx.text.paragraph import Paragraph
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from core.errors import UnreadableDocumentError
from services.adapters.outline import Outline, markdown_table, with_dates

_HEADING_STYLE = re.compile(r"(?:heading|标题|標題)\s*([1-9])$", re.IGNORECASE)
_TITLE_STYLES = ("title", "标题", "標題")
_LIBRARY_TEMPLATE = datetime(2013, 12, 23, 23, 15)  # python-docx's own, in every file made with it
_LIST_STYLE = re.compile(r"list|列表|项目符号", re.IGNORECASE)


class DocxReader(BaseReader):
    def load_data(self, content: bytes) -> list[Document]:
        outline = Outline()
        try:
            document = docx.Document(BytesIO(content))
            for part in document.iter_inner_content():
                if isinstance(part, Table):
                    outline.block(_table(part))
                else:
                    _paragraph(part, outline)
        except (OpcError, zipfile.BadZipFile) as error:
            raise UnreadableDocumentError("The file is not a valid DOCX document.") from error
        return with_dates(outline.finish(), saved=[_saved(document)])


def _saved(document: DocxDocument) -> datetime | None:
    """When it was saved last. Its date of creation is often that of the template it was made from."""
    try:
        document.part.package.part_related_by(RELATIONSHIP_TYPE.CORE_PROPERTIES)
        saved = document.core_properties.modified
    except (KeyError, AttributeError, TypeError, ValueError):
        return None  # it has no such note, or a damaged one
    return None if saved is None or saved.replace(tzinfo=None) == _LIBRARY_TEMPLATE else saved


def _paragraph(paragraph: Paragraph, outline: Outline) -> None:
    text = paragraph.text.strip()
    level = _heading_level(paragraph)
    if level and text:
        outline.heading(level, " ".join(text.split()))
    elif text:
        outline.block(f"- {text}" if _is_list_item(paragraph) else text)


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


def _is_list_item(paragraph: Paragraph) -> bool:
    numbered = paragraph._p.find(f"{qn('w:pPr')}/{qn('w:numPr')}") is not None
    return numbered or bool(paragraph.style and _LIST_STYLE.match(paragraph.style.name or ""))


def _table(table: Table) -> str:
    return markdown_table([list(_cells(row)) for row in table.rows])


def _cells(row: _Row) -> Iterator[str]:
    """A merged cell is said once."""
    before = None
    for cell in row.cells:
        if cell._tc is not before:
            yield cell.text
        before = cell._tc
