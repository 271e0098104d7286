"""Word files created here: automatic numbers, check boxes and tables, as Word displays them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import docx
import pytest
from docx.document import Document
from docx.oxml.ns import nsmap
from docx.oxml.parser import parse_xml
from docx.oxml.xmlchemy import BaseOxmlElement
from docx.shared import Pt

from services.adapters.readers.documents import parse_document
from services.adapters.readers.office.numbering import format_number
from tests.support.stores.make_files import docx_bytes

CONTRACT = (("decimal", "%1."), ("decimal", "%1.%2"), ("lowerLetter", "(%3)"))


def element(xml: str) -> BaseOxmlElement:
    return cast("BaseOxmlElement", parse_xml(f'<w:p xmlns:w="{nsmap["w"]}">{xml}</w:p>')[0])


def with_lists(levels: Sequence[tuple[str, str]], nums: str = "") -> Document:
    """`levels` as (format, text); the list is number 70, followed by `nums`."""
    document = docx.Document()
    numbering = document.part.numbering_part.element
    text = "".join(
        f'<w:lvl w:ilvl="{at}"><w:start w:val="1"/><w:numFmt w:val="{form}"/>'
        f'<w:lvlText w:val="{text}"/></w:lvl>'
        for at, (form, text) in enumerate(levels)
    )
    own = '<w:num w:numId="70"><w:abstractNumId w:val="70"/></w:num>'
    lists = f'<w:abstractNum w:abstractNumId="70">{text}</w:abstractNum>{own}{nums}'
    for child in parse_xml(f'<w:numbering xmlns:w="{nsmap["w"]}">{lists}</w:numbering>'):
        numbering.append(child)
    return document


def listed(document: Document, text: str, level: int = 0, num: int = 70) -> None:
    place = f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{num}"/></w:numPr>'
    document.add_paragraph(text)._p.get_or_add_pPr().append(element(place))


def lines(document: Document) -> list[str]:
    sections = parse_document("a.docx", docx_bytes(document)).sections
    return [line for section in sections for line in section.text.split("\n") if line]


def test_article_numbers_are_read_so_that_references_can_be_followed() -> None:
    document = with_lists([("chineseCountingThousand", "第%1条")])
    listed(document, "甲方应于每月5日前付款。")
    listed(document, "逾期按日万分之五计息。")
    document.add_paragraph("违反第二条的，重新计算付款日。")
    assert lines(document) == [
        "第一条 甲方应于每月5日前付款。", "第二条 逾期按日万分之五计息。", "违反第二条的，重新计算付款日。",
    ]  # fmt: skip


def test_sublevels_continue_and_restart_under_the_next_parent() -> None:
    document = with_lists(CONTRACT)
    for text, level in (("Term", 0), ("Start", 1), ("End", 1), ("a court", 2), ("a law", 2), ("Fees", 0)):
        listed(document, text, level)
    listed(document, "", 1)  # an empty paragraph is displayed with its number, and counts
    listed(document, "Interest", 1)
    assert lines(document) == [
        "1. Term", "1.1 Start", "1.2 End", "(a) a court", "(b) a law", "2. Fees", "2.2 Interest",
    ]  # fmt: skip


def test_a_list_with_the_same_definition_continues_unless_it_has_a_start() -> None:
    again = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="5"/></w:lvlOverride>'
    other = '<w:lvlOverride w:ilvl="0"><w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="upperRoman"/>'
    nums = (
        '<w:num w:numId="71"><w:abstractNumId w:val="70"/></w:num>'
        f'<w:num w:numId="72"><w:abstractNumId w:val="70"/>{again}</w:num>'
        f'<w:num w:numId="73"><w:abstractNumId w:val="70"/>{other}<w:lvlText w:val="%1)"/></w:lvl>'
        "</w:lvlOverride></w:num>"
    )
    document = with_lists(CONTRACT, nums)
    for num in (70, 71, 72, 72, 73):
        listed(document, "x", 0, num)
    assert lines(document) == ["1. x", "2. x", "5. x", "6. x", "VII) x"]


def test_a_heading_numbered_by_its_style_has_the_number_in_its_path() -> None:
    document = with_lists([("chineseCounting", "第%1章"), ("decimal", "%1.%2")])
    definition = document.part.numbering_part.element[-2]
    definition[1].append(element("<w:isLgl/>"))
    definition[1].append(element('<w:pStyle w:val="Heading2"/>'))
    linked = '<w:numPr><w:numId w:val="70"/></w:numPr>'
    for name in ("Heading 1", "Heading 2"):
        document.styles[name].element.get_or_add_pPr().append(element(linked))
    for level in (1, 2, 2):
        document.add_heading("总则", level)
    document.add_paragraph("正文。")
    assert parse_document("a.docx", docx_bytes(document)).sections[-1].heading == ("第一章 总则", "1.2 总则")


def test_a_list_defined_by_a_style_has_the_numbers_of_that_style() -> None:
    document = with_lists([("decimal", "§%1")], '<w:num w:numId="71"><w:abstractNumId w:val="71"/></w:num>')
    linked = '<w:abstractNum w:abstractNumId="71"><w:numStyleLink w:val="Articles"/></w:abstractNum>'
    document.part.numbering_part.element.insert(0, element(linked))
    numbered = '<w:pPr><w:numPr><w:numId w:val="70"/></w:numPr></w:pPr>'
    style = f'<w:style w:type="numbering" w:styleId="Articles">{numbered}</w:style>'
    document.styles.element.append(element(style))
    listed(document, "x", 0, 71)
    listed(document, "y")
    assert lines(document) == ["§1 x", "§2 y"]


def test_numbers_in_a_table_are_read_and_bullets_stay_dashes() -> None:
    document = with_lists([("decimal", "%1"), ("bullet", "\uf0b7"), ("none", "")])
    table = document.add_table(rows=3, cols=2)
    table.rows[0].cells[0].text, table.rows[0].cells[1].text = "序号", "项目"
    for row, name in zip(table.rows[1:], ("电源", "风扇"), strict=True):
        place = element('<w:numPr><w:numId w:val="70"/></w:numPr>')
        row.cells[0].paragraphs[0]._p.get_or_add_pPr().append(place)
        row.cells[1].text = name
    listed(document, "third")
    listed(document, "point", 1)
    listed(document, "bare", 2)
    listed(document, "taken away", 0, 0)
    listed(document, "unknown list", 0, 99)
    document.add_paragraph("first", style="List Number")
    document.add_paragraph("dash", style="List Bullet")
    assert lines(document) == [
        "| 序号 | 项目 |", "| --- | --- |", "| 1 | 电源 |", "| 2 | 风扇 |", "3 third", "- point", "bare",
        "taken away", "- unknown list", "1. first", "- dash",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("form", "values"),
    [
        ("decimalZero", {1: "01", 12: "12"}),
        ("lowerLetter", {1: "a", 26: "z", 27: "aa", 999: "999"}),
        ("upperLetter", {2: "B"}),
        ("lowerRoman", {4: "iv", 1994: "mcmxciv", 4000: "4000"}),
        ("upperRoman", {9: "IX"}),
        ("chineseCounting", {0: "零", 10: "十", 11: "十一", 20: "二十", 105: "一百零五", 110: "一百一十"}),
        ("chineseCountingThousand", {1005: "一千零五", 2300: "二千三百", 10_000: "10000"}),
        ("japaneseCounting", {11: "十一", 101: "百一", 120: "百二十"}),
        ("ideographDigital", {10: "一〇", 25: "二五"}),
        ("hindiVowels", {3: "3"}),
    ],
)
def test_numbers_are_written_in_the_formats_of_word(form: str, values: dict[int, str]) -> None:
    assert {value: format_number(form, value) for value in values} == values


def test_a_damaged_list_loses_no_text() -> None:
    document = with_lists([("decimal", "%1." + "x" * 100_000)])
    style = document.styles["List Number"].element
    style.get_or_add_pPr().numPr.numId_val = 70
    style.get_or_add_basedOn().val = "ListNumber"
    document.add_paragraph("kept", style="List Number")
    start = document.part.numbering_part.element[-2][0][0]
    start.set(f"{{{nsmap['w']}}}val", "9" * 5000)
    listed(document, "kept, too")
    assert [line[-4:] for line in lines(document)] == ["kept", " too"]
    assert max(map(len, lines(document))) < 100


def test_checked_and_unchecked_boxes_differ() -> None:
    """Characters of symbol fonts, of a content control, and of a form's box; unknown signs are omitted."""
    document = docx.Document()
    paragraph = document.add_paragraph("验收方式：")._p
    for font, char, after in (
        ("Wingdings", "F0FE", "现场 "), ("Wingdings", "00A8", "远程 "), ("Wingdings 2", "F052", "书面 "),
        ("Segoe UI Symbol", "2612", "电话 "), ("Wingdings", "F0E0", "财务"), ("Wingdings", "F04A", ""),
        ("Webdings", "F061", ""), ("Wingdings", "zz", ""),
    ):  # fmt: skip
        paragraph.append(element(f'<w:r><w:sym w:font="{font}" w:char="{char}"/><w:t>{after}</w:t></w:r>'))
    form = document.add_paragraph("")._p
    for state in ("<w:default/>", '<w:default w:val="1"/><w:checked w:val="0"/>', ""):
        box = f"<w:ffData><w:checkBox><w:sizeAuto/>{state}</w:checkBox></w:ffData>"
        form.append(element(f'<w:r><w:fldChar w:fldCharType="begin">{box}</w:fldChar></w:r>'))
        form.append(element("<w:r><w:instrText>FORMCHECKBOX</w:instrText><w:t>x</w:t></w:r>"))
    assert lines(document) == ["验收方式：☑现场 ☐远程 ☑书面 ☒电话 →财务", "☑x☐x☐x"]


