"""What is quoted whole: rows with their column names, a question with its answer, code, an article."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.citing.quoting import Quotables, Quote
from core.citing.units import indexed_parts, units_of
from core.knowledge import Chunk
from core.relevance.features import MAX_QUESTION_CHARS
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import SparseTerms

PRICES = """下表是价格。

| 型号 | 名称 | 价格（元） |
| --- | --- | --- |
| AX-220 | 泵 | 300 |
| AX-221 | 泵（不锈钢） | 450 |
| BX-1 | 阀 | 20 |
"""
RULES = """第一条 员工每天工作八小时。
第二条 迟到三十分钟以内扣五十元。
第三条 旷工一天扣三天工资。
"""
FAQ = """**Q：工资条的密码忘了怎么办？**
A：在登录页点“忘记密码”。

**Q：银行卡换了怎么办？**
A：每月 5 日之前交变更单。
"""


def quoted(question: str, *texts: str, heading: str = "") -> list[str]:
    query = Query(question, (QueryForm(question, [], SparseTerms([], [])),))
    return [quote.text for quote in Quotables([(heading, text) for text in texts]).quotes(query, question)]


def test_a_row_is_quoted_with_its_column_names() -> None:
    """Discriminates: the header without the row, and the row without its header."""
    assert quoted("AX-221 多少钱", PRICES) == ["- 型号：AX-221；名称：泵（不锈钢）；价格（元）：450"]


@pytest.mark.parametrize(
    ("question", "price"),
    [
        ("6 个人包车多少钱", "900"), ("包车，我们 20 人", "1500"),
        ("包车 3 人", "600"), ("coach for 45 people", "1500"),
        ("六个人包车", "900"), ("包车，我们二十人", "1500"),
    ],
)  # fmt: skip
def test_the_row_with_the_range_of_the_amount_is_quoted(question: str, price: str) -> None:
    """Discriminates: rows by their words alone, which they share."""
    rows = (
        "| {} | 5 人以下 | 600 |\n| {} | 6–14 人 | 900 |\n| {} | 15 至 45 人 | 1500 |\n| {} | 不限 | 3000 |"
    )
    text = "| 车 | 人数 | 价格 |\n|---|---|---|\n" + rows.replace("{}", "包车 coach")
    (quote,) = quoted(question, text)
    first, *others = (line.rpartition("：")[2] for line in quote.splitlines())
    assert (first, {*others} <= {"3000"}) == (price, True)


def test_up_to_five_matching_rows_are_quoted_with_the_number_of_others() -> None:
    rows = "".join(f"| P-{number} | pump | {number} |\n" for number in range(8))
    text = f"| Part | Kind | Price |\n|---|---|---|\n| V-1 | valve | 3 |\n{rows}"
    (quote,) = quoted("which pump is there", text)
    assert quote.count("Kind: pump") == 5
    assert quote.endswith("- … +3")
    assert "valve" not in quote


LEVELS = [f"| {level} | {name} | {price} |" for level, name, price in (
    ("M1", "Pebble", 0), ("M2", "Ridge", 3), ("M3", "Summit", 5), ("M4", "Polaris", 8), ("M5", "Sky", 9),
    ("M6", "Star", 10),
)]  # fmt: skip


def stepped(question: str) -> list[str]:
    before = "What discount does Ridge have?"
    forms = tuple(QueryForm(text, [], SparseTerms([], [])) for text in (question, f"{before} {question}"))
    text = "\n".join(["| Code | Name | Discount |", "|---|---|---|", *LEVELS])
    query = Query(question, forms, (before,))
    return [quote.text for quote in Quotables([("Names", text)]).quotes(query, forms[1].text)]


@pytest.mark.parametrize("question", ["And one level up?", "再上一级呢？"])
def test_a_follow_up_about_a_step_quotes_the_rows_beside_the_previous_one(question: str) -> None:
    """Discriminates: the row of the previous question alone; every row of the table."""
    (quote,) = stepped(question)
    assert [row[2:4] for row in LEVELS if row[2:4] in quote] == ["M1", "M2", "M3", "M4"]
    assert "M3" not in "".join(stepped("And what is that?"))


def test_a_faq_question_is_quoted_with_its_answer() -> None:
    assert quoted("工资条密码忘了", FAQ)[0].startswith("**Q：工资条的密码")
    assert "忘记密码" in quoted("工资条密码忘了", FAQ)[0]
    assert "变更单" not in quoted("工资条密码忘了", FAQ)[0]


def test_of_several_articles_the_right_one_is_quoted_whole() -> None:
    assert quoted("迟到会扣钱吗", RULES) == ["第二条 迟到三十分钟以内扣五十元。"]


def test_a_short_passage_is_quoted_whole_if_several_units_match() -> None:
    """Discriminates: only the shortest of the tied units, or all of them out of order."""
    text = "Refund by card: 7 days.\n\nRefund in cash, at the desk: today.\n\nRefund by cheque: none."
    assert quoted("Is there a refund?", text) == [text]
    assert len(quoted("Is there a refund?", text.replace("\n\n", "." * 300 + "\n\n"))) == 3


ASKED = [
    "问：近视能报名吗？\n答：矫正到 4.9 就行。",
    "问：教练能换吗？\n答：可以免费换一次。",
    "问：外国人能报名吗？\n答：带护照。",
]


@pytest.mark.parametrize(
    ("question", "quotes"),
    [("听不见的人能报名吗", {ASKED[0], ASKED[2]}), ("怀孕了教练知道要紧吗", {ASKED[1]})],
)
def test_a_short_list_of_questions_is_not_quoted_whole(question: str, quotes: set[str]) -> None:
    """Discriminates: quoting the answers to all its questions, if two have the words or one has few of
    them."""
    assert {*quoted(question, "\n".join(ASKED))} == quotes


def test_a_list_of_questions_is_quoted_whole_rather_than_all_but_one() -> None:
    """Discriminates: three answers with some of the words, without the fourth, which is meant."""
    texts = (
        "**Q: Can I buy online?**\nA: Yes.",
        "**Q: Must I buy much?**\nA: No.",
        "**Q: Do you ship what I buy?**\nA: Yes.",
        "**Q: Do you lend units?**\nA: For 45 days.",
        "**Q: Is there a shop?**\nA: No.",
    )
    asked = "can we try some before we buy"
    assert quoted(asked, "\n\n".join(texts[:4])) == ["\n\n".join(texts[:4])]
    assert {*quoted(asked, "\n\n".join(texts))} == {*texts[:3]}


def test_without_matching_words_the_nearest_question_of_a_list_is_quoted() -> None:
    """Discriminates: the first questions of a list, up to a thousand characters of unrelated answers."""
    text, query = "\n".join(ASKED), Query("Can I swap?", (QueryForm("", [], SparseTerms([], [])),))
    for nearest, expected in (([ASKED[1]], ASKED[1]), ([], text)):
        (quote,) = Quotables([("", text)], nearest).quotes(query, query.question)
        assert quote.text == expected


def test_a_code_block_is_quoted_whole_with_its_lead_in_and_a_closed_fence() -> None:
    whole = "Install it:\n\n```bash\npip install wenmai\nwenmai serve\n```\n"
    assert quoted("pip install", whole)[0] == whole.strip()
    assert quoted("pip install", whole.removesuffix("```\n"))[0].endswith("\n```")


def test_without_matching_words_a_short_first_passage_is_quoted_whole() -> None:
    """Discriminates: the first line alone, which rarely answers a question in another language."""
    assert quoted("how many hours a day", RULES, FAQ) == [RULES.strip()]
    assert len(quoted("how many hours a day", RULES * 50)[0]) <= 1_000
    assert quoted("how many hours a day", "命令：\n```bash\nls")[0].endswith("\n```")


def test_among_rows_that_differ_by_a_code_only_the_named_ones_are_quoted() -> None:
    """Discriminates: quoting AX-221 beside AX-220 because they share letters; quoting nothing for AX-999."""
    row = "- 型号：AX-220；名称：泵；价格（元）：300"
    assert quoted("AX-220 泵 价格", PRICES) == [row]
    assert "AX-221" in quoted("AX-999 泵 价格", PRICES)[0]


def test_rows_of_two_compared_things_are_quoted_in_one_table() -> None:
    """Discriminates: one row of two, or two tables of one row."""
    assert quoted("AX-220 and BX-1", PRICES) == [
        "- 型号：AX-220；名称：泵；价格（元）：300\n- 型号：BX-1；名称：阀；价格（元）：20"
    ]


def test_the_heading_of_a_passage_counts_for_its_units() -> None:
    texts = [("春节放假安排", "共放八天。"), ("国庆放假安排", "共放七天。")]
    query = Query("国庆放几天", (QueryForm("国庆放几天", [], SparseTerms([], [])),))
    assert Quotables(texts).quotes(query, "国庆放几天")[0].text == "共放七天。"


def test_a_measure_word_does_not_decide_the_paragraph() -> None:
    """Discriminates: treating 一件 (a piece of) as a content word, which only the wrong paragraph has."""
    how = "直接说就行：“记住：我对花生过敏”，或者用 /remember 文字。说出的关于自己的事也会记住。"
    rest = "密码谁要求都不会记。同一件事只记一条。"
    (quote,) = quoted("怎么记住一件事？", f"{how}\n\n{rest}", heading="怎么让它记住关于我的事")
    assert how in quote


def test_only_the_end_of_a_very_long_question_counts() -> None:
    """Discriminates: comparing each of 8,000 characters with each row of a table, 200 ms on the loop."""
    (quote,) = quoted("AX-221 的价格 " + "x" * MAX_QUESTION_CHARS + " BX-1 的价格", PRICES)
    assert "BX-1" in quote
    assert "AX-221" not in quote


@given(st.text(alphabet="|-\n第一条 1.2#QA:：？?`~ab。*>", max_size=200))
def test_units_contain_all_non_blank_text(text: str) -> None:
    units = units_of(text)
    assert all(unit.start < unit.end <= len(text) for unit in units)
    assert [unit.start for unit in units] == sorted(unit.start for unit in units)
    held = set().union(*(range(unit.start, unit.end) for unit in units)) if units else set()
    assert all(at in held for at, char in enumerate(text) if not char.isspace())
    quoted("a 第一条", text)


def test_a_title_above_articles_is_not_an_answer() -> None:
    """Discriminates: quoting a title alone; taking an article, or a sentence above one, for a title."""
    text = "Article 8. Moving away\n8.1 Whoever moves away may end the contract.\n8.2 Bring a proof."
    title, first, second = text.split("\n")
    assert quoted("moving away", text, "Nothing else.")[0] == text
    assert quoted("moving away", text + LONG, "Nothing else.")[0] == f"{title}\n\n{first}"
    assert quoted("a proof", text + LONG, "Nothing else.") == [f"{title}\n\n{second}"]
    assert quoted("sensors", "2.1 Sensors: 36 months\n2.2 Gateways: 60 months") == ["2.1 Sensors: 36 months"]
    assert quoted("rooms in OA", "Rooms are booked in OA.\n2.1 Others are not.")[0].startswith("Rooms")


def test_a_part_is_quoted_with_its_unit_or_the_text_that_follows() -> None:
    """Discriminates: an item without the line below it; a long list quoted whole; a part of another text."""
    items = ["- Apply two days before.", "  With form RB-7.", *(f"- {n:50}" for n in range(20))]
    short, long = Quotables([("", "\n".join(items[:3]))]), Quotables([("", "\n".join(items))])
    assert short.around(0, items[0]) == Quote(0, "\n".join(items[:3]).strip())
    assert long.around(0, items[0]) == Quote(0, "\n".join(items[:2]))
    assert long.around(0, "- Another.") is long.around(0, "") is None
    led_in = Quotables([("", "Stop at once\n- with a fever\n- with a rash\n\nElse go on.")])
    assert led_in.around(0, "- with a fever") == Quote(0, "Stop at once\n\n- with a fever\n- with a rash")


PLACES = """| Place | Price | Open |
| --- | --- | --- |
| Table tennis | 4 an hour | 14-21 |
| Badminton | 10 an hour | 14-21 |
| Swimming pool | 12 a visit, with a certificate of health | 15-20 in summer |
| Tennis | 15 an hour | 8-18 |
| Squash | 9 an hour | 8-18 |
"""


def test_among_rows_that_differ_in_one_word_only_the_matching_one_is_quoted() -> None:
    """Discriminates: quoting other rows for words that all rows share; a heading word that hides which row
    has that word itself."""
    row = "- Place: Swimming pool; Price: 12 a visit, with a certificate of health; Open: 15-20 in summer"
    assert quoted("what does swimming cost", PLACES, heading="Gym and swimming pool: what does it cost?") == [
        row
    ]
    assert quoted("price an hour for squash", PLACES) == ["- Place: Squash; Price: 9 an hour; Open: 8-18"]


def test_rows_of_another_code_with_the_same_letters_are_not_an_answer() -> None:
    rows = "| S20 | upload what the page shows |\n| S40 | accept or object |\n"
    table = f"| Code | What to do |\n| --- | --- |\n{rows}"
    assert quoted("the page shows S40, what do I do", table) == ["- Code: S40; What to do: accept or object"]


FILLER = "Everything about the works council stands in its own rules, which are on the notice board. " * 8


@pytest.mark.parametrize(
    ("question", "text", "quote"),
    [
        (
            "Who is the plant manager?", "Plant manager\n\nRolf Adler, hall 2\n\nSafety officer\n\nAnn",
            "Plant manager\n\nRolf Adler, hall 2",
        ),
        (
            "杭州的住宿标准是多少？",
            "住宿标准如下（单位：元/晚）：\n\n| 城市 | 上限 |\n|---|---|\n| 杭州 | 450 |\n",
            "住宿标准如下（单位：元/晚）：\n\n- 城市：杭州；上限：450",
        ),
        (
            "Which costs of travel are not paid?",
            "These costs of travel are not paid:\n\n- minibar\n- fines\n\nReceipts go to the desk.",
            "These costs of travel are not paid:\n\n- minibar\n- fines",
        ),
        (
            "月度总额的计算公式是什么？",
            "每餐的价格按如下公式计算，月度总额：\n\n$$\nS = pn\n$$\n\n价格见上表。",
            "每餐的价格按如下公式计算，月度总额：\n\n$$\nS = pn\n$$",
        ),
    ],
    ids=["a label over its value", "a table", "a list", "a formula"],
)  # fmt: skip
def test_a_line_that_only_repeats_the_question_comes_with_what_follows_it(
    question: str, text: str, quote: str
) -> None:
    """Discriminates: the line alone, which has the most words of the question and answers nothing."""
    assert quoted(question, f"{FILLER}\n\n{text}")[0] == quote


STATUTES = """§ 3 Fees
(1) The yearly fee is due in January.
(2) Families pay half of it.

