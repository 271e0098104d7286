"""Files that LibreOffice saved, read as a person reads them."""

from __future__ import annotations

import re
from io import BytesIO
from typing import Any

import docx
import pptx
import pytest
from docx.enum.style import WD_STYLE_TYPE
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml.ns import nsmap
from docx.oxml.parser import parse_xml
from PIL import Image
from pptx.chart.data import CategoryChartData, XyChartData
from pptx.enum.chart import XL_CHART_TYPE

from core.errors import UnreadableDocumentError
from services.adapters.readers.documents import parse_document
from services.adapters.readers.pdf_pages import without_margins
from services.adapters.readers.text import place
from tests.support.stores.documents import (
    FIXTURES,
    OFFICE,
    fixture,
    members_of,
    sections_of,
    under,
    with_members,
)
from tests.support.stores.make_files import docx_bytes


def test_fixtures_are_small_enough_to_live_in_the_repository() -> None:
    sizes = [path.stat().st_size for path in FIXTURES.iterdir()]
    assert max(sizes) < 40_000
    assert sum(sizes) < 400_000


# ---- DOCX ----


def test_a_word_file_has_its_heading_paths() -> None:
    assert [section.heading for section in sections_of("handbook.docx")] == [
        ("青禾员工手册",),
        ("青禾员工手册", "年假"),
        ("青禾员工手册", "年假", "天数"),
        ("青禾员工手册", "Travel expenses"),
        ("青禾员工手册", "Travel expenses", "Hotels"),
        (),
    ]


def test_tracked_insertions_are_read_and_tracked_deletions_are_not() -> None:
    """Discriminates: python-docx's paragraph.text, which leaves out w:ins."""
    assert under(sections_of("handbook.docx"), "青禾员工手册") == "本手册适用于全体员工，包括实习生。"


def test_a_footnote_follows_the_paragraph_that_refers_to_it() -> None:
    assert under(sections_of("handbook.docx"), "青禾员工手册", "年假") == (
        "入职满一年的员工每年有十二天年假。\n\n未休的年假可顺延至次年三月底。\n\n"
        "- 提前三个工作日申请\n\n- 由直属主管批准"
    )


def test_a_word_table_has_one_header_line_and_nested_tables_and_text_boxes_are_read() -> None:
    assert under(sections_of("handbook.docx"), "青禾员工手册", "年假", "天数") == (
        "| 部门 | 天数 / 初级 | 天数 / 高级 |\n| --- | --- | --- |\n"
        "| 研发 | 12 | 18 |\n| 客服 | 10 | 夜班, 20 |\n\n"
        "A boxed remark follows.\n\nQuestions go to desk 4417."
    )


def test_page_headers_are_read_once_and_page_numbers_are_not() -> None:
    assert under(sections_of("handbook.docx")) == "青禾公司 · 文号 QH-2031-077"


def word(*body: str) -> bytes:
    document = docx.Document()
    for xml in body:
        document.element.body.insert(-1, parse_xml(f'<w:p xmlns:w="{nsmap["w"]}">{xml}</w:p>'))
    return docx_bytes(document)


def text_of(*body: str) -> str:
    return "\n".join(section.text for section in parse_document("a.docx", word(*body)).sections)


def test_content_controls_fields_and_equations_are_read_and_ruby_text_once() -> None:
    """Discriminates: python-docx's paragraph.text, which reads none of them."""
    run = "<w:r><w:t>{}</w:t></w:r>"
    control = f"<w:sdt><w:sdtContent>{run.format('chosen')}</w:sdtContent></w:sdt>"
    field = f'<w:fldSimple w:instr="DATE">{run.format(" today")}</w:fldSimple>'
    base = f"<w:rubyBase>{run.format('汉')}</w:rubyBase>"
    ruby = f"<w:r><w:ruby><w:rt>{run.format('hàn')}</w:rt>{base}</w:ruby></w:r>"
    assert text_of(control + field + ruby) == "chosen today汉"


def test_moved_text_is_read_at_its_new_position() -> None:
    run = "<w:r><w:t>moved</w:t></w:r>"
    assert text_of(f"<w:moveFrom>{run}</w:moveFrom>", f"<w:moveTo>{run}</w:moveTo>") == "moved"