def test_a_table_in_a_cell_keeps_its_rows_and_columns_apart() -> None:
    document = docx.Document()
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip(table._cells, ("部门", "分机", "行政部", "值班："), strict=True):
        cell.text = text
    nested = table.rows[1].cells[1].add_table(rows=3, cols=2)
    for cell, text in zip(nested._cells, ("姓名", "分机", "吴倩", "8101", "", "8102"), strict=True):
        cell.text = text
    assert lines(document)[-1] == "| 行政部 | 值班： 姓名, 分机; 吴倩, 8101; 8102 |"


def test_a_title_across_all_columns_is_put_above_its_table_and_the_next_row_is_the_header() -> None:
    document = docx.Document()
    table = document.add_table(rows=4, cols=3)
    words = ("国庆值班表", "", "", "日期", "早班", "晚班", "10月1日", "杜", "孔", "10月2日", "史", "包")
    for cell, text in zip(table._cells, words, strict=True):
        cell.text = text
    table.rows[0].cells[0].merge(table.rows[0].cells[2])
    assert lines(document) == [
        "国庆值班表", "| 日期 | 早班 | 晚班 |", "| --- | --- | --- |", "| 10月1日 | 杜 | 孔 |",
        "| 10月2日 | 史 | 包 |",
    ]  # fmt: skip