第八条  提前解约

1、甲方提前收回房屋的，应提前60日通知。
"""
LONG = f"\n\n{FILLER}"


def test_the_title_of_an_article_is_quoted_with_its_text() -> None:
    """Discriminates: only the title, which has the words; the paragraphs without their number."""
    fees, ending = STATUTES.strip().split("\n\n", 1)
    assert quoted("When are fees due?", STATUTES + LONG)[0] == fees
    assert quoted("甲方提前收回房屋要提前多久通知", STATUTES + LONG)[0] == ending


def test_an_amount_at_the_beginning_of_a_line_is_not_an_article() -> None:
    """Discriminates: a sentence that ends before its number; a numbered article, or one in lower case after
    another, taken for an amount."""
    heat = "On south-facing walls dark boxes reached a maximum of\n47.8 °C, white ones 41.2 °C."
    assert quoted("Which boxes reached the maximum on walls?", f"{heat}\n\n{FILLER}") == [heat]
    rules = "2.1 cars: level 1\n2.2 bicycles: level 2\n\n"
    assert quoted("where do bicycles go", rules + FILLER)[0] == "2.2 bicycles: level 2"


def test_the_embedded_parts_of_a_text_stay_the_same() -> None:
    """Discriminates: a number of parts that differs from the vectors stored with the chunk."""
    title, _, paragraphs = STATUTES.split("\n\n")[0].partition("\n")
    expected = [title, paragraphs, *STATUTES.strip().split("\n\n")[1:]]
    assert indexed_parts(Chunk("", "", "", STATUTES, 0)) == expected


LESSONS = """| Lesson | Monday | Tuesday |
|---|---|---|
| 1 | maths | English |
| 2 | English | music |
| 3 | sports | physics |
| 4 | art | maths |
| 5 | physics | art |
| 6 | music | sports |
"""


def test_if_a_column_is_named_its_rows_are_quoted_in_table_order() -> None:
    """Discriminates: four of six rows that all match the column name, without saying so; rows without a word
    of the question although another row has one."""
    (quote,) = quoted("What is there on Tuesday?", LESSONS)
    assert [line[2:11] for line in quote.split("\n")] == [*(f"Lesson: {n}" for n in range(1, 6)), "… +1"]
    (quote,) = quoted("When is physics on Tuesday?", LESSONS)
    assert "maths" not in quote


def test_a_line_that_several_passages_share_is_cited_from_the_best() -> None:
    """Discriminates: citing the lead-in of a long table, repeated in each part, from the last part."""
    parts = [("", f"It takes 50 recipients. The body:\n\n| Field |\n|---|\n| {name} |") for name in "ab"]
    query = Query("How many recipients?", (QueryForm("recipients", [], SparseTerms([], [])),))
    quotes = Quotables(parts).quotes(query, "How many recipients?")
    assert [(quote.passage, quote.text[:7]) for quote in quotes] == [(0, "It take")]


CAUSES = """第三十七条 提前三十日通知，可以解除合同。

