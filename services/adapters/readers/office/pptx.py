"""PPTX: one section per slide, its number as the page and its title as the heading; notes are included.

Hidden slides are read, since anybody who opens the file sees them. Pictures, comments and animations are not.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Collection, Iterable, Iterator
from io import BytesIO
from typing import Any

import pptx
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from lxml import etree
from lxml.etree import XMLSyntaxError
from pptx.enum.shapes import MSO_SHAPE_TYPE, PP_PLACEHOLDER
from pptx.exc import PythonPptxError
from pptx.shapes.base import BaseShape
from pptx.slide import Slide
from pptx.table import Table
from pptx.text.text import TextFrame

from core.errors import UnreadableDocumentError
from services.adapters.readers.outline import markdown_table, section_document, spanned_table, width

# The content of a slide: its shapes from top to bottom as text blocks.


_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_CHART = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_COMPATIBILITY = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_DIAGRAM = "http://schemas.openxmlformats.org/drawingml/2006/diagram"
_DIAGRAM_IDS = f"{{{_DIAGRAM}}}relIds"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_MARGINS = (PP_PLACEHOLDER.FOOTER, PP_PLACEHOLDER.DATE, PP_PLACEHOLDER.SLIDE_NUMBER, PP_PLACEHOLDER.HEADER)
_BODIES = (PP_PLACEHOLDER.BODY, PP_PLACEHOLDER.OBJECT, PP_PLACEHOLDER.VERTICAL_BODY,
           PP_PLACEHOLDER.VERTICAL_OBJECT)  # fmt: skip
_LITERAL = re.compile(r'"[^"]*"|\\.')  # literal text in a number format
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
            yield _chart(_any(shape).chart_part._element)
        else:
            yield _diagram(shape)


def text_block(frame: TextFrame, *, is_list: bool = False) -> str:
    """Paragraphs as lines; several paragraphs of a body as a list with levels."""
    paragraphs = [(paragraph.level, clean(paragraph.text)) for paragraph in frame.paragraphs]
    filled = [(level, text) for level, text in paragraphs if text]
    if not is_list or len(filled) < 2:
        return "\n".join(text for _, text in filled)
    return "\n".join(f"{'  ' * level}- {text}" for level, text in filled)


def clean(text: str) -> str:
    return " ".join(text.replace("\v", " ").split())


def _any(shape: BaseShape) -> Any:
    """The shape without its static type, since the base class lacks tables, charts and groups."""
    return shape


def _place(shape: BaseShape) -> tuple[int, int]:
    """A sort key: lines from top to bottom, within a line from left to right."""
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
    return spanned_table(rows, spans, _MAX_HEADER_ROWS)


def _fill_downwards(table: Table, rows: list[list[str]]) -> None:
    for top, row in enumerate(table.rows):
        for column, cell in enumerate(row.cells):
            below = cell.span_height if cell.is_merge_origin else 1
            for covered in rows[top + 1 : top + below]:
                covered[column] = covered[column] or rows[top][column]


def _chart(space: etree._Element, sheets: Collection[str] = ()) -> str:
    """A chart's title, and its figures as a table for each of its plots, unless they are from these sheets.
    From its XML: python-pptx knows no three-dimensional, stock or surface chart."""
    title = _chart_words(space, "chart/title")
    sources = {(each.text or "").rpartition("!")[0].strip("'") for each in space.iter(f"{_CHART}f")}
    is_known = bool(sources) and sources <= {sheet.replace("'", "''") for sheet in sheets}
    plots = (child for child in _all(space, "chart/plotArea/*") if _all(child, "ser") and not is_known)
    return "\n\n".join(filter(None, [title, *map(_plot, plots)]))


def _plot(plot: etree._Element) -> str:
    series = sorted(_all(plot, "ser"), key=_order)
    named = next((each for each in (*_all(plot, "ser/cat"), *_all(plot, "ser/xVal"))), None)
    names = _points(named)
    figures = [_figures(each, plot) for each in series]
    header = ["", *(_chart_words(each, "tx") for each in series)]
    rows = (
        [names.get(index, str(index + 1)), *(each.get(index, "") for each in figures)]
        for index in sorted(set(names).union(*figures))
    )
    return markdown_table([header, *rows])


def _order(series: etree._Element) -> int:
    value = next((each.get("val", "0") for each in _all(series, "order")), "0")
    return int(value) if value.isdecimal() else 0


def _figures(series: etree._Element, plot: etree._Element) -> dict[int, str]:
    percent = _is_percent(series, plot)
    values = next((each for each in (*_all(series, "val"), *_all(series, "yVal"))), None)
    return {index: _figure(text, percent) for index, text in _points(values).items()}


def _points(values: etree._Element | None) -> dict[int, str]:
    """The cached texts by their index. Of categories with several levels, the innermost."""
    if values is None:
        return {}
    level = next(values.iter(f"{_CHART}lvl"), values)
    points = ((point.get("idx", ""), _chart_words(point, "v")) for point in level.iter(f"{_CHART}pt"))
    return {int(index): text for index, text in points if index.isdecimal() and text}


def _all(element: etree._Element, path: str) -> list[etree._Element]:
    return element.findall("/".join(step if step == "*" else f"{_CHART}{step}" for step in path.split("/")))


def _chart_words(element: etree._Element, path: str) -> str:
    """The text below the path, whether it is written there or copied from a sheet's cell."""
    words = (_CHART + "v", _DRAWING + "t")
    return clean(" ".join(each.text or "" for part in _all(element, path) for each in part.iter(*words)))