def test_a_table_of_contents_is_not_read() -> None:
    """Nor its heading, which is based on a chapter's: the text below is not the contents'."""
    document = docx.Document()
    for name in ("toc 1", "table of figures", "WPSOffice手动目录 1"):
        document.styles.add_style(name, WD_STYLE_TYPE.PARAGRAPH)
        document.add_paragraph("Chapter One ... 3", style=name)
    document.add_paragraph("Contents", style="TOC Heading")
    document.add_paragraph("Body.")
    sections = parse_document("a.docx", docx_bytes(document)).sections
    assert [(section.heading, section.text) for section in sections] == [((), "Body.")]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_chart_and_a_diagram_in_a_word_file_are_read(damaged: bool) -> None:
    """At their place; a damaged one is left out alone."""
    drawing = "http://schemas.openxmlformats.org/drawingml/2006"
    slides = members_of(fixture("launch.pptx"))
    chart = slides[next(each for each in slides if each.startswith("ppt/charts/chart"))]
    diagram = f'<m xmlns:a="{drawing}/main"><a:p><a:r><a:t>Goods in</a:t></a:r></a:p></m>'.encode()
    document = docx.Document()
    document.add_paragraph("Sales:")
    for kind, attribute, blob in (
        ("chart", "id", chart[: 500 if damaged else None]),
        ("relIds", "dm", diagram),
    ):
        part = Part(PackURI(f"/word/{kind}.xml"), "application/xml", blob, document.part.package)
        relation = document.part.relate_to(part, f"{drawing}/{kind}")
        name = "chart" if kind == "chart" else "diagram"
        xml = f'<x:{kind} xmlns:x="{drawing}/{name}" xmlns:r="{nsmap["r"]}" r:{attribute}="{relation}"/>'
        document.add_paragraph().add_run()._r.append(parse_xml(xml))
    document.add_paragraph("Rising.")
    table = "" if damaged else "|  | Units |\n| --- | --- |\n| 2024 | 410 |\n| 2025 | 655 |"
    (section,) = parse_document("a.docx", docx_bytes(document)).sections
    blocks = [block for block in section.text.split("\n\n") if block not in ("Forecast", "Units")]
    assert blocks == [*filter(None, ("Sales:", table, "Goods in", "Rising."))]


def test_a_table_of_one_cell_is_a_frame_around_text() -> None:
    document = docx.Document()
    document.add_table(rows=1, cols=1).rows[0].cells[0].text = "framed"
    assert parse_document("a.docx", docx_bytes(document)).sections[0].text == "framed"


@pytest.mark.parametrize("name", OFFICE)
def test_a_file_saved_as_strict_open_xml_is_read(name: str) -> None:
    """Excel and Word offer that when a file is saved. Discriminates: a workbook without sheets."""
    names, strict = rb"http://schemas\.openxmlformats\.org/(\w+)/2006/", rb"http://purl.oclc.org/ooxml/\1/"
    plain = members_of(fixture(name))
    parts = {part: re.sub(names, strict, plain[part]) for part in plain if part.endswith((".xml", ".rels"))}
    kept = (b"purl.oclc.org/ooxml/package/", b"schemas.openxmlformats.org/package/2006/")
    saved = with_members(fixture(name), {part: text.replace(*kept) for part, text in parts.items()})
    assert parse_document(name, saved).sections == parse_document(name, fixture(name)).sections


