"""PDFs without bookmarks: which lines are headings, which start a new paragraph, and which continue across
pages."""

from __future__ import annotations

import pytest

from services.adapters.readers.documents import parse_document
from services.adapters.readers.outline import Rule, grids
from services.adapters.readers.pdf_pages import Table, without_margins
from services.knowledge.chunking.splitter import StructureSplitter, cut
from tests.support.machine import at_most
from tests.support.stores.make_files import pdf, pdf_of_tables

DATA_SHEET = [
    "SAFETY DATA SHEET", "Product: Klarosol 300, version 6.0, which replaces version 5.2",
    "SECTION 1: Use", "Cleaning of metal parts in immersion baths, and not for consumers at all",
    "of any age. Supplier: Ostrava.", "Emergency telephone (24 h): +420 555",
    "SECTION 4: First aid", "Eyes: rinse with water.", "Skin: wash with water.", "Inhaled: fresh air.",
]  # fmt: skip
LARGE = {DATA_SHEET[0]: "F3 20", DATA_SHEET[2]: "F3 15", DATA_SHEET[6]: "F3 15"}


def outline(lines: list[str], looks: dict[str, str]) -> list[tuple[str, str]]:
    parsed = parse_document("a.pdf", pdf([lines], looks))
    return [(" > ".join(section.heading), section.text) for section in parsed.sections]


@pytest.mark.parametrize(
    "looks",
    [
        LARGE,
        {line: look.replace("F3", "F1") for line, look in LARGE.items()},
        {DATA_SHEET[0]: "F1 20", DATA_SHEET[2]: "F3 12", DATA_SHEET[6]: "F3 12"},
        {},
    ],
    ids=["larger and bold", "larger", "a large title and bold", "section by name"],
)
def test_a_heading_is_recognised_by_its_size_its_weight_or_its_name(looks: dict[str, str]) -> None:
    """Discriminates: joining "SECTION 1: Use" to the previous line; sections without their title."""
    results = outline(DATA_SHEET, looks)
    above = "SAFETY DATA SHEET > "
    assert [heading for heading, _ in results[1:]] == [above + DATA_SHEET[2], above + DATA_SHEET[6]]
    assert results[2][1] == "\n".join(DATA_SHEET[7:])
    assert "SECTION" not in results[0][1] + results[1][1]


def test_chinese_numbers_are_headings_if_nothing_else_marks_any() -> None:
    text = ["车主须在入住后三日内到物业登记车牌。", "每月在五日以前缴纳停车费。", "逾期不缴的不得驶入。"]
    lines = ["停车管理办法", "一、登记", *text, "二、收费", *text]
    above = "停车管理办法 > "
    assert [heading for heading, _ in outline(lines, {})] == [f"{above}一、登记", f"{above}二、收费"]


def test_a_table_of_contents_is_not_a_heading() -> None:
    """Discriminates: titles with page numbers taken for the chapters themselves."""
    text = ["车主须在入住后三日内到物业登记车牌。", "每月在五日以前缴纳停车费。", "逾期不缴的不得驶入。"]
    chapters = ["第一章 登记", "第二章 收费", "第三章 罚则"]
    for leader in (" ", " ........ "):
        contents = ["目录", *(f"{title}{leader}{page}" for page, title in enumerate(chapters, start=1))]
        lines = ["停车管理办法", *contents, *(line for title in chapters for line in (title, *text))]
        (above, listed), *others = outline(lines, {})
        assert (above, listed) == ("停车管理办法", "\n".join(contents))
        assert others == [(f"停车管理办法 > {title}", "\n".join(text)) for title in chapters]


def test_the_labels_of_a_chart_are_not_headings_even_if_they_are_larger() -> None:
    """Discriminates: a chart's name, larger than any title, above all sections that follow."""
    chart = {"Young birds (all boxes)": "F1 30", "10": "F1 22", "200": "F1 22", "Ghent": "F1 22"}
    looks = {"Nest boxes": "F1 20", **dict.fromkeys(["Methods", "Results"], "F3 15"), **chart}
    lines = ["Nest boxes", *DATA_SHEET[3:6], "Methods", *DATA_SHEET[3:6], *chart, "Results", *DATA_SHEET[3:6]]
    headings = [heading for heading, _ in outline(lines, looks)]
    assert headings == ["Nest boxes", "Nest boxes > Methods", "Nest boxes > Results"]


