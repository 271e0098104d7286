"""Word tables as rows of text: merged cells in their columns, header rows that belong together joined."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from docx.oxml.ns import qn
from lxml.etree import _Element

from services.adapters.docx_text import CELL, ROW, WORD, cell_text, inner_content, number_of
from services.adapters.tables import joined_header, markdown_table, spread

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
    width = max((len(row.cells) for row in rows), default=0)
    count = _header_rows(rows, width)
    header = joined_header([spread(row.cells, row.spans) for row in rows[:count]])
    return markdown_table([header, *(row.cells for row in rows[count:])])


def only_cell(table: _Element) -> _Element | None:
    """The cell of a table that has only one: a frame around text."""
    cells = [cell for row in _children(table, ROW) for cell in _children(row, CELL)]
    return cells[0] if len(cells) == 1 else None


def frame_content(cell: _Element) -> Iterator[_Element]:
    return inner_content(cell)


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


def _header_rows(rows: list[_Row], width: int) -> int:
    """A header goes on below a row of it in which a cell spans columns, though not all of them."""
    count = 1
    while count < min(_MAX_HEADER_ROWS, len(rows) - 1) and 1 < max(rows[count - 1].spans, default=1) < width:
        count += 1
    return min(count, len(rows))


def _children(parent: _Element, tag: str) -> Iterator[_Element]:
    pending = [*reversed(parent)]
    while pending:
        child = pending.pop()
        if child.tag == tag:
            yield child
        elif child.tag in _WRAPPERS:
            pending.extend(reversed(child))
