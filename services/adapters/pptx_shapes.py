"""What stands on a slide: its shapes from top to bottom as text blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from lxml import etree
from pptx.enum.shapes import MSO_SHAPE_TYPE, PP_PLACEHOLDER
from pptx.shapes.base import BaseShape
from pptx.table import Table
from pptx.text.text import TextFrame

from services.adapters.tables import joined_header, markdown_table, spread

_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_DIAGRAM = "http://schemas.openxmlformats.org/drawingml/2006/diagram"
_DIAGRAM_IDS = f"{{{_DIAGRAM}}}relIds"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_MARGINS = (PP_PLACEHOLDER.FOOTER, PP_PLACEHOLDER.DATE, PP_PLACEHOLDER.SLIDE_NUMBER, PP_PLACEHOLDER.HEADER)
_BODIES = (PP_PLACEHOLDER.BODY, PP_PLACEHOLDER.OBJECT, PP_PLACEHOLDER.VERTICAL_BODY,
           PP_PLACEHOLDER.VERTICAL_OBJECT)  # fmt: skip
_SAME_LINE_EMU = 300_000  # a third of an inch
_MAX_DEPTH = 20
_MAX_HEADER_ROWS = 2


def blocks(shapes: Iterable[BaseShape], depth: int = 0) -> Iterator[str]:
    """Text, tables, charts and diagrams in reading order, without title, footer and page number."""
    for shape in sorted(shapes, key=_place):
        kind = _kind(shape)
        if kind in _MARGINS:
            continue
        if shape.shape_type == MSO_SHAPE_TYPE.GROUP:
            if depth < _MAX_DEPTH:
                yield from blocks(_any(shape).shapes, depth + 1)
        elif shape.has_text_frame:
            yield text_block(_any(shape).text_frame, is_list=kind in _BODIES)
        elif _any(shape).has_table:
            yield _table(_any(shape).table)
        elif _any(shape).has_chart:
            yield _chart(_any(shape).chart)
        else:
            yield "\n".join(_diagram(shape))


def text_block(frame: TextFrame, *, is_list: bool = False) -> str:
    """Paragraphs as lines; those of a body, when there are several, as a list with its levels."""
    paragraphs = [(paragraph.level, clean(paragraph.text)) for paragraph in frame.paragraphs]
    said = [(level, text) for level, text in paragraphs if text]
    if not is_list or len(said) < 2:
        return "\n".join(text for _, text in said)
    return "\n".join(f"{'  ' * level}- {text}" for level, text in said)


def clean(text: str) -> str:
    return " ".join(text.replace("\v", " ").split())


def _any(shape: BaseShape) -> Any:
    """The shape as what it is; its base class does not know of tables, charts and groups."""
    return shape


def _place(shape: BaseShape) -> tuple[int, int]:
    """By lines from top to bottom, in a line from left to right."""
    return int(shape.top or 0) // _SAME_LINE_EMU, int(shape.left or 0)


def _kind(shape: BaseShape) -> PP_PLACEHOLDER | None:
    return shape.placeholder_format.type if shape.is_placeholder else None


def _table(table: Table) -> str:
    rows: list[list[str]] = []
    spans: list[list[int]] = []
    for row in table.rows:
        rows.append([clean(cell.text_frame.text) for cell in row.cells])
        spans.append([cell.span_width if cell.is_merge_origin else 1 for cell in row.cells])
    _fill_downwards(table, rows)
    count = 1
    while count < min(_MAX_HEADER_ROWS, len(rows) - 1) and 1 < max(spans[count - 1]) < len(rows[0]):
        count += 1
    header = joined_header([spread(row, span) for row, span in zip(rows[:count], spans, strict=False)])
    return markdown_table([header, *rows[count:]])


def _fill_downwards(table: Table, rows: list[list[str]]) -> None:
    for top, row in enumerate(table.rows):
        for column, cell in enumerate(row.cells):
            below = cell.span_height if cell.is_merge_origin else 1
            for covered in rows[top + 1 : top + below]:
                covered[column] = covered[column] or rows[top][column]


def _chart(chart: Any) -> str:
    """Its title, and the figures that it shows as a table."""
    title = (
        clean(chart.chart_title.text_frame.text)
        if chart.has_title and chart.chart_title.has_text_frame
        else ""
    )
    tables = []
    for plot in chart.plots:
        series = [(clean(str(line.name)), [_figure(value) for value in line.values]) for line in plot.series]
        rows = [["", *(name for name, _ in series)]]
        for index, category in enumerate(plot.categories):
            rows.append(
                [
                    clean(str(category)),
                    *(values[index] if index < len(values) else "" for _, values in series),
                ]
            )
        tables.append(markdown_table(rows))
    return "\n\n".join(filter(None, [title, *tables]))


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.15g}"


def _diagram(shape: BaseShape) -> Iterator[str]:
    """The texts of a SmartArt diagram, which are kept in a part of their own."""
    ids = next(shape._element.iter(_DIAGRAM_IDS), None)
    relation = ids.get(f"{_RELATION}dm") if ids is not None else None
    if relation is None:
        return
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    data = etree.fromstring(shape.part.related_part(relation).blob, parser)
    for paragraph in data.iter(f"{_DRAWING}p"):
        text = clean("".join(run.text or "" for run in paragraph.iter(f"{_DRAWING}t")))
        if re.search(r"\w", text):
            yield text
