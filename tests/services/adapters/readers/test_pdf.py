"""PDFs without bookmarks: which of their lines are headings, and which begin something new."""

from __future__ import annotations

import time

import pytest

from services.adapters.readers.documents import parse_document
from tests.support.stores.make_files import pdf, pdf_with_maps

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
    ("looks", "above"),
    [
        (LARGE, "SAFETY DATA SHEET > "),
        ({line: look.replace("F3", "F1") for line, look in LARGE.items()}, "SAFETY DATA SHEET > "),
        ({DATA_SHEET[0]: "F1 20", DATA_SHEET[2]: "F3 12", DATA_SHEET[6]: "F3 12"}, "SAFETY DATA SHEET > "),
        ({}, ""),
    ],
    ids=["larger and bold", "larger", "a large title and bold", "section by name"],
)
def test_a_heading_is_known_by_its_size_its_weight_or_its_name(looks: dict[str, str], above: str) -> None:
    """Discriminates: "SECTION 1: Use" glued to the line before; sections without their title."""
    results = outline(DATA_SHEET, looks)
    assert [heading for heading, _ in results[1:]] == [above + DATA_SHEET[2], above + DATA_SHEET[6]]
    assert results[2][1] == "\n".join(DATA_SHEET[7:])
    assert "SECTION" not in results[0][1] + results[1][1]


def test_a_title_over_two_lines_is_one_heading() -> None:
    title = ["Do Nest Box Colour and Height Matter?", "Swifts in Three European Cities"]
    results = outline([*title, *DATA_SHEET[3:6]], dict.fromkeys(title, "F3 17"))
    assert [heading for heading, _ in results] == [" ".join(title)]


def test_what_is_in_bold_everywhere_or_heads_a_table_is_no_heading() -> None:
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


def test_rows_of_a_table_in_words_stay_lines() -> None:
    """Discriminates: rows as wide as each other taken for a column of wrapped prose."""
    lines = [WIDE, "超过警戒水位，损失很大。", *FINES, "关于生态补偿费：由市里统一收取。", WIDE]
    text = outline(lines, {})[0][1]
    assert text == "\n".join([WIDE + lines[1], *lines[2:]])


@pytest.mark.parametrize(
    "begins", ["四、有关问题的说明", "（二）禁采期内全面禁采", "第三条 本办法由市水利局解释", "2. 船只须登记"]
)
def test_a_number_that_begins_something_begins_a_line(begins: str) -> None:
    """Discriminates: a heading glued to a full line that ends no sentence."""
    assert outline([WIDE, begins], {})[0][1] == f"{WIDE}\n{begins}"


@pytest.mark.parametrize(
    ("line", "following"),
    [(WIDE + "每年4", "月1日至7月31日禁采"), (WIDE + "，补贴", "40%以下"), (WIDE + "0797-", "5553 0416")],
)
def test_a_line_that_goes_on_gets_no_blank_within_a_date_or_a_number(line: str, following: str) -> None:
    assert outline([line, following], {})[0][1] == line + following


HAN = "".join(map(chr, range(0x4E00, 0x4E00 + 6_000)))


def test_a_font_is_read_once_for_all_pages_that_name_it() -> None:
    """Discriminates: its map of 6,000 characters read for every page, thirty times as long."""
    times = []
    for pages in (1, 1, 30):  # the first loads what reads
        content = pdf_with_maps([[HAN[number : number + 20]] for number in range(pages)], [HAN])
        began = time.process_time()
        parsed = parse_document("a.pdf", content)
        times.append(time.process_time() - began)
    assert HAN[29:49] in parsed.sections[-1].text
    assert times[2] < 8 * times[1]


def test_fonts_of_one_name_are_not_mixed_up() -> None:
    """Discriminates: fonts held by the name that a page has for them."""
    parsed = parse_document("a.pdf", pdf_with_maps([["ab"], ["xy"], ["ba"]], ["ab", "xy"]))
    assert [line for section in parsed.sections for line in section.text.split()] == ["ab", "xy", "ba"]
