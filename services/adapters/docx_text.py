"""The words of Word's XML: what a reader of the page sees, tracked insertions made and deletions left out."""

from __future__ import annotations

from collections.abc import Iterator

from docx.oxml.ns import nsmap, qn
from lxml.etree import _Element

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
_WRAPPERS = frozenset(
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
        elif child.tag in _WRAPPERS:
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
    found = (text_of(element) for element in within(cell, boxes=True) if element.tag == PARAGRAPH)
    return " ".join(" ".join(text.split()) for text in found if text)


def number_of(element: _Element, path: str, default: int) -> int:
    """The `w:val` of the first element at this path (w: names); the default when there is none."""
    found = element.find(path, {"w": WORD})
    value = found.get(qn("w:val"), "") if found is not None else ""
    return int(value) if value.isascii() and value.isdigit() else default