def test_a_title_over_two_lines_is_one_heading() -> None:
    title = ["Do Nest Box Colour-", "Based on Swifts in Three European Cities"]
    results = outline([*title, *DATA_SHEET[3:6]], dict.fromkeys(title, "F3 17"))
    assert [heading for heading, _ in results] == ["".join(title)]


@pytest.mark.parametrize("count", [3, 5])
def test_a_documents_title_over_several_lines_is_one_heading_above_bold_ones(count: int) -> None:
    """Discriminates: a heading for each of its lines, beside which bold lines are none."""
    title, text = (
        ["Do Nest Box Colour", "and Height", "Matter to Swifts", "in Six", "Cities"],
        DATA_SHEET[3:6],
    )
    looks = {**dict.fromkeys(title, "F3 17"), "Methods": "F3 12", "Results": "F3 12"}
    results = outline([*title[:count], *text, "Methods", *text, "Results", *text], looks)
    whole = " ".join(title[:count])
    assert [heading for heading, _ in results] == [whole, f"{whole} > Methods", f"{whole} > Results"]


def test_bold_used_throughout_or_in_a_table_header_is_not_a_heading() -> None:
    """Discriminates: every line in bold; the bold first row of a table."""
    rows = ["City Boxes Young", "Ghent 240 2.0", "Brno 180 1.7"]
    assert [heading for heading, _ in outline([*DATA_SHEET[3:6], *rows], {rows[0]: "F3 12"})] == [""]
    everywhere = outline(DATA_SHEET[3:6], dict.fromkeys(DATA_SHEET, "F3 12"))
    assert [heading for heading, _ in everywhere] == [""]


FINES = [
    "违法行为 罚款 其他",
    "无证采砂 10万—50万元 没收违法所得及船舶",
    "禁采期采砂 20万—100万元 吊销许可证",
    "超量开采 5万—20万元 责令停采三十日整",
    "未安装监控设备 1万—3万元 限期15日改正",
]
WIDE = "近五年我市主要河道年均淤积量约四十七万立方米汛期行洪能力下降约百分之十八，其中白沙河段水位"


def test_rows_of_a_text_table_stay_lines() -> None:
    """Discriminates: taking rows of equal width for a column of wrapped prose."""
    lines = [WIDE, "超过警戒水位，损失很大。", *FINES, "关于生态补偿费：由市里统一收取。", WIDE]
    text = outline(lines, {})[0][1]
    assert text == "\n".join([WIDE + lines[1], *lines[2:]])


@pytest.mark.parametrize(
    "begins", ["四、有关问题的说明", "（二）禁采期内全面禁采", "第三条 本办法由市水利局解释", "2. 船只须登记"]
)
def test_a_number_that_starts_an_item_starts_a_line(begins: str) -> None:
    """Discriminates: joining a heading to a full line that does not end a sentence."""
    assert outline([WIDE, begins], {})[0][1] == f"{WIDE}\n{begins}"


@pytest.mark.parametrize(
    ("line", "following"),
    [(WIDE + "每年4", "月1日至7月31日禁采"), (WIDE + "，补贴", "40%以下"), (WIDE + "0797-", "5553 0416")],
)
def test_a_continued_line_gets_no_blank_within_a_date_or_a_number(line: str, following: str) -> None:
    assert outline([line, following], {})[0][1] == line + following


PROSE = [
    "The office keeps the records of every boat that enters or leaves the harbour for ten",
    "years from the day on which the boat was entered, and shows them to whoever can prove",
    "that a boat of theirs was damaged there. Whoever wants a copy of a record pays for the",
    "paper and for the time that the clerk needs, at the rate that the council has set for it",
]
REST = ["in the year before, and gets the copy within ten days.", "Copies are not certified."]
NOTES = ["1 Council minutes of 3 May 2019, which the harbour master signed.", "2 Ibid."]
SMALL = dict.fromkeys(NOTES, "F1 8")


def over_pages(content: bytes) -> list[tuple[int | None, str]]:
    return [(each.page, each.text) for each in parse_document("a.pdf", content).sections]


def over(pages: list[list[str]], looks: dict[str, str] | None = None) -> list[tuple[int | None, str]]:
    return over_pages(pdf(pages, looks or {}))