def _is_percent(series: etree._Element, plot: etree._Element) -> bool:
    """Whether its figures are shown as percentages, by their own format or that of their labels."""
    values = [child for child in series if child.tag in (f"{_CHART}val", f"{_CHART}yVal")]
    codes = [code.text for child in values for code in child.iter(f"{_CHART}formatCode")]
    for owner in (series, plot):
        shown = owner.find(f"{_CHART}dLbls/{_CHART}showVal")  # else labels may show shares of the whole
        form = owner.find(f"{_CHART}dLbls/{_CHART}numFmt")
        if shown is not None and form is not None and shown.get("val", "1") in ("1", "true"):
            codes.append(form.get("formatCode"))
    return any("%" in _LITERAL.sub("", code or "") for code in codes)


def _figure(text: str, percent: bool) -> str:
    try:
        value = float(text)
    except ValueError:
        return text
    return f"{value * 100:.6g}%" if percent else f"{value:.15g}"


def _diagram(shape: BaseShape) -> str:
    """The texts of a SmartArt diagram, which are stored in a separate part."""
    ids = next(shape._element.iter(_DIAGRAM_IDS), None)
    relation = ids.get(f"{_RELATION}dm") if ids is not None else None
    return drawn_text(shape.part.related_part(relation).blob) if relation is not None else ""


def drawn_text(part: bytes, sheets: Collection[str] = ()) -> str:
    """What is to be read in a file's part that draws a chart, a diagram or text boxes, in Word and Excel as
    well; "" if damaged. The figures of charts from these sheets are left out."""
    try:
        root = etree.fromstring(part, etree.XMLParser(resolve_entities=False, no_network=True))
    except XMLSyntaxError:
        return ""
    if root.tag == f"{_CHART}chartSpace":
        return _chart(root, sheets)
    etree.strip_elements(root, f"{_COMPATIBILITY}Fallback", with_tail=False)
    paragraphs = root.iter(f"{_DRAWING}p")
    texts = (clean("".join(run.text or "" for run in each.iter(f"{_DRAWING}t"))) for each in paragraphs)
    return "\n".join(text for text in texts if re.search(r"\w", text))


_PICTURE = "/image"  # suffix of the relation type from a slide to a picture
_PICTURES_ONLY = (
    "The file has no text that can be read: pictures are not read. If there is text in them, run text "
    "recognition (OCR) on it and add that."
)
_CHINESE = re.compile("[\u4e00-\u9fff]")
_USUAL_SIZE = 1_800  # of a text box, in hundredths of a point
_LARGER, _TOP = 1.2, 0.3  # than all other text; of the slide's height
_MAX_TITLE_WIDTH = 80
_TITLE = re.compile(r"(?=.*(?:[^\W\d_]{2}|[\u3400-\u9fff])).*[^。；;，,、.：:]$")


class PptxReader(BaseReader):
    def load_data(self, content: bytes) -> list[Document]:
        try:
            presentation = pptx.Presentation(BytesIO(content))
            slides, top = presentation.slides, _TOP * (presentation.slide_height or 0)
            documents = [_section(number, slide, top) for number, slide in enumerate(slides, start=1)]
            has_pictures = any(map(_has_picture, slides))
        except (PythonPptxError, zipfile.BadZipFile, XMLSyntaxError) as error:
            raise UnreadableDocumentError("The file is not a valid PPTX document.") from error
        if has_pictures and not any(document.text.strip() for document in documents):
            raise UnreadableDocumentError(_PICTURES_ONLY, code="no_text")
        return documents


def _has_picture(slide: Slide) -> bool:
    return any(relation.reltype.endswith(_PICTURE) for relation in slide.part.rels.values())


def _section(number: int, slide: Slide, top: float) -> Document:
    title_shape: BaseShape | None = slide.shapes.title
    if title_shape is None or not _any(title_shape).text_frame.text.strip():
        title_shape = _largest(slide, top)
    title = clean(_any(title_shape).text_frame.text) if title_shape is not None else ""
    others = [
        shape for shape in slide.shapes if title_shape is None or shape.shape_id != title_shape.shape_id
    ]
    texts = [*filter(None, blocks(others)), *_notes(slide)]
    return section_document("\n\n".join(texts) or title, [title] if title else [], number)


def _largest(slide: Slide, top: float) -> BaseShape | None:
    """The text box that is clearly the title: the first text from the top, short, and larger than all others.
    A placeholder's size is mostly that of its layout: it counts as larger than any."""
    shown = [shape for shape in slide.shapes if _kind(shape) not in _MARGINS]
    sizes = [(shape, size) for shape in sorted(shown, key=_place) if (size := _sizes(shape))]
    if len(sizes) < 2:
        return None
    (first, own), *others = sizes
    if first.is_placeholder or not first.has_text_frame or (first.top or 0) > top:
        return None
    text = clean(_any(first).text_frame.text)
    is_larger = min(own) >= _LARGER * max(max(size) for _, size in others)
    return first if is_larger and width(text) <= _MAX_TITLE_WIDTH and _TITLE.match(text) else None


def _sizes(shape: BaseShape) -> set[float]:
    """The font sizes of its text."""
    defaults = (each.get("sz") for each in shape._element.iter(f"{_DRAWING}defRPr"))
    usual = next(filter(None, defaults), math.inf if shape.is_placeholder else _USUAL_SIZE)
    runs = (run for run in shape._element.iter(f"{_DRAWING}r") if run.findtext(f"{_DRAWING}t", "").strip())
    marks = (run.find(f"{_DRAWING}rPr") for run in runs)
    return {float((None if mark is None else mark.get("sz")) or usual) for mark in marks}


def _notes(slide: Slide) -> Iterator[str]:
    frame = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
    notes = text_block(frame) if frame is not None else ""
    if notes:
        yield f"备注：{notes}" if _CHINESE.search(notes) else f"Notes: {notes}"