@pytest.mark.parametrize(
    ("name", "ending", "kind"),
    [
        ("handbook.docx", "docm", "ms-word.document.macroEnabled"),
        ("handbook.docx", "dotx", "openxmlformats-officedocument.wordprocessingml.template"),
        ("handbook.docx", "dotm", "ms-word.template.macroEnabledTemplate"),
        ("launch.pptx", "pptm", "ms-powerpoint.presentation.macroEnabled"),
        ("launch.pptx", "ppsx", "openxmlformats-officedocument.presentationml.slideshow"),
        ("launch.pptx", "ppsm", "ms-powerpoint.slideshow.macroEnabled"),
        ("launch.pptx", "potx", "openxmlformats-officedocument.presentationml.template"),
        ("launch.pptx", "potm", "ms-powerpoint.template.macroEnabled"),
        ("sales.xlsx", "xlsm", "ms-excel.sheet.macroEnabled"),
        ("sales.xlsx", "xltx", "openxmlformats-officedocument.spreadsheetml.template"),
        ("sales.xlsx", "xltm", "ms-excel.template.macroEnabled"),
    ],
)
def test_a_template_a_slide_show_or_a_file_with_macros_is_read(name: str, ending: str, kind: str) -> None:
    """Macros are left alone."""
    plain, main = fixture(name), rb'application/vnd\.[^"]*(?:document|presentation|sheet)\.main\+xml'
    types = re.sub(
        main, f"application/vnd.{kind}.main+xml".encode(), members_of(plain)["[Content_Types].xml"]
    )
    saved = with_members(plain, {"[Content_Types].xml": types, "vbaProject.bin": b"MsgBox 1"})
    assert types in members_of(saved).values()
    assert parse_document(f"a.{ending}", saved).sections == parse_document(name, plain).sections


# ---- PPTX ----


def test_slides_are_sections_with_number_and_title() -> None:
    assert [(section.page, section.heading) for section in sections_of("launch.pptx")] == [
        (1, ("新品发布计划",)), (2, ("时间表",)), (3, ("Budget",)), (4, ()), (5, ("Forecast",)),
    ]  # fmt: skip


def test_a_slides_list_keeps_its_levels_and_its_notes() -> None:
    assert under(sections_of("launch.pptx"), "时间表") == (
        "- 三月完成样机\n  - 样机编号 WM-31\n- 五月上市\n\n备注：提醒：供应商合同四月二十日到期。"
    )


def test_a_slide_is_read_from_top_to_bottom_with_its_table_and_groups() -> None:
    """Discriminates: shapes in the order of the file (the box above the table was added after it)."""
    assert under(sections_of("launch.pptx"), "Budget") == (
        "All sums in euro.\n\n"
        "| Item | Cost / Plan | Cost / Actual |\n| --- | --- | --- |\n| Print | 1,200 | 1,150 |\n"
        "| Fair | 8,000 | 8,400 |\n\n"
        "Grouped left\n\nGrouped right\n\nNotes: Ask Ines about the fair discount."
    )


def test_a_charts_figures_are_a_table() -> None:
    assert under(sections_of("launch.pptx"), "Forecast").endswith(
        "|  | Units |\n| --- | --- |\n| 2024 | 410 |\n| 2025 | 655 |"
    )


def test_a_charts_percentages_are_read_as_displayed() -> None:
    """By the number format of the figures or their labels; a pie's labels show shares of other figures."""
    assert chart_rows("0%") == ["| July | 32% |", "| August | 36.5% |"]
    assert chart_rows("0.0%;-0.0%") == ["| July | 32% |", "| August | 36.5% |"]
    assert chart_rows("General", labels="0%") == ["| July | 32% |", "| August | 36.5% |"]
    assert chart_rows('0.0" of 100 %"') == ["| July | 0.32 |", "| August | 0.365 |"]
    assert chart_rows("General", labels="0%", shares=True) == ["| July | 0.32 |", "| August | 0.365 |"]


def chart_rows(number_format: str, labels: str = "", shares: bool = False) -> list[str]:
    untyped: Any = CategoryChartData
    slides, data = pptx.Presentation(), untyped(number_format)
    data.categories = ["July", "August"]
    data.add_series("Online", (0.32, 0.365))
    slide = slides.slides.add_slide(slides.slide_layouts[6])
    frame: Any = slide.shapes.add_chart(XL_CHART_TYPE.PIE, 0, 0, 1_000_000, 1_000_000, data)
    plot = frame.chart.plots[0]
    if labels:
        plot.has_data_labels = True
        plot.data_labels.number_format = labels
        plot.data_labels.show_value, plot.data_labels.show_percentage = not shares, shares
    saved = BytesIO()
    slides.save(saved)
    return parse_document("a.pptx", saved.getvalue()).sections[0].text.split("\n")[-2:]