第三十八条 有下列情形之一的，可以立即解除：

（一）未支付报酬的；

（二）强迫劳动的，或者提前三十日通知也不能避免损害的。

第三十九条 依照第三十八条解除的，应当补偿。
"""


def test_a_named_article_is_quoted_alone_and_with_all_its_points() -> None:
    """Discriminates: other articles with its words; only its first line; an article that mentions it."""
    start, end = CAUSES.index("第三十八条"), CAUSES.index("第三十九条")
    assert quoted("第38条规定提前多少日通知？", CAUSES) == [CAUSES[start:end].strip()]
    assert quoted("第39条", CAUSES) == ["第三十九条 依照第三十八条解除的，应当补偿。"]


def test_a_missing_article_is_recognised_if_passages_begin_other_articles() -> None:
    quotables = Quotables([("", CAUSES)])
    assert quotables.unmentioned("第601条和第38条") == ["第601条"]
    assert quotables.unmentioned("第三章讲什么") == []


def test_a_title_at_the_beginning_is_not_an_answer_but_a_label_above_its_value_is() -> None:
    """Discriminates: only the title, which has the words of the subject; the value without its label."""
    title, bins = (
        "Handover of the flat (Anna to Ben), July",
        "Bins: glass goes to the container at the church.",
    )
    assert quoted("Where does Anna's flat put glass at the handover?", f"{title}\n\n{bins}{LONG}") == [bins]
    label = "Plant manager\n\nRolf Adler, hall 2"
    assert quoted("Who is the plant manager?", f"{label}{LONG}")[0] == label


MEDICINE = (
    "Other medicines: lithium and painkillers.\n\n"
    "Food, drink and alcohol: alcohol may make you dizzy; avoid it during the first two weeks.\n\n"
    "Driving: do not drive until you know how the tablet affects you."
)
RENT = (
    "| 项目 | 每月扣除 | 条件 |\n|---|---|---|\n| 住房贷款利息 | 1000 元 | 最多 240 个月 |\n"
    "| 住房租金 | 1500 元 | 市区 |"
)


def test_a_short_passage_is_quoted_whole_if_its_best_unit_has_few_of_the_words() -> None:
    """Discriminates: quoting the one unit with a common word, which is not why the passage was retrieved."""
    question = "is a glass of beer ok with this medicine"
    (quote,) = quoted(question, MEDICINE)
    assert quote == MEDICINE
    assert "| 住房租金 | 1500 元 |" in quoted("租房一个月能抵多少", RENT)[0]
    (clear,) = quoted("which other medicines", MEDICINE)
    assert clear == "Other medicines: lithium and painkillers."
    query = Query(question, (QueryForm(question, [], SparseTerms([], [])),))
    (beside,) = Quotables([("", MEDICINE)], ["Driving"]).quotes(query, question)
    assert beside.text == clear


def test_a_cause_is_quoted_with_its_effect() -> None:
    """Discriminates: the paragraph that repeats the question without the one that answers it."""
    summary = "Summary. 26 customers were charged twice on Saturday."
    cause = "Root cause. Retries came due to a lock and had a new number each."
    assert quoted("Why were customers charged twice?", f"{summary}\n\n{cause}") == [f"{summary}\n\n{cause}"]
    assert quoted("Which customers were charged twice?", f"{summary}\n\n{cause}") == [summary]


def test_a_follow_up_is_not_answered_by_words_of_the_previous_question() -> None:
    lines = [
        "QR-1 Performance: the payment ends within 6 s.",
        "QR-2 Availability: 99.5 % per ticket machine.",
    ]
    before, question = "What availability is required of ticket machines?", "How fast should it be?"
    forms = tuple(QueryForm(text, [], SparseTerms([], [])) for text in (question, f"{before} {question}"))
    found = Quotables([("", "\n\n".join(lines))]).quotes(Query(question, forms, (before,)), forms[1].text)
    assert lines[0] in found[0].text


def test_a_paragraph_is_not_cut_before_its_last_sentence() -> None:
    """Discriminates: a paragraph of 620 characters cut to its first 300."""
    paragraph = f"In the fog a ship passed. {'The lamp was dark and nobody saw it. ' * 16}It was the Maren."
    assert 600 < len(paragraph) < 650
    assert quoted("Which ship passed in the fog?", paragraph) == [paragraph]


def test_a_definition_is_quoted_alone() -> None:
    entries = ["**返航**：失控后自动升到返航高度飞回。", "**返航高度**：高于航线周边最高障碍物 20 米。"]
    assert quoted("返航高度是什么意思", "\n\n".join(entries)) == [entries[1]]


def test_only_the_timetable_line_whose_span_contains_the_day_is_quoted() -> None:
    """Discriminates: a stretch that starts at the first word shared with the question."""
    holidays = "\n".join(f"  Holiday {at}   {at} Jan   the practice is closed all day" for at in range(20))
    text = f"{holidays}\n  Autumn   1 - 8 Oct   10:00-12:00"
    assert quoted("Is the practice open on 3 October?", text) == ["  Autumn   1 - 8 Oct   10:00-12:00"]
