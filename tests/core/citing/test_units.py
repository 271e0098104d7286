"""Quotable units: a unit has the line that heads it and is never that line alone; one point of several; and
the parts that are embedded separately."""

from __future__ import annotations

import pytest

from core.citing.units import UnitKind, beginning, indexed_parts, nearest_part, quotable_units, units_of
from core.knowledge import Candidate, Chunk
from core.relevance.meaning import with_parts
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import SparseTerms


def units(text: str) -> list[tuple[str, str]]:
    """Return each unit with its heading."""
    return [(unit.head, text[unit.start : unit.end].strip()) for unit in quotable_units(text)]


STOP = "必须马上停药来医院的情况\n1. 发热38℃以上；\n2. 皮肤发黄。\n轻度瘙痒不必停药。"


@pytest.mark.parametrize("before", ["", "漏服了怎么办\n不要一次吃双倍。\n\n", "漏服时跳过这一次。\n"])
def test_a_line_above_a_list_introduces_it_even_without_a_colon(before: str) -> None:
    """Discriminates: "no need to stop" quoted without "stop at once in these cases"; the introduction
    alone."""
    head, _, listed = STOP.partition("\n")
    assert units(before + STOP)[-1] == (head, listed)
    assert all(text != head for _, text in units(before + STOP))


def test_a_sentence_above_a_list_is_a_separate_unit() -> None:
    """Discriminates: prose that is dropped as a heading, or repeated above the list."""
    assert units("Rooms are booked in OA.\n- Take the key.") == [
        ("", "Rooms are booked in OA."),
        ("", "- Take the key."),
    ]


TABLE = "| 指标 | 2024年 |\n|---|---|\n| 营业收入 | 61892 |"


@pytest.mark.parametrize(
    ("above", "head"),
    [
        ("主要财务指标（单位：万元）\n\n", "主要财务指标（单位：万元）"),
        ("All figures are in thousands of EUR.\n", "All figures are in thousands of EUR."),
        ("第九条 退款在两天内发起。到账时间如下：\n\n", "到账时间如下："),
        ("**改进项**\n\n单位：万元\n\n", "**改进项**\n单位：万元"),
        ("下面是一段说明。\n\n", ""),
    ],
    ids=["a title", "a sentence", "an article's last sentence", "a heading and a unit", "a paragraph"],
)
def test_a_table_is_quoted_with_the_line_above_it(above: str, head: str) -> None:
    """Discriminates: 61892 without its unit; an article or a sentence swallowed by the table."""
    assert units(above + TABLE)[-1] == (head, TABLE)
    sentences = [text for _, text in units(above + TABLE)[:-1]]
    assert sentences == ([above.strip()] if "。" in above or "." in above else [])


@pytest.mark.parametrize(
    "heading",
    [
        "**Lost things**",
        "== Lost things ==",
        "【Lost things】",
        "二、Lost things",
        "第二章 Lost things",
        "Lost things",
    ],
)
def test_a_heading_line_is_quoted_with_each_paragraph_below_it_and_never_alone(heading: str) -> None:
    """Discriminates: a bold line alone; a second paragraph without it; the next section with it."""
    rules = ["Kept by the caretaker.", "After four weeks they are given to charity."]
    text = "\n\n".join([heading, *rules, "**Fire.** Leave by the stairs.", "**More to come**"])
    assert units(text) == [*((heading, rule) for rule in rules), ("", "**Fire.** Leave by the stairs.")]


def test_items_numbered_like_headings_are_not_headings() -> None:
    """Discriminates: an item that is lost, or becomes the heading of another; a heading of another kind above
    one."""
    items = ["一、身份证", "二、户口本", "三、照片"]
    assert [text for _, text in units("\n\n".join(items))] == items
    assert units("第一章 总则\n\n一、目的\n\n保证安全。") == [("一、目的", "保证安全。")]


@pytest.mark.parametrize(
    "points",
    [
        ["OP-1: Is it needed on day one? (customer, by 30 June)", "OP-2: How long is the log kept? Open."],
        ["1 (a) State what is meant by discharge [2]", "1 (b) Study the figure. Describe it. [4]"],
        ["“谁封的？”", "“官府封的。”他说。"],
    ],
)
def test_the_first_of_several_similar_points_is_not_a_title(points: list[str]) -> None:
    """Discriminates: a point that can never be quoted because it begins the passage and lacks a full stop."""
    assert [text for _, text in units("\n\n".join(points))] == points


@pytest.mark.parametrize(
    "points",
    [["（一）一期三天；", "（二）二期五天。"], ["FR-02 每餐三份。", "FR-03 过期作废。"]],
    ids=["（一）", "FR-02"],
)
def test_a_point_with_a_code_is_a_unit_under_the_common_heading(points: list[str]) -> None:
    """Discriminates: quoting the whole section for one of its points; splitting up steps."""
    assert units("施工时间\n" + "\n".join(points)) == [("施工时间", point) for point in points]
    assert len(units("1. Open the lid.\n2. Press the button.")) == 1


