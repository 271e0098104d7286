"""How the rows of a sheet become titles, notes and tables, and its values text."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Callable, Sequence
from io import BytesIO

import openpyxl
import pytest
from openpyxl.comments import Comment
from openpyxl.styles import Font

from core.errors import UnreadableDocumentError
from core.prompt.budget import estimate_tokens
from services.adapters.e5.tokens import count_tokens
from services.adapters.readers import sheets
from services.adapters.readers.documents import parse_document
from services.adapters.readers.office.xlsx import Value, shown
from services.adapters.readers.outline import HEADER_TOKENS, ROW_TOKENS, markdown_table
from services.knowledge.chunking.splitter import StructureSplitter, cut
from tests.support.stores.documents import members_of, with_members

DAY = datetime.datetime(2024, 3, 5)


def read(text: str, name: str = "a.csv") -> list[tuple[tuple[str, ...], str]]:
    return [(section.heading, section.text) for section in parse_document(name, text.encode()).sections]


def workbook(
    rows: Sequence[Sequence[object]],
    *number_formats: str,
    merged: Sequence[str] = (),
    bold: Sequence[int] = (),
    comments: Sequence[tuple[str, str]] = (),
) -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for row in rows:
        sheet.append([*row])
    for cells in sheet.iter_rows(min_row=2):
        for cell, number_format in zip(cells, number_formats, strict=False):
            cell.number_format = number_format
    for cells in map(sheet.__getitem__, bold):
        for cell in cells:
            cell.font = Font(bold=True)
    for reference, comment in comments:
        sheet[reference].comment = Comment(comment, "Jana")
    for cell_range in merged:
        sheet.merge_cells(cell_range)
    out = BytesIO()
    book.save(out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("value", "number_format", "text"),
    [
        (0.125, "0.0%", "12.5%"),
        (-0.03, "0%", "-3%"),
        (1234567.5, "#,##0.00", "1,234,567.50"),
        (-12, "[$¥-804]#,##0.00;[Red]-[$¥-804]#,##0.00", "-¥12.00"),
        (3, '#,##0"元"', "3元"),
        (1200, "_-* #,##0_-", "1,200"),
        (42, "000000", "000042"),
        (0.1 + 0.2, "General", "0.3"),
        (13912345678.0, "General", "13912345678"),
        (410223199001011234, "General", "410223199001011234"),
        (7.5, "0.00E+00", "7.5"),
        (46_000_000, '0!.0,"万"', "4600.0万"),
        (46_123_456, '0\\.0000"万"', "4612.3456万"),
        (14_990_400, '#,##0.0,"千元"', "14,990.4千元"),
        (4_600_000, '0.0,,"M€"', "4.6M€"),
        (-12_500, '#,##0,"K"', "-13K"),
        (12_500, "#,##0", "12,500"),
        (1_234_000, "#,##0,.00", "1,234.00"),
        (4_600_000, '[>=1000000]0.0,,"M";[>=1000]0.0,"K";0', "4.6M"),
        (4_600, '[>=1000000]0.0,,"M";[>=1000]0.0,"K";0', "4.6K"),
        (460, '[>=1000000]0.0,,"M";[>=1000]0.0,"K";0', "460"),
        (460, "0!!", "460!"),
        (True, "General", "TRUE"),
        ("#N/A", "General", "#N/A"),
        (" text_x000D_", "@", "text"),
        (DAY, 'yyyy"年"m"月"d"日"', "2024-03-05"),
        (DAY, "mmm-yy", "2024-03"),
        (DAY, "[$-804]yyyy", "2024"),
        (DAY.replace(hour=14, minute=30), "yyyy/m/d h:mm", "2024-03-05 14:30"),
        (datetime.time(9, 5), "h:mm", "09:05"),
        (datetime.timedelta(hours=30), "[h]:mm", "30:00"),
        (None, "General", ""),
    ],
)
def test_a_value_is_written_as_its_format_displays_it(value: Value, number_format: str, text: str) -> None:
    assert shown(value, number_format) == text


def test_dates_in_formats_specific_to_chinese_excel_are_dates() -> None:
    """Number format 57 means yyyy年m月 there, and files use it without declaring it.

    Discriminates: openpyxl's own list of built-in formats, which gives 45356.
    """
    plain = workbook([["月份", "数"], [45356, 1]], "0.000", "0.000")
    styles = members_of(plain)["xl/styles.xml"]
    used = styles.replace(b'numFmtId="164"', b'numFmtId="57"')
    undeclared = used.replace(b'<numFmt numFmtId="57"', b'<numFmt numFmtId="165"')
    book = with_members(plain, {"xl/styles.xml": undeclared})
    assert "| 2024-03 |" in parse_document("a.xlsx", book).sections[0].text


def test_an_empty_row_separates_tables_and_a_headerless_part_gets_the_header_above() -> None:
    assert read("品名,数量\n甲,1\n\n乙,2\n") == [
        ((), "| 品名 | 数量 |\n| --- | --- |\n| 甲 | 1 |\n\n| 品名 | 数量 |\n| --- | --- |\n| 乙 | 2 |")
    ]


def test_rows_of_numbers_without_a_header_get_column_letters() -> None:
    assert read("甲,1,2\n乙,3,4\n") == [
        ((), "| A | B | C |\n| --- | --- | --- |\n| 甲 | 1 | 2 |\n| 乙 | 3 | 4 |")
    ]


def test_years_can_be_a_header() -> None:
    assert read("Item,2023,2024\nRent,5,6\n")[0][1].startswith("| Item | 2023 | 2024 |")


@pytest.mark.parametrize(
    "text",
    [
        "姓名,1,2,3,4,5,出勤\n丁一鸣,√,√,病,√,√,4\n卫兰,√,事,√,√,√,4\n",
        "Name,28,29,30,31,1,2\nOlga,8,8,7,8,8,8\n",
        "Plan,1,2,3\nBasic,120,220,200\n",
        "Part,1,10,100,1000\nHinge,4.5,4.1,3.6,2.9\nBolt,1.2,1,0.8,0.55\n",
        'Part,1,100,"1,000"\nHinge,450,410,360\nBolt,120,100,100\n',
        "Weight,5,10,20\n1,8,12,15\n2,9,14,18\n",
        ",1,2,3\nRow,x,y,z\n",
    ],
)
def test_numbers_that_name_columns_can_be_a_header(text: str) -> None:
    """Days of a month, terms and quantities. Discriminates: accepting no number in a header other than a
    year."""
    titles = next(csv.reader([text.split("\n")[0]]))
    assert read(text)[0][1].startswith(f"| {' | '.join(titles)} |\n| ---")


@pytest.mark.parametrize(
    "text",
    [
        "甲,1,2,3\n乙,4,5,6\n",
        "甲,1,2,3\n乙,2,4,6\n",
        "A,1,2,3,4,5\nB,6,7,8,9,10\n",
        "North,100,120,150\nSouth,90,125,140\nWest,80,70,60\n",
        "North,100,90,150\nSouth,90.5,12.5,14.5\n",
        "Basic,10.5,20.5,30.5\nPro,n/a,n/a,n/a\n",
        "Bolt M4,1,50\nNut M4,2,0.8\n",
        "17,1,2,3\n18,x,y,z\n",
    ],
)
def test_numbers_of_a_table_without_a_header_stay_a_row(text: str) -> None:
    assert read(text)[0][1].startswith("| A | B | C |")


def test_a_title_above_a_table_is_its_heading_and_other_lines_are_notes() -> None:
    assert read("Price list\nvalid from May\nitem,price\nnut,1\n") == [
        (("Price list",), "valid from May\n\n| item | price |\n| --- | --- |\n| nut | 1 |")
    ]


def test_remarks_in_the_last_rows_of_a_table_are_text_below_it() -> None:
    """Discriminates: rows with all but one cell empty, and a remark under the title of the first column."""
    remark = "Remark: cash is not accepted. G2 needs a reservation."
    assert read(f"bus,time,fare\nG1,6:50,2\nG2,7:20,2\n{remark}\n") == [
        ((), f"| bus | time | fare |\n| --- | --- | --- |\n| G1 | 6:50 | 2 |\n| G2 | 7:20 | 2 |\n\n{remark}")
    ]
    assert "| Sum |" in read("bus,time,fare\nG1,6:50,2\nSum\n")[0][1]


def test_a_column_of_sentences_is_text() -> None:
    assert read("one sentence.\nanother one.\n") == [((), "one sentence.\nanother one.")]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_detected(separator: str) -> None:
    rows = [["name", "remark"], ["甲", "one, two; three"], ["乙", "four"]]
    quoted = "\n".join(
        separator.join(f'"{cell}"' if separator in cell else cell for cell in row) for row in rows
    )
    assert "| 甲 | one, two; three |" in read(quoted)[0][1]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Artikel;Preis (netto, EUR)\nMutter M4;0,80\nSchraube M4;1,50\n", "| Mutter M4 | 0,80 |"),
        ("Preise, Stand 2025\nArtikel;Preis\nMutter;0,80\nSchraube;1,50\n", "| Mutter | 0,80 |"),
        ("Ort, Land\tHöhe\nZug, CH\t425,5\nBrig, CH\t684,1\nVisp\t651,2\n", "| Visp | 651,2 |"),
        ("order,items\n17,4;8\n18,3;9\n", "| 17 | 4;8 |"),
        ("id;x,tags\n17;1,red\n18;2,blue\n", "| 17;1 | red |"),
        ("1,2,3\n4,5,6\n", "| 4 | 5 | 6 |"),
    ],
)
def test_decimal_commas_do_not_separate_if_something_else_does(text: str, line: str) -> None:
    """Discriminates: a tie that goes to the comma."""
    assert line in read(text)[0][1]


def test_the_separator_declared_for_excel_is_used() -> None:
    assert read("sep=;\na;b,c\n1;2,3\n")[0][1].startswith("| a | b,c |")


def test_a_cell_of_several_lines_stays_one_cell_and_an_open_quote_swallows_nothing() -> None:
    assert "| x | one two |" in read('a,b\nx,"one\ntwo"\n')[0][1]
    rows = "".join(f"{number},row\n" for number in range(300))
    assert "| 299 | row |" in read('n,"word\n' + rows)[0][1]


def test_text_that_looks_like_a_formula_is_text() -> None:
    assert "| =cmd\\|'/C calc'!A0 | +1 |" in read("name,sum\n=cmd|'/C calc'!A0,+1\n")[0][1]


def test_a_formula_that_was_never_computed_is_an_empty_cell() -> None:
    text = parse_document("a.xlsx", workbook([["a", "b"], ["x", "=1+1"], ["y", 2]])).sections[0].text
    assert "| x |  |" in text


def test_too_many_cells_are_refused_with_advice() -> None:
    with pytest.raises(UnreadableDocumentError, match="split the file") as refused:
        sheets.check_size(sheets.MAX_CELLS + 1)
    assert refused.value.code == "too_complex"


def test_every_table_line_fits_with_its_header_into_half_a_chunk() -> None:
    wide = [[f"标题很长的一列之第{i}列" for i in range(12)], *([str(n)] * 12 for n in range(5))]
    long = [["k", "v"], ["a", "word " * 300], ["b", "short"]]
    for rows in (wide, long):
        for block in markdown_table(rows).split("\n\n"):
            lines = block.split("\n")
            if lines[0].startswith("|"):
                assert estimate_tokens("\n".join(lines[:2])) <= HEADER_TOKENS
                assert all(estimate_tokens(line) <= ROW_TOKENS for line in lines[2:])


def default_pieces(content: str, count: Callable[[str], int]) -> list[str]:
    parsed = parse_document("a.csv", content.encode())
    return [piece.text for piece in cut(parsed, StructureSplitter(count_tokens=count))]


@pytest.mark.parametrize("count", [count_tokens, estimate_tokens])
@pytest.mark.parametrize("columns", range(2, 15))
def test_each_piece_of_a_table_has_its_headers_with_default_chunks(
    columns: int, count: Callable[[str], int]
) -> None:
    """Discriminates: HEADER_TOKENS above half the default chunk, as 120 was, for 10 columns."""
    titles = [f"Quarterly revenue {column}" for column in range(columns)]
    rows = [[f"{1000 + row * 37 + column}" for column in range(columns)] for row in range(30)]
    content = "\n".join(",".join(row) for row in [titles, *rows])
    for piece in default_pieces(content, count):
        lines = piece.split("\n")
        if lines[0].startswith("|"):
            assert lines[0] == f"| {' | '.join(titles)} |"
        else:
            assert all(line.startswith("Quarterly revenue ") for line in lines if line)
        assert sum(piece.count(cell) for row in rows for cell in row)


@pytest.mark.parametrize("count", [count_tokens, estimate_tokens])
def test_each_piece_of_a_wide_row_begins_with_the_line_that_names_it(
    count: Callable[[str], int],
) -> None:
    """Discriminates: paragraphs of a record larger than the default chunk, as 2 × 120 were."""
    titles = ["Plant", *(f"Measured value number {column}" for column in range(299))]
    rows = [[f"Plant {row}", *(f"reading {row * 300 + c}" for c in range(299))] for row in range(3)]
    pieces = default_pieces("\n".join(",".join(row) for row in [titles, *rows]), count)
    assert all(piece.startswith("Plant: Plant ") for piece in pieces)
    assert all(": " in line for piece in pieces for line in piece.split("\n") if line)


def test_a_workbook_of_formulas_without_values_is_refused_with_advice() -> None:
    """Discriminates: the message of any file without text."""
    with pytest.raises(UnreadableDocumentError, match="save it, so that its formulas have values") as refused:
        parse_document("a.xlsx", workbook([["=1+1", "=2+2"]]))
    assert refused.value.code == "no_text"
    with pytest.raises(UnreadableDocumentError, match=r"has no text that can be read\.$"):
        parse_document("a.xlsx", workbook([[None]]))


def tables(content: bytes) -> list[str]:
    return [section.text for section in parse_document("a.xlsx", content).sections]


YEARS: list[object] = ["2024", None, None, "2025"]
TERMS: list[object] = ["1-year", "2-year", "3-year", "1-year", "2-year", "3-year"]
PRICES: list[object] = ["Team", 480, 880, 1200, 516, 945, 1290]


@pytest.mark.parametrize(
    ("upper", "lower", "merged"),
    [
        (["Plan", *YEARS], [None, *TERMS], ["A1:A2", "B1:D1", "E1:G1"]),
        (["Plan", *YEARS], [None, *TERMS], ["B1:D1", "E1:G1"]),
        ([None, *YEARS], ["Plan", *TERMS], ["B1:D1", "E1:G1"]),
    ],
)
def test_a_header_whose_upper_row_is_merged_names_each_column_by_both(
    upper: list[object], lower: list[object], merged: list[str]
) -> None:
    """Discriminates: the upper row as a title above the table, since fewer of its cells have text."""
    assert tables(workbook([upper, lower, PRICES], merged=merged)) == [
        "| Plan | 2024 / 1-year | 2024 / 2-year | 2024 / 3-year | 2025 / 1-year | 2025 / 2-year "
        "| 2025 / 3-year |\n" + "| --- " * 7 + "|\n| Team | 480 | 880 | 1200 | 516 | 945 | 1290 |"
    ]


def test_a_header_of_three_rows_names_each_column_by_all_of_them() -> None:
    upper, middle = ["区域", "2025年"], [None, "一季度", None, "二季度"]
    lower, row = [None, "1月", "2月", "4月", "5月"], ["华东", 1, 2, 3, 4]
    merged = ["A1:A3", "B1:E1", "B2:C2", "D2:E2"]
    first, *_ = tables(workbook([upper, middle, lower, row], merged=merged))
    assert first.startswith("| 区域 | 2025年 / 一季度 / 1月 | 2025年 / 一季度 / 2月 | 2025年 / 二季度 / 4月")


@pytest.mark.parametrize(
    ("note", "merged"),
    [
        (["Unit: EUR", None, None, "As of: May"], ["A1:C1", "D1:F1"]),
        (["Customer", "Adria Port"], ["B1:D1"]),
        (["Price list"], ["A1:F1"]),
    ],
)
def test_merged_notes_above_a_header_are_not_part_of_it(note: list[object], merged: list[str]) -> None:
    titles: list[object] = ["Item", "Unit", "Qty", "Price", "VAT", "Sum"]
    read_as = tables(workbook([note, titles, ["nut", "kg", 1, 2, 3, 4]], merged=merged))
    assert read_as[-1].startswith("| Item | Unit | Qty | Price | VAT | Sum |")


CONTACTS = [["Name", "Team", "Room"], ["Olga Frey", "Payroll", "Blue 1"], ["Max Behr", "Payroll", "Blue 2"]]
GOING_ON = "| Name | Team | Room |\n| --- | --- | --- |\n| Pia Conti | Legal | Red 4 |"


@pytest.mark.parametrize(
    "rows",
    [
        [*CONTACTS, [], ["Pia Conti", "Legal", "Red 4"], ["Rui Costa", "Legal", "Red 5"]],
        [*CONTACTS, [], ["Pia Conti", "Legal", "Red 4"], [], ["Rui Costa", "Legal", "Red 5"]],
        [*CONTACTS, [], ["Kim", None, "Red 3"], [], ["Pia Conti", "Legal", "Red 4"]],
        [CONTACTS[0], ["Olga Frey", "Payroll", "Blue"], [], ["Pia Conti", "Legal", "Red 4"]],
        [CONTACTS[0], [], ["Pia Conti", "Legal", "Red 4"]],
        [*CONTACTS, [], [], [], ["Pia Conti", "Legal", "Red 4"]],
    ],
)
def test_rows_after_an_empty_row_continue_under_the_header_above(rows: list[list[object]]) -> None:
    """Discriminates: taking any row with words only for a header."""
    assert GOING_ON in tables(workbook(rows, bold=[1]))[0]


@pytest.mark.parametrize(
    ("header", "row", "bold"),
    [
        (["Supplier", "Country", "Contact"], ["Adria", "Slovenia", "Novak"], [1, 5]),
        (["Supplier", "Country", "Contact"], ["Adria", "Slovenia", "Novak"], [5]),
        (["Item", "Unit", "Price"], ["nut", "kg", 4], [1]),
        (["Item", "Unit", "Remark"], ["nut", "kg", "red"], [1]),
        (["Item", "2023", "2024"], ["Rent", 5, 6], [1]),
        (["Name", "Team", "Room"], ["Pia Conti", "Legal", "Red 4"], [1]),
        (["Guest", "Desk 1", "Desk 2"], ["Pia Conti", 4, 5], [1, 5]),
        (["Guest", "Team", "Room"], ["Pia Conti", "Legal", "Red 4"], [1]),
    ],
)
def test_another_header_after_an_empty_row_is_a_header(
    header: list[object], row: list[object], bold: list[int]
) -> None:
    line = f"| {' | '.join(map(str, header))} |\n| ---"
    assert line in tables(workbook([*CONTACTS, [], header, row], bold=bold))[0]


def test_a_row_after_two_empty_rows_or_of_another_width_begins_a_table() -> None:
    for rows in ("\n\nItem,Unit\n", "\nItem\nItem,Unit\n", "\nItem,Unit,Remark\n"):
        last = rows.strip().split("\n")[-1]
        text = "\n".join(text for _, text in read("Name,Team\nOlga,Payroll\n" + rows + "nut,kg\n"))
        assert f"| {last.replace(',', ' | ')} |\n| ---" in text


def test_titles_with_digits_are_a_header_if_the_rows_above_have_numbers() -> None:
    assert "| Cost | Q1 | Q2 |\n| ---" in read("Item,Price,Stock\nnut,1,20\n\nCost,Q1,Q2\nRent,5,6\n")[0][1]


def test_a_comment_follows_the_text_of_its_cell() -> None:
    thread = "[Threaded comment]\n\nYour version of Excel allows you to read it.\n\nComment:\n    Or Friday?"
    comments = [("B2", "Jana:\non leave until March"), ("A2", thread)]
    book = workbook([["Asset", "User"], ["NB-118", "Sofia Kern"], ["NB-119", "Tim Roth"]], comments=comments)
    assert tables(book) == [
        "| Asset | User |\n| --- | --- |\n"
        "| NB-118 [Or Friday?] | Sofia Kern [Jana: on leave until March] |\n| NB-119 | Tim Roth |"
    ]


def test_a_workbook_whose_comments_are_missing_is_read() -> None:
    book = workbook([["Asset", "User"], ["NB-118", "Kern"]], comments=[("B2", "on leave")])
    name = "xl/worksheets/_rels/sheet1.xml.rels"
    relations = members_of(book)[name]
    assert b"comment1.xml" in relations
    spoilt = with_members(book, {name: relations.replace(b"comment1.xml", b"comment9.xml")})
    assert "| NB-118 | Kern |" in tables(spoilt)[0]


def test_a_workbook_whose_comments_are_damaged_is_read() -> None:
    """Discriminates: refusing a whole workbook for something beside its cells."""
    book = workbook([["Asset", "User"], ["NB-118", "Kern"]], comments=[("B2", "on leave")])
    (name,) = (each for each in members_of(book) if "comments" in each and each.endswith(".xml"))
    misplaced = members_of(book)[name].replace(b'ref="B2"', b'ref="?"')
    for content in (b"<comments><comment", misplaced):
        assert "| NB-118 | Kern |" in tables(with_members(book, {name: content}))[0]