def test_lines_of_code_stay_lines_but_not_those_of_a_typed_letter() -> None:
    """Discriminates: joining the lines of a listing that are as long as those of the text, or to the text."""
    code = [f"harbour --berth {number} --boat Ellen --from 2026-05-01 --to 2026-05-31" for number in "12"]
    looks = dict.fromkeys(code, "F5 10")
    assert over([[*PROSE, *code, *PROSE]], looks)[0][1].splitlines()[1:3] == code
    assert over([PROSE], dict.fromkeys(PROSE, "F5 10")) == [(1, " ".join(PROSE))]


def test_a_sentence_across_pages_is_one_text_followed_by_its_notes() -> None:
    """Discriminates: ending a section at each page; a footnote in the middle of the sentence."""
    sentence = " ".join([*PROSE, REST[0]])
    assert over([PROSE, REST]) == [(1, f"{sentence}\n{REST[1]}")]
    assert over([[*PROSE, *NOTES], REST], SMALL) == [(1, "\n".join([sentence, *NOTES, REST[1]]))]
    whole = [*PROSE, "in the year before."]
    assert over([[*whole, *NOTES], PROSE], SMALL)[0] == (1, "\n".join([" ".join(whole), *NOTES]))


def test_small_lines_without_note_numbers_are_not_notes() -> None:
    """Discriminates: taking numbers at the start of code lines or rows for note marks."""
    code = ["4 CARD32 ALIAS_LIST_OFFSET", "4 CARD32 PARENT_LIST_OFFSET", "8 CARD32 ICONS_LIST_OFFSET"]
    assert over([[*PROSE, *code], REST], dict.fromkeys(code, "F1 8"))[0][1].endswith("\n".join(code))


def test_a_chunk_has_the_page_it_begins_on() -> None:
    """Discriminates: the page of the section for all its chunks."""
    pages = [[*PROSE, *NOTES], [REST[0], *PROSE[:3], "end."], ["Page three."]]
    pieces = [*cut(parse_document("a.pdf", pdf(pages, SMALL)), StructureSplitter(chunk_tokens=30))]
    assert {piece.page for piece in pieces} == {1, 2, 3}
    assert next(piece.page for piece in pieces if piece.text.startswith(NOTES[0])) == 1
    second = [piece.page for piece in pieces if "whoever can prove" in piece.text]
    assert second == [1, 2]


def test_a_heading_at_the_bottom_of_a_page_belongs_to_the_text_on_the_next() -> None:
    """Discriminates: a section of the heading alone, which every question on its subject would find."""
    looks = {"Deposit": "F3 18", "Move-out": "F3 18"}
    content = pdf([["Deposit", *PROSE, "Move-out"], PROSE], looks)
    results = parse_document("a.pdf", content).sections
    assert [(section.heading, section.page) for section in results] == [(("Deposit",), 1), (("Move-out",), 2)]
    assert not any("Move-out" in section.text for section in results)


def test_a_heading_at_the_top_of_a_page_begins_a_section() -> None:
    """Discriminates: taking the text above it for the beginning of its line."""
    results = over([PROSE, ["fees and fines", *PROSE]], {"fees and fines": "F3 18"})
    assert [page for page, _ in results] == [1, 2]
    assert "fees" not in results[0][1]


@pytest.mark.parametrize(
    "pages",
    [
        [["Our goals", "Fewer complaints about late boats", "More berths for visitors of the town"],
         ["Our means", "A second crane from next summer"]],
        [["我们的目标", "提升来港船舶满意度至百分之九十五", "新增访客泊位并改造东侧防波堤工程"],
         ["我们的措施", "明年夏季起启用第二台起重机设备"]],
        [[*PROSE[:3], "paper."], PROSE],
    ],
    ids=["slides", "slides in Chinese", "a paragraph that ends"],
)  # fmt: skip
def test_pages_that_do_not_continue_are_separate_sections(pages: list[list[str]]) -> None:
    """Discriminates: joining every page to the previous one."""
    assert [page for page, _ in over(pages)] == [1, 2]


LAW = ["第七条 船舶进出港口应当向港口管理机构报告，并按照本条例的规定缴纳港口使用费用。",
       "第八条 港口管理机构应当自收到报告之日起三日内作出答复，不予批准的应当说明理由。"]  # fmt: skip


def test_an_article_or_list_of_a_law_is_not_split_at_the_page() -> None:
    """Discriminates: an article's second paragraph, or the next item of its list, as a separate section."""
    more = "逾期不答复的，视为同意。"
    assert over([LAW, [more, "第九条 本条例自公布之日起施行。"]])[0] == (
        1,
        "\n".join([*LAW, more, "第九条 本条例自公布之日起施行。"]),
    )
    items = ["（一）未按规定报告的；", "（二）拒绝检查的。"]
    assert over([[*LAW, items[0]], items[1:]]) == [(1, "\n".join([*LAW, *items]))]
    assert [page for page, _ in over([LAW, ["第九条 本条例自公布之日起施行。"]])] == [1, 2]