LETTER = "thank you for the signed agreement.\n\nThe lorry leaves Lund on Monday."


@pytest.mark.parametrize(
    ("greeting", "closing"),
    [
        ("Dear Daniel,", "Kind regards\nTom Keller\nPurchasing"),
        ("Hi both,", "Best wishes\nClara"),
        ("辖区各单位、各小区居民：", "特此通告。"),
        ("Tom 先生您好：", "此致\n敬礼"),
    ],
)
def test_greetings_and_closing_formulas_are_not_units(greeting: str, closing: str) -> None:
    assert [text for _, text in units(f"{greeting}\n\n{LETTER}\n\n{closing}")] == LETTER.split("\n\n")
    assert units(closing) == [("", closing)]


def test_a_closing_formula_with_a_number_to_call_is_kept() -> None:
    closing = "Kind regards\nTom Keller\n0574-5550 6621"
    assert units(f"{LETTER}\n\n{closing}")[-1] == ("", closing)


BAN = "Never use water on it."


@pytest.mark.parametrize(
    ("ban", "below", "together"),
    [
        (BAN, "Use a dry cloth.", True),
        ("严禁用水擦拭。", "应使用干的软布。", True),
        (BAN, f"Use a dry cloth. {'It may be of wool. ' * 20}".strip(), False),
        (BAN, "The shop opens at nine.", False),
        (BAN, "Do not use oil.", False),
    ],
)
def test_a_paragraph_with_only_a_prohibition_comes_with_the_alternative(
    ban: str, below: str, together: bool
) -> None:
    """Discriminates: the prohibition quoted without the alternative; a prohibition joined with whatever
    follows it."""
    paragraphs = [f"{ban}\n\n{below}"] if together else [ban, below]
    assert units(f"It is old.\n\n{ban}\n\n{below}") == [("", each) for each in ("It is old.", *paragraphs)]


def test_a_table_of_many_rows_is_one_unit() -> None:
    text = "| a | b |\n|---|---|\n" + "".join(f"| {n} | x |\n" for n in range(10_000))
    (unit,) = units_of(text)
    assert (unit.kind, len(unit.rows)) == (UnitKind.TABLE, 10_000)


LIST = "Bring:\n- a passport\n- two photos\n\nThe desk is on level 2."
PARTS = {
    "**Q: Where?**\nHere.\n\n**Q: When?**\nAt nine.": ["**Q: Where?**\nHere.", "**Q: When?**\nAt nine."],
    "第一条 收房须带证件。\n\n第二条 搬家须预约。": ["第一条 收房须带证件。", "第二条 搬家须预约。"],
    LIST: ["Bring:", "- a passport", "- two photos", "The desk is on level 2."],
    "One paragraph of prose.\n\nAnother one.": [],
    "第一条 收房须带证件。": [],
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n```\n- code\n- code\n```": [],
    "": [],
}  # fmt: skip


@pytest.mark.parametrize("text", PARTS)
def test_an_enumeration_is_embedded_part_by_part(text: str) -> None:
    """Discriminates: prose embedded twice; parts that do not name their subject."""
    chunk = Chunk("", "", "", text, 0, heading="House rules > Arrival", date="2026")
    expected = [f"House rules > Arrival 2026\n{part}" for part in PARTS[text]]
    assert indexed_parts(chunk) == expected


WARRANTY = "2. Warranty\n2.1 Sensors: 36 months.\n2.2 Gateways: 60 months."


def nearest(text: str, vectors: list[list[float]]) -> str:
    """Return the part nearest to a question whose vector points along the first dimension."""
    signs = with_parts("", vectors) if vectors else ""
    return nearest_part(Query("q", (QueryForm("q", [1.0, 0.0], SparseTerms([], [])),)), Candidate(
        Chunk("", "", "", text, 0), signs=signs
    ))  # fmt: skip


def test_the_part_nearest_by_vector_is_selected_and_never_a_title() -> None:
    """Discriminates: a title or a signature in place of the answer; vectors of parts that were split
    differently."""
    assert nearest(WARRANTY, [[0.9, 0.0], [0.1, 0.9], [0.8, 0.5]]) == "2.2 Gateways: 60 months."
    assert nearest(WARRANTY, [[0.9, 0.0], [0.1, 0.9]]) == ""
    assert nearest(WARRANTY, []) == ""
    assert nearest("Prose.", [[0.9, 0.0]]) == ""
    mail = "Packing:\n- plywood crates\n- no pine\n\nKind regards\nTom"
    assert nearest(mail, [[0.1, 0.0], [0.7, 0.0], [0.2, 0.0], [0.9, 0.0]]) == "- plywood crates"


def test_a_text_that_begins_inside_a_code_block_is_quoted_as_code() -> None:
    """Discriminates: taking its closing fence for the opening of another block, and closing it again."""
    assert beginning("SELECT 1;\n```", 100) == "```\nSELECT 1;\n```"
    assert beginning("```\nSELECT 1;", 100) == "```\nSELECT 1;\n```"