@pytest.mark.parametrize("kind", ["pie3DChart", "bar3DChart", "line3DChart", "ofPieChart", "stockChart"])
def test_a_chart_of_every_kind_is_read_and_none_makes_its_presentation_unreadable(kind: str) -> None:
    """Discriminates: a library that knows only flat charts."""
    plain = fixture("launch.pptx")
    name = next(each for each in members_of(plain) if each.startswith("ppt/charts/chart"))
    chart = re.sub(rb"c:\w+Chart>", f"c:{kind}>".encode(), members_of(plain)[name])
    sections = parse_document("a.pptx", with_members(plain, {name: chart})).sections
    assert sections == parse_document("a.pptx", plain).sections


def test_the_points_of_a_scatter_chart_are_rows() -> None:
    untyped: Any = XyChartData
    slides, data = pptx.Presentation(), untyped()
    series = data.add_series("Speed")
    series.add_data_point(2.5, 10)
    series.add_data_point(5, 40)
    slide = slides.slides.add_slide(slides.slide_layouts[6])
    slide.shapes.add_chart(XL_CHART_TYPE.XY_SCATTER, 0, 0, 1_000_000, 1_000_000, data)
    saved = BytesIO()
    slides.save(saved)
    text = parse_document("a.pptx", saved.getvalue()).sections[0].text
    assert text.endswith("|  | Speed |\n| --- | --- |\n| 2.5 | 10 |\n| 5 | 40 |")


def test_a_title_across_all_columns_of_a_slides_table_is_put_above_it() -> None:
    slides = pptx.Presentation()
    slide = slides.slides.add_slide(slides.slide_layouts[6])
    frame: Any = slide.shapes.add_table(3, 2, 0, 0, 1_000_000, 1_000_000)
    for cell, text in zip(frame.table.iter_cells(), ("Duty", "", "Day", "Desk", "Mon", "Ulla"), strict=True):
        cell.text = text
    frame.table.cell(0, 0).merge(frame.table.cell(0, 1))
    saved = BytesIO()
    slides.save(saved)
    text = parse_document("a.pptx", saved.getvalue()).sections[0].text
    assert text == "Duty\n\n| Day | Desk |\n| --- | --- |\n| Mon | Ulla |"


def test_a_presentation_with_only_pictures_reports_that_pictures_are_not_read() -> None:
    """Discriminates: the message of any file without text."""
    slides, empty = pptx.Presentation(), pptx.Presentation()
    slide = slides.slides.add_slide(slides.slide_layouts[6])
    picture = BytesIO()
    Image.new("RGB", (4, 4)).save(picture, "PNG")
    slide.shapes.add_picture(picture, 0, 0)
    empty.slides.add_slide(empty.slide_layouts[6])
    for presentation, message in ((slides, "pictures are not read"), (empty, r"can be read\.$")):
        saved = BytesIO()
        presentation.save(saved)
        with pytest.raises(UnreadableDocumentError, match=message) as refused:
            parse_document("a.pptx", saved.getvalue())
        assert refused.value.code == "no_text"


# ---- XLSX and CSV ----


def test_sheets_and_table_titles_are_headings_and_hidden_sheets_are_omitted() -> None:
    assert [section.heading for section in sections_of("sales.xlsx")] == [
        ("销售 2024", "2024年季度销售表"), ("销售 2024", "联系人表"), ("Stock",), ("Wide",), ("Notes",),
    ]  # fmt: skip


def test_a_sheet_is_read_as_displayed() -> None:
    """Two header rows are one, merged cells are repeated in each row, formulas are their values."""
    assert under(sections_of("sales.xlsx"), "销售 2024", "2024年季度销售表") == (
        "单位：万元\n\n"
        "| 地区 | 门店 | 销售额 / 上半年 | 销售额 / 下半年 | 同比 | 更新日期 |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| 华北 | 北京店 | 1,234.50 | 1,500.00 | 12.5% | 2024-07-01 |\n"
        "| 华北 | 天津店 | 800.00 | 950.25 | -3.0% | 2024-07-02 |\n"
        "| 华南 | 深圳店 | 2,100.00 | 2,400.00 | 20.0% | 2024-07-03 |\n"
        "| 合计 |  | 4,134.50 | 4,850.25 |  |  |"
    )