def test_repeated_headers_and_footers_of_a_few_pages_stay_out_of_sentences() -> None:
    """Discriminates: reading the headers and page numbers of two pages as text."""
    sentence = " ".join([*PROSE, REST[0]])
    pages = [
        ["Harbour rules", *PROSE, "- 1 -", "Town of Lier"],
        ["Harbour rules", *REST, "- 2 -", "Town of Lier"],
    ]
    assert over(pages) == [(1, f"Harbour rules\n{sentence}\n{REST[1]}\nTown of Lier")]
    assert over([["Paid: 1"], ["Paid: 2"]]) == [(1, "Paid: 1"), (2, "Paid: 2")]


@pytest.mark.parametrize("file_name", ["a.pdf", "a.txt"])
def test_ocr_text_is_read_as_typed(file_name: str) -> None:
    """Discriminates: a blank between all characters, with which no word is found."""
    lines = [
        "公 司 年 假 规 定",
        "员 工 入 职 满 1 年 的 ， 每 年 享 受 年 假 5 天 ， 由 部 门 批 准 后 执",
        "行 。",
    ]
    content = pdf([lines], {lines[0]: "F2 20"}) if file_name == "a.pdf" else "\n".join(lines).encode()
    section = parse_document(file_name, content).sections[0]
    body = "员工入职满1年的，每年享受年假5天，由部门批准后执"
    if file_name == "a.pdf":
        assert section.text == f"公司年假规定\n{body}行。"
    else:
        assert section.text == f"公司年假规定\n{body}\n行。"


def test_a_chapters_name_above_each_of_its_pages_is_not_text() -> None:
    """Discriminates: leaving running heads that are not on most pages; omitting a title over slides."""
    texts = [[f"{letter} {line}" for line in PROSE] for letter in "ABCDEFGHIJ"]
    heads = ["Berths", "12 Fees", "Fees 13", "14 Fees", "Slides", "Slides", "Slides", "", "", ""]
    pages = [[head, *text] if head else text for head, text in zip(heads, texts, strict=True)]
    pages[0].append("Chapter 2. Fees")
    looks = {"Slides": "F3 18", "Chapter 2. Fees": "F3 18"}
    results = parse_document("a.pdf", pdf(pages, looks)).sections
    assert "Berths" in [*results[0].heading, results[0].text.split()[0]]
    assert not any("Fees" in section.text for section in results)
    assert any("Slides" in section.heading for section in results)


@pytest.mark.parametrize(
    ("title", "look"), [("Lesson {}", "F1 18"), ("Day {}: Oslo", "F3 12"), ("Seat {}", "")]
)
def test_a_title_with_a_page_count_is_not_a_margin(title: str, look: str) -> None:
    """Discriminates: taking the title of every page for a running head; emptying a page with only a title."""
    titles = [title.format(number) for number in range(1, 9)]
    looks = dict.fromkeys(titles, look) if look else {}
    texts = [[f"{letter} {line}" for line in PROSE] if look else [] for letter in "ABCDEFGH"]
    pages = [[title, *text] for title, text in zip(titles, texts, strict=True)]
    results = parse_document("a.pdf", pdf(pages, looks))
    assert [section.heading or (section.text,) for section in results.sections] == [
        (each,) for each in titles
    ]


@pytest.mark.parametrize("count", [2, 5])
def test_an_answer_that_happens_to_end_several_pages_is_not_a_margin(count: int) -> None:
    """Discriminates: omitting text at the foot of a page that is also in its middle."""
    pages = [
        [line for at in range(4) for line in (f"{page}.{at} Who pays?", "A. Boats B. Clerks")]
        for page in range(count)
    ]
    assert " ".join(text for _, text in over(pages)).count("A. Boats B. Clerks") == 4 * count