def test_a_last_row_across_all_columns_is_text_below_its_table() -> None:
    document = docx.Document()
    table = document.add_table(rows=3, cols=2)
    for cell, text in zip(
        table._cells, ("Item", "Price", "Lamp", "9", "Prices without tax.", ""), strict=True
    ):
        cell.text = text
    table.rows[2].cells[0].merge(table.rows[2].cells[1])
    assert lines(document) == ["| Item | Price |", "| --- | --- |", "| Lamp | 9 |", "Prices without tax."]


def test_a_table_of_a_title_and_one_row_keeps_the_row() -> None:
    document = docx.Document()
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip(table._cells, ("Contact", "", "Ana", "4417"), strict=True):
        cell.text = text
    table.rows[0].cells[0].merge(table.rows[0].cells[1])
    assert lines(document) == ["| Contact |  |", "| --- | --- |", "| Ana | 4417 |"]


def bold(document: Document, text: str, size: float | None = None) -> None:
    run = document.add_paragraph().add_run(text)
    run.bold, run.font.size = True, None if size is None else Pt(size)


def paths(document: Document) -> list[str]:
    parsed = parse_document("a.docx", docx_bytes(document))
    return [" > ".join(section.heading) for section in parsed.sections]


def test_short_bold_paragraphs_are_the_headings_of_a_document_without_styles() -> None:
    """Discriminates: quoting the text under "Uniform" without that heading; no title above."""
    document = docx.Document()
    for title in ("St Cuthbert's School", "Rules", "Uniform"):
        bold(document, title)
    document.add_paragraph("Navy jumper, white shirt.")
    bold(document, "Lost things")
    document.add_paragraph("Kept by the caretaker.")
    bold(document, "This whole sentence is important.")
    above = "St Cuthbert's School > Rules > "
    assert paths(document) == [above + "Uniform", above + "Lost things"]


def test_numbered_titles_are_the_headings_of_a_document_without_styles_and_bold_text() -> None:
    document = docx.Document()
    for text in ("停车管理办法", "二〇二五年发布。", "一、登记", "按照规定办理。", "二、收费", "每月收取。"):
        document.add_paragraph(text)
    assert paths(document) == ["停车管理办法", "停车管理办法 > 一、登记", "停车管理办法 > 二、收费"]
    items = docx.Document()
    for text in ("请携带以下材料：", "一、身份证", "二、户口本", "三、照片"):
        items.add_paragraph(text)
    assert paths(items) == [""]


def test_smaller_bold_text_is_a_deeper_heading() -> None:
    document = docx.Document()
    bold(document, "停车管理办法", 22)
    document.add_paragraph("二〇二五年发布。")
    for title in ("一、登记", "二、收费"):
        bold(document, title, 16)
        document.add_paragraph("按照规定办理。")
    assert paths(document) == ["停车管理办法", "停车管理办法 > 一、登记", "停车管理办法 > 二、收费"]


def test_bold_is_not_a_heading_beside_styles_in_lists_or_if_nearly_all_is_bold() -> None:
    """Discriminates: emphasis taken for a heading."""
    styled = docx.Document()
    styled.add_heading("Rules", 0)
    styled.add_heading("Uniform", 1)
    bold(styled, "Mind the tie")
    styled.add_paragraph("Navy jumper.")
    assert paths(styled) == ["Rules > Uniform"]
    listed_only, poster = docx.Document(), docx.Document()
    listed_only.add_paragraph("Bring these along.")
    listed_only.add_paragraph(style="List Bullet").add_run("Tie").bold = True
    listed_only.add_paragraph("And a coat.")
    for text in ("Summer fair", "Saturday at noon", "School yard"):
        bold(poster, text)
    poster.add_paragraph("Bring a friend.")
    assert paths(listed_only) == paths(poster) == [""]