def test_leading_zeros_currencies_times_and_pipes_survive() -> None:
    sections = sections_of("sales.xlsx")
    assert "| 韩梅 | 000417 | ¥88 |" in under(sections, "销售 2024", "联系人表")
    assert "| Washer \\| flat | R-15 | 0 | 2024-03-06 09:05 |" in under(sections, "Stock")


def test_rows_that_do_not_fit_beside_their_header_become_lines_that_name_each_value() -> None:
    sections = sections_of("sales.xlsx")
    assert "Attribute number 30 of the product: value 30" in under(sections, "Wide").split("\n")
    notes = under(sections, "Notes")
    assert notes.startswith("Topic: Delivery\nRemark: The driver waits")
    assert notes.endswith("9931.\n\n| Topic | Remark |\n| --- | --- |\n| Returns | Only with a slip. |")


def test_a_csv_file_in_gb18030_with_semicolons_is_a_table_per_block() -> None:
    sections = sections_of("sales-gb18030.csv")
    assert [section.heading for section in sections] == [("2024年季度销售表",), ("联系人表",)]
    assert sections[1].text == "| 姓名 | 工号 | 时薪 |\n| --- | --- | --- |\n| 韩梅 | 000417 | ¥88 |"
    assert "| 华南 | 深圳店 | 2,100.00 | 2,400.00 | 20.0% | 2024年7月3日 |" in sections[0].text


def test_a_workbook_with_styles_no_library_accepts_is_read_without_them() -> None:
    styles = members_of(fixture("sales.xlsx"))["xl/styles.xml"]
    spoilt = with_members(
        fixture("sales.xlsx"), {"xl/styles.xml": styles.replace(b"<patternFill", b"<fillet")}
    )
    sections = parse_document("sales.xlsx", spoilt).sections
    assert "| 韩梅 | 417 | 88 |" in under(sections, "销售 2024", "联系人表")


# ---- PDF ----


def test_bookmarks_are_headings_pages_are_kept_and_running_heads_are_omitted() -> None:
    """Discriminates: a page's text as one section; the header "Green Field …" and "Page 3" left in."""
    assert [(section.page, section.heading) for section in sections_of("report.pdf")] == [
        (1, ()), (1, ("水库",)), (1, ("水库", "Pumps")), (2, ("Finance",)), (3, ("People",)),
        (4, ("Outlook",)),
    ]  # fmt: skip
    whole = "\n".join(section.text for section in sections_of("report.pdf"))
    assert "水位在九月达到三十七米。" in whole
    assert "Region Income Cost\nNorth 310 205\nSouth 290 188" in whole
    assert "Green Field" not in whole
    assert "Page" not in whole


@pytest.mark.parametrize(
    ("lines", "title", "results"),
    [
        (["2.3 Simple parsing", "For"], "Simple parsing", (0, 1)),
        (["text", "第三章 数据结构"], "数据结构", (1, 2)),
        (["Appendix A: Copying", "x"], "A Copying", (0, 1)),
        (["A title that goes", "on in a second line", "x"], "A title that goes on in a second line", (0, 2)),
        (["Simple", "text"], "Simple parsing", None),
        (["7", "8"], "7", None),
    ],
)
def test_a_bookmark_is_found_with_or_without_its_number(
    lines: list[str], title: str, results: tuple[int, int] | None
) -> None:
    assert place(lines, [title]) == [results]


def test_page_number_lines_are_omitted_and_other_numbers_stay() -> None:
    """Discriminates: treating all numbers alike, which omits the sums at the foot of a table."""
    body = [[f"line {page**2}a", f"middle {page**3}", "100"] for page in range(8)]
    heads = [["Green Field Ltd.", f"Chapter {page // 3} Pipes {page + 9}"] for page in range(8)]
    pages = [[*head, *lines] for head, lines in zip(heads, body, strict=True)]
    assert without_margins(pages, [set()] * 8) == body
    assert without_margins(body, [set()] * 8) == body