def test_a_page_header_that_is_a_table_is_read_once() -> None:
    """Discriminates: the header of every page between sentences; taking tables of the text for headers."""
    pages: list[list[str]] = []
    for number in range(1, 7):
        head = [["SOP-017", "Cleaning", "Rev. 3"], ["Moor", "2024-03-01", f"Page {number} of 6"]]
        rows = [["Step", "What", "Who"], [f"{number}", "Wash", f"{number**2}"]]
        tables = [Table.of(each, [[1, 1, 1]] * 2, [72.0, 300.0, 500.0]) for each in (head, rows)]
        pages.append([tables[0], "text of " + "abcdef"[number - 1], tables[1]])
    assert without_margins(pages, [set()] * 6) == [pages[0], *(page[1:] for page in pages[1:])]


FAULTS = [
    ["Code", "Fault", "Remedy"],
    ["E101", "Filter\nclogged", "Close the valve and wait, then\nrestart the pump"],
    ["E102", "Sensor lost", "Call service"],
]
EDGES = (72, 120, 200, 400)
FAULTS_TEXT = """| Code | Fault | Remedy |
| --- | --- | --- |
| E101 | Filter clogged | Close the valve and wait, then restart the pump |
| E102 | Sensor lost | Call service |"""


def test_a_table_with_rules_is_a_table() -> None:
    """Discriminates: its rows as one paragraph; joining the lines of a cell without a blank,
    "thenrestart"."""
    assert over_pages(pdf_of_tables([FAULTS], EDGES)) == [(1, FAULTS_TEXT)]


def test_a_table_without_rules_at_its_sides_has_all_its_columns() -> None:
    """Discriminates: only the columns between two rules, with the others' texts above and below."""
    rows = [[*row, "x"] for row in FAULTS]
    text = over_pages(pdf_of_tables([rows], (*EDGES, 440), closed=False))[0][1]
    assert text.splitlines()[-1] == "| E102 | Sensor lost | Call service | x |"
    assert over_pages(pdf_of_tables([FAULTS], EDGES, closed=False)) == [(1, FAULTS_TEXT)]


def test_short_lines_of_a_cell_are_not_joined() -> None:
    """Discriminates: joining two names, or list items, in a cell to one Chinese word; splitting a
    sentence."""
    rules = " ".join(f"72 {700 - 40 * at} 200 0.5 re f {72 + 100 * at} 620 0.5 80 re f" for at in range(3))
    cells = {"姓名": (80, 686), "步骤": (180, 686), "张三": (80, 646), "李四": (80, 632)}
    cells |= {"因身体不适需要": (180, 646), "住院治疗": (180, 632)}
    texts = " ".join(
        f"BT /F2 12 Tf 1 0 0 1 {x} {y} Tm <{text.encode('utf-16-be').hex()}> Tj ET"
        for text, (x, y) in cells.items()
    )
    drawn = f"F1 12 Tf ET {rules} {texts} BT /F1 12"
    assert "| 张三 李四 | 因身体不适需要住院治疗 |" in over([["end"]], {"end": drawn})[0][1]


def test_a_table_across_pages_repeats_its_header() -> None:
    """Discriminates: taking its first row on the next page for the header; repeating a header that is already
    repeated."""
    more = ["E103", "Valve open", "Close it"]
    header = FAULTS_TEXT[: FAULTS_TEXT.index("| E101")]
    for page in ([more, FAULTS[2]], [FAULTS[0], more, FAULTS[2]]):
        second = over_pages(pdf_of_tables([FAULTS, page], EDGES))[1]
        assert second == (
            2,
            f"{header}| E103 | Valve open | Close it |\n| E102 | Sensor lost | Call service |",
        )


def test_a_cell_across_two_columns_applies_to_both() -> None:
    rows = [["City", "Boxes", "<"], ["", "2024", "2025"], ["Ghent", "240", "251"]]
    assert over_pages(pdf_of_tables([rows], EDGES))[0][1] == (
        "| City | Boxes / 2024 | Boxes / 2025 |\n| --- | --- | --- |\n| Ghent | 240 | 251 |"
    )


def test_boxes_around_text_are_not_a_table() -> None:
    """Discriminates: reading a page laid out in boxes, or a drawing with a few, as cells."""
    long = ["\n".join(["A line of the text in a large box that"] * 20), "", "and another"]
    assert "|" not in over_pages(pdf_of_tables([[long, ["a", "b", "c"]]], (72, 330, 340, 500)))[0][1]
    assert "|" not in over_pages(pdf_of_tables([[["a", "", ""], ["", "", ""], ["", "", "b"]]], EDGES))[0][1]


