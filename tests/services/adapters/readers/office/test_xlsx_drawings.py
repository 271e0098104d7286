"""Excel: text boxes and charts drawn on a sheet."""

from __future__ import annotations

from io import BytesIO

import xlsxwriter

from core.knowledge import Section
from services.adapters.readers.documents import parse_document
from tests.support.stores.documents import members_of, with_members

ROWS = [("Region", "Units"), ("North", 310), ("South", 290), ("East", 120)]
TABLE = "| Region | Units |\n| --- | --- |\n| North | 310 |\n| South | 290 |\n| East | 120 |"
CHART = "|  | Units |\n| --- | --- |\n| North | 310 |\n| South | 290 |\n| East | 120 |"


def workbook(*, hidden: bool) -> bytes:
    """A sheet of figures, and one with a chart of them and a text box."""
    saved = BytesIO()
    with xlsxwriter.Workbook(saved) as book:
        board, figures = book.add_worksheet("Overview"), book.add_worksheet("Jan's data")
        for number, row in enumerate(ROWS):
            figures.write_row(number, 0, row)
        chart = book.add_chart({"type": "column"})
        source = {"categories": "='Jan''s data'!$A$2:$A$4", "values": "='Jan''s data'!$B$2:$B$4"}
        chart.add_series({"name": "='Jan''s data'!$B$1", **source})
        chart.set_title({"name": "Units by region"})
        board.insert_chart("A1", chart)
        board.insert_textbox("J2", "交货期为三十天。\nAsk Ines.")
        if hidden:
            figures.hide()
    return saved.getvalue()


def read(content: bytes) -> list[tuple[tuple[str, ...], str]]:
    sections: tuple[Section, ...] = parse_document("a.xlsx", content).sections
    return [(section.heading, section.text) for section in sections]


def test_text_boxes_and_charts_are_read_but_no_figures_twice() -> None:
    assert read(workbook(hidden=False)) == [
        (("Overview",), "交货期为三十天。\nAsk Ines.\n\nUnits by region"),
        (("Jan's data",), TABLE),
    ]


def test_a_charts_figures_are_read_if_their_sheet_is_hidden() -> None:
    text = f"交货期为三十天。\nAsk Ines.\n\nUnits by region\n\n{CHART}"
    assert read(workbook(hidden=True)) == [(("Overview",), text)]


def test_a_notice_for_programs_without_a_shape_is_not_text() -> None:
    plain = workbook(hidden=False)
    box = members_of(plain)["xl/drawings/drawing1.xml"]
    names = b'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    notice = b"<mc:AlternateContent %b><mc:Fallback>%b</mc:Fallback></mc:AlternateContent>"
    start, end = box.index(b"<xdr:sp "), box.index(b"</xdr:sp>") + 9
    shown = box[:end] + notice % (names, box[start:end]) + box[end:]
    assert read(with_members(plain, {"xl/drawings/drawing1.xml": shown})) == read(plain)


def test_a_damaged_drawing_costs_no_cells() -> None:
    broken = with_members(workbook(hidden=False), {"xl/drawings/_rels/drawing1.xml.rels": b"<broken"})
    assert read(broken) == [(("Jan's data",), TABLE)]