def test_a_first_row_of_long_cells_is_not_a_header() -> None:
    """Discriminates: cards, or a data sheet, whose first row is repeated for every other."""
    long = "\n".join(["Whoever wants a copy of a record pays for it."] * 9)
    text = over_pages(
        pdf_of_tables([[["Purpose", long], ["Owner", "Moor"], ["Scope", long]]], (72, 200, 500))
    )
    assert text[0][1].count("Whoever") == 18
    assert text[0][1].count("Purpose") == 1


def test_graph_paper_takes_little_time() -> None:
    """Discriminates: comparing each of 2,000 rules with each other one."""
    rules = [Rule(4.0 * at, 0, 8000) for at in range(1_990)]
    with at_most(0.5):
        assert [*grids(rules, rules)] == []


def test_rows_without_rules_stay_rows_and_lines_of_cells_are_not_joined() -> None:
    """Discriminates: joining rows of equal width to a paragraph; joining "clogged" to "Filter"."""
    rows = [
        ["Code", "Fault", "Remedy"],
        ["E101", "Filter\nclogged", "Close the valve and wait, then restart the pump at once"],
        ["E102", "Sensor lost", "Close the valve and look for a loose plug at the sensor"],
        ["E103", "Valve open", "Close the valve by hand and look for dirt in the thread"],
    ]
    text = "\n".join(" ".join(row).replace("\n", " ") for row in rows)
    assert over_pages(pdf_of_tables([rows], (72, 120, 200, 500), ruled=False)) == [(1, text)]


def test_the_rows_of_a_form_are_lines() -> None:
    """Discriminates: taking its first row for a table header; reading a check box as a bullet."""
    rows = [
        ["Name", "Ana Horn", "Office", "Lier"],
        ["Leave", "ten days in May\n\xb7 paid", "<", "<"],
        ["Reason", "a move", "<", "<"],
    ]
    text = "Name Ana Horn Office Lier\nLeave ten days in May • paid\nReason a move"
    assert over_pages(pdf_of_tables([rows], (72, 120, 200, 260, 400))) == [(1, text)]


def test_a_form_whose_first_row_has_a_wide_cell_is_not_a_table_but_an_invoice_is() -> None:
    """Discriminates: joining its second row to the header, repeating the wide cell; taking sums for a
    form."""
    form = [["Name: Ana Horn", "<", "Born: 1980"], ["Town: Lier", "Box 5", "Phone: 12"], ["Notes:", "<", "<"]]
    text = "Name: Ana Horn Born: 1980\nTown: Lier Box 5 Phone: 12\nNotes:"
    assert over_pages(pdf_of_tables([form], EDGES)) == [(1, text)]
    invoice = [["Article", "Pieces", "Price"], ["Boat", "1", "90.00"], ["Oar", "2", "5.00"]]
    sums = [["Sum", "<", "100.00"], ["VAT", "<", "19.00"], ["Total", "<", "119.00"]]
    text = over_pages(pdf_of_tables([[*invoice, *sums]], EDGES))[0][1]
    assert text.splitlines()[2] == "| Boat | 1 | 90.00 |"
    assert text.splitlines()[-1] == "| Total |  | 119.00 |"


def test_a_line_break_drawn_in_a_table_separates_the_text_after_it() -> None:
    """Discriminates: joining labels printed by a browser, "Read filesWrite files". pypdf reports a line break
    at the position where the matrix of its letters began, which here is in the table."""
    rules = " ".join(f"0 {20 * at} 200 0.5 re f {100 * at} 0 0.5 40 re f" for at in range(3))
    words = {"Role": (8, 26), "May": (108, 26), "Clerk": (8, 6), "x": (108, 6)}
    words |= {"Read.": (72, 500), "Write.": (72, 480)}
    texts = " ".join(f"BT /F1 12 Tf 1 0 0 1 {x} {y} Tm ({word}) Tj ET" for word, (x, y) in words.items())
    drawn = f"F1 12 Tf ET {rules} {texts} BT /F1 12"
    assert over([["end"]], {"end": drawn})[0][1].splitlines()[-3:] == ["Read.", "Write.", "end"]


def test_a_word_of_rotated_text_stays_one_word() -> None:
    """Discriminates: taking its second part, further down the page, for the next line of a cell."""
    down = "F1 12 Tf 0 -1 1 0 300 500 Tm (some) Tj ET BT 0 -1 1 0 300 473 Tm (thing) Tj ET BT /F1 12"
    assert over([["upright"]], {"upright": down}) == [(1, "something upright")]
