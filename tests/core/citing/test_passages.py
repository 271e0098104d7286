import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.citing.passages import MAX_PASSAGE_CHARS, AnswerKind, KeyPassages, Span, sentences
from core.relevance.query import Query, QueryForm, explanation_of
from core.relevance.sparse import SparseTerms, encode_query, presence, question_terms
from tests.support.machine import at_most


def split(text: str) -> list[str]:
    return [text[span.start : span.end] for span in sentences(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("第一句。第二句！第三句？", ["第一句。", "第二句！", "第三句？"]),
        ("他说：“好。”然后走了。", ["他说：“好。”", "然后走了。"]),
        ("真的吗？！是的……好。", ["真的吗？！", "是的……", "好。"]),
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        (
            'Of two ("the first?", "how much?"), the code counts. Next.',
            ['Of two ("the first?", "how much?"), the code counts.', "Next."],
        ),
        ('"Is it open?" he asked. Yes.', ['"Is it open?" he asked.', "Yes."]),
        ("（要收费吗？），等等……，都会答。好。", ["（要收费吗？），等等……，都会答。", "好。"]),
        (
            "Dr. Smith paid 3.50 e.g. in cash. Then he left.",
            ["Dr. Smith paid 3.50 e.g. in cash.", "Then he left."],
        ),
        ("1. First item\n2. Second item", ["1. First item", "2. Second item"]),
        ("- a\n- b", ["- a", "- b"]),
        ("| a | b |\n| c | d |", ["| a | b |", "| c | d |"]),
        ("a line that\ngoes on. Next", ["a line that\ngoes on.", "Next"]),
        ("a title\n\nits text", ["a title", "its text"]),
        ("```\nx = a. b\ny = 2\n```", ["```", "x = a. b", "y = 2", "```"]),
        ("", []),
        (" \n\t\n ", []),
    ],
)
def test_sentences_end_where_a_reader_would_end_them(text: str, expected: list[str]) -> None:
    assert split(text) == expected


@given(st.text(alphabet="费用ab。.!?\n|-#` “”\"'1e.g", max_size=600))
def test_sentences_lose_nothing_but_white_space(text: str) -> None:
    spans = sentences(text)
    assert all(one.end <= two.start for one, two in itertools.pairwise(spans))
    assert "".join("".join(split(text)).split()) == "".join(text.split())


@pytest.mark.parametrize("unit", [".", "。", '."', "\n", "|", "a", " ", "```\n", "#", "…", "1."])
def test_a_megabyte_of_hostile_text_takes_less_than_a_second(unit: str) -> None:
    text = unit * (1_000_000 // len(unit.encode()))
    with at_most(2.0):  # under 1 s on a quiet machine; quadratic would be minutes
        sentences(text)
        presence(question_terms("费用 a 1"), text)


GUIDE = """# 费用说明

专业版每月 99 元，按年付费打八折。团队版每月 299 元！企业版请联系销售（sales@example.com）。
- 试用期 14 天。
- 退款：7 天内全额

| 版本 | 价格 |
| --- | --- |
| 旗舰版 | 999 元 |

See e.g. the U.S. price list. Version 3.11 costs nothing. This line is
wrapped here. "Really?" Yes.
```python
MAX_RECENT_TURNS = 5
PORT = 8000
```
"""


def query(question: str, *joined: str, weight: float = 0.5) -> Query:
    forms = [QueryForm(text, [], encode_query(text), weight) for text in joined]
    return Query(question, (QueryForm(question, [], SparseTerms([], [])), *forms))


def passage(asked: Query, *texts: str, claim: str = "") -> str:
    """Return the passage of the first text."""
    passages = KeyPassages(asked)
    for text in texts:
        passages.read(text)
    span = passages.span(0, claim)
    return "" if span is None else texts[0][span.start : span.end]


def test_characters_that_fold_to_several_do_not_shift_later_offsets() -> None:
    squares = "The yard is ㍍㌖㌫㍿㌔㌘ wide. "
    text = f"{squares}The gate is shut. The boiler runs hot. The roof is new. {squares}The door is red."
    assert passage(query("boiler"), text) == "The boiler runs hot."
    assert passage(query("door"), text) == "The door is red."


@given(st.text(st.sampled_from("Ａ㍿…a费用 .。\nİe\u0301ﬁ"), max_size=60))
@example("The ＶＰＮ is wide… and… waits… for… us……… The boiler runs.")
def test_folding_makes_no_text_too_wide_for_its_passage(text: str) -> None:
    """Discriminates: dots that are folded to three in the whole text, and not in a sentence of their own."""
    found = passage(query("boiler a 费用"), text)
    assert found in text
    assert ("boiler" in found) == ("boiler" in text)


@pytest.mark.parametrize(
    ("question", "text", "expected"),
    [
        (
            "专业版每个月多少钱？",
            "开头无关。专业版和团队版都能试用。专业版每月 99 元。团队版请联系销售。",
            "专业版每月 99 元。",
        ),
        (
            "How many employees does the office have?",
            "The office is old. The office has a cafe for employees. The office has 40 employees.",
            "The office has 40 employees.",
        ),
        (
            "When was the bridge opened?",
            "The bridge is long. The bridge was opened by the mayor. The bridge was opened in May 1932.",
            "The bridge was opened in May 1932.",
        ),
        (
            "大桥哪一年通车？",
            "大桥很长。大桥通车时有很多人。大桥于 1932 年通车。",
            "大桥于 1932 年通车。",
        ),
        (
            "Why did drivers get the message twice?",
            "Drivers got the message twice at noon. Drivers got the message twice due to a slow gateway.",
            "Drivers got the message twice due to a slow gateway.",
        ),
        (
            "大桥为什么封闭？",
            "大桥在周一封闭。大桥由于桥墩开裂而封闭。",
            "大桥由于桥墩开裂而封闭。",
        ),
        (
            "大桥封闭持续多长时间？",
            "大桥封闭从 6 月 5 日开始。大桥封闭共 85 分钟。",
            "大桥封闭共 85 分钟。",
        ),
        (
            "大桥几点封闭？",
            "大桥封闭要提前 5 日申请。大桥封闭从 21:30 开始。",
            "大桥封闭从 21:30 开始。",
        ),
        (
            "How long was the bridge closed?",
            "The bridge closed 2 lanes in 2026. The bridge was closed for three hours.",
            "The bridge was closed for three hours.",
        ),
        (
            "How long does a refund take?",
            "A refund takes 2 forms. A refund takes 3 business days.",
            "A refund takes 3 business days.",
        ),
        (
            "How often did the printer jam?",
            "The printer that may jam has 2 trays. The printer did jam eleven times.",
            "The printer did jam eleven times.",
        ),
    ],
)
def test_the_sentence_with_the_requested_kind_of_value_wins(question: str, text: str, expected: str) -> None:
    """Discriminates: ANSWER_KIND_BONUS = 0."""
    assert passage(query(question), text) == expected


def test_a_year_named_in_the_question_does_not_answer_a_question_about_time() -> None:
    text = "开头无关。2021 年的大会很热闹。大会在三月举行。"
    assert "大会在三月举行。" in passage(query("2021 年的大会什么时候举行？"), text)


@pytest.mark.parametrize(
    ("question", "text", "is_one"),
    [
        ("GSD是什么意思？", "**GSD**（地面采样距离）：一个像素对应的长度。", True),
        ("什么是GSD", "术语：GSD；含义：地面采样距离", True),
        ("GSD是什么意思？", "一张照片的 GSD 大约两厘米。", False),
        ("What does lead time mean?", "3.2 Lead time: days from order to delivery.", True),
        ("What is a lead time?", "The lead time is short.", False),
        ("What is it?", "It is a printer.", False),
        ("Who needs a lead time?", "Lead time: days from order to delivery.", False),
    ],
)
def test_an_explanation_begins_with_its_term(question: str, text: str, is_one: bool) -> None:
    explains = explanation_of(question)
    assert bool(explains and explains.search(text)) is is_one


@pytest.mark.parametrize("unit", [":", "*", "GSD ", "GSD（", "1a", "_"])
def test_searching_for_an_explanation_takes_linear_time(unit: str) -> None:
    explains, answer_kind = explanation_of("什么是GSD"), AnswerKind.of("How long?")
    with at_most(1.0):
        assert explains
        assert not explains.search(unit * (100_000 // len(unit)))
        answer_kind.is_in(unit * (100_000 // len(unit)))
        AnswerKind.of("多少钱").is_in(unit * (100_000 // len(unit)))


def test_words_in_every_cited_text_count_for_less() -> None:
    """Discriminates: leaving the rarity out of the weights."""
    between = "Nothing of that is in here at all. " * 8
    text = f"An opening. Our product has its fees. {between}Refunds take a week."
    alike = ["Our product has fees.", "The product: its fees.", "More fees of the product."] * 2
    assert passage(query("product fees refunds"), text) == "Our product has its fees."
    assert passage(query("product fees refunds"), text, *alike) == "Refunds take a week."


def test_a_follow_up_is_read_with_the_question_it_refers_to() -> None:
    """Discriminates: taking the terms of the first form only."""
    text = "开头无关的一句话。团队版没有折扣。专业版按年付费打八折。结尾。"
    assert "专业版按年付费打八折。" in passage(query("那折扣呢？", "专业版按年付费 那折扣呢？"), text)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("专业版每个月多少钱？", "专业版每月 99 元，按年付费打八折。"),
        ("退款有期限吗", "- 退款：7 天内全额"),
        ("旗舰版的价格", "| 版本 | 价格 |\n| --- | --- |\n| 旗舰版 | 999 元 |"),
        ("企业版怎么买", "企业版请联系销售（sales@example.com）。"),
        ("What is MAX_RECENT_TURNS by default?", "MAX_RECENT_TURNS = 5"),
        ("what does version 3.11 cost?", "Version 3.11 costs nothing."),
        ("completely unrelated", "专业版每月 99 元，按年付费打八折。"),
    ],
)
def test_the_passage_is_the_sentence_that_answers(question: str, expected: str) -> None:
    assert passage(query(question), GUIDE) == expected


def test_neighbouring_sentences_that_add_words_of_the_question_are_included() -> None:
    text = "开头无关。问脉的专业版按月计费。按年付费可以打折。结尾无关。"
    assert passage(query("专业版计费和按年打折"), text) == "问脉的专业版按月计费。按年付费可以打折。"


@pytest.mark.parametrize(
    ("question", "text", "expected"),
    [
        (
            "How do I clean the lampshade?",
            "It is old. Never use water on the lampshade. Use a dry cloth. The lamp is old, too.",
            "Never use water on the lampshade. Use a dry cloth.",
        ),
        (
            "Is alcohol good for the touch screen?",
            "Cloths are in the box. Wipe with those. Alcohol must not be used on the touch screen. So.",
            "Wipe with those. Alcohol must not be used on the touch screen.",
        ),
        (
            "灯罩怎么清洁？",
            "灯罩很旧。严禁用水清洁灯罩。应使用干布。客厅也旧。",
            "严禁用水清洁灯罩。应使用干布。",
        ),
        ("Are dogs allowed?", "Dogs are not allowed. The desk opens at nine.", "Dogs are not allowed."),
        ("May I use vinegar?", "Never use vinegar, use soap. Call us.", "Never use vinegar, use soap."),
        ("能用白醋吗？", "不要用白醋，应使用柠檬酸。请每月做一次。", "不要用白醋，应使用柠檬酸。"),
        ("What of water?", "It is a well. Water is forbidden. Do not use oil.", "Water is forbidden."),
    ],
)
def test_a_prohibition_comes_with_the_alternative(question: str, text: str, expected: str) -> None:
    assert passage(query(question), text) == expected


def test_a_table_row_comes_with_its_header_and_a_list_with_its_lead_in() -> None:
    table = "价目如下表。\n\n| 版本 | 价格 |\n| --- | --- |\n| 基础版 | 9 元 |\n| 旗舰版 | 999 元 |\n\n结尾。"
    assert passage(query("旗舰版"), table).startswith("| 版本 | 价格 |")
    assert passage(query("旗舰版"), table).endswith("| 旗舰版 | 999 元 |")
    items = "开头。\n\n安装要做三件事：\n- 下载程序\n- 打开终端\n- 运行命令\n\n结尾。"
    assert passage(query("怎么打开终端"), items).startswith("安装要做三件事：\n- 下载程序\n- 打开终端")
    assert passage(query("安装要做什么"), items).endswith("- 运行命令")


def test_column_names_are_not_the_key_passage_of_a_table_with_rows() -> None:
    """Discriminates: the names alone, which have most words of a question about a cell."""
    table = (
        "| 职级 | 住宿费（元/天） / 一线城市 | 住宿费（元/天） / 其他城市 |\n| --- | --- | --- |\n"
        "| 总监 | 900 | 700 |\n| 经理 | 650 | 500 |\n| 员工 | 450 | 350 |"
    )
    assert passage(query("经理在一线城市的住宿费是多少？"), table).endswith("| 经理 | 650 | 500 |")
    names = "| Step | Owner |\n| :-- | --- |"
    assert passage(query("Who is the owner of the step?"), names) == "| Step | Owner |"


def test_the_answers_claim_decides_between_equal_sentences() -> None:
    """Discriminates: CLAIM_WEIGHT = 0."""
    text = "退款要先提交申请。退款由财务部门审批。退款在七个工作日内到账。"
    asked = query("退款")
    assert passage(asked, text, claim="由财务审批") == "退款由财务部门审批。"
    assert passage(asked, text, claim="七个工作日到账") == "退款在七个工作日内到账。"


def test_text_under_the_heading_is_used_if_only_the_heading_has_the_words() -> None:
    assert passage(query("费用说明"), "开头一句。\n## 费用说明\n\n每月 99 元。") == "每月 99 元。"


def test_a_sentence_that_is_too_long_is_cut_at_a_clause_before_its_match() -> None:
    text = "甲乙，" * 400 + "退款期限七天，" + "丙丁，" * 400
    results = passage(query("退款期限"), text)
    assert "退款期限七天" in results
    assert results.startswith("甲乙，")
    assert len(results) <= MAX_PASSAGE_CHARS


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("病历在哪里复印", "病历在四楼复印。"), ("when is it made?", "Made on Mondays."),
        ("When do they come?", "At 5 pm."), ("为什么停水", "因管网检修停水。"),
        ("林医生哪天坐诊", "林医生周二、周四坐诊。"), ("林医生礼拜几坐诊", "林医生工作日坐诊。"),
    ],
)  # fmt: skip
def test_the_requested_kind_of_value_is_recognised_by_its_form(question: str, text: str) -> None:
    """Discriminates: plural weekdays, hours or a lone 因 not recognised; reporting a kind without a form as
    missing."""
    asked = AnswerKind.of(question)
    assert (asked.is_missing(text), asked.is_missing("因此病历须本人复印。")) == (False, True)
    assert not AnswerKind.of("病历谁复印").is_missing(text)


@pytest.mark.parametrize(
    ("question", "lies", "lies_not"),
    [
        ("工龄 12 年", "满10年不满20年的，10天", "不满10年的，5天"),
        ("95 平的", "面积：91–140 平方米", "90 平方米以下"),
        ("25 个人的押金，那 50 个人呢", "31-80 人", "11–30人"),
        ("for 6 people", "5 to 8 people", "over 8 people"),
        ("8 人的车", "人数：6–14；价格", "人数：1–5；价格"),
        ("六个人", "人数：6–14；价格", "五人以下"),
        ("十岁的孩子", "十二岁以下儿童", "三至九岁"),
        ("一米三的孩子", "身高 1.2–1.5 米", "1.2 米以下"),
        ("二十分钟", "十分钟到半小时", "1 小时以上"),
        ("三千块", "2000 元以上的", "两千元以下"),
    ],
)  # fmt: skip
def test_an_amount_lies_in_a_range_of_its_unit(question: str, lies: str, lies_not: str) -> None:
    """Discriminates: comparing numbers of other units; the amount of the question before."""
    asked = AnswerKind.of(question)
    assert (asked.is_in(lies), asked.is_in(lies_not), asked.is_in("1–90 公斤")) == (True, False, False)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("物业费多少钱", "2 元起"), ("一年物业费多少？", "单价（元/平方米）：2.6"),
        ("车位贵不贵", "380元/月"), ("补卡多少钱", "价格：20"),
        ("停车怎么收费", "前两小时免费"), ("押金多少", "押金：500"),
        ("How much is a ticket?", "It is £4."),
        ("What is the entry fee?", "Children: free"),
    ],
)  # fmt: skip
def test_a_question_for_money_wants_an_amount_of_money(question: str, text: str) -> None:
    """Discriminates: taking any number for the amount, such as the day by which a fee is due."""
    asked = AnswerKind.of(question)
    assert (asked.is_in(text), asked.is_in("1 月 5 日起 3 天内缴，前台 2 楼。")) == (True, False)
    assert not asked.is_in("Due within 3 days, room 2.")
    assert AnswerKind.of("多少人").is_in("限 3 人")
    assert AnswerKind.of("怎么交物业费").expected is None


def test_blank_texts_have_no_passage_and_others_at_least_their_opening() -> None:
    assert passage(query("费用"), " \n ") == ""
    assert passage(query("费用"), "") == ""
    assert passage(query("completely unrelated"), "第一句。第二句。").startswith("第一句。")
    assert passage(query(""), "# 只有标题") == "# 只有标题"


TEXT = st.text(alphabet="费用退款ab。.!?\n|-#:：` “”\"'1多少年月\U0001f600\U00020000", max_size=700)


@given(
    st.text(max_size=60), st.lists(TEXT | st.text(max_size=50), min_size=1, max_size=4), st.text(max_size=40)
)
def test_a_passage_is_a_short_stretch_of_its_own_text(question: str, texts: list[str], claim: str) -> None:
    passages = KeyPassages(query(question, question + " 费用"))
    for text in texts:
        passages.read(text)
    for number, text in enumerate(texts):
        for span in (passages.span(number), passages.span(number, claim or "费用")):
            assert (span is None) == (not text.strip())
            if span is not None:
                assert 0 <= span.start < span.end <= len(text)
                assert span.end - span.start <= MAX_PASSAGE_CHARS
                assert text[span.start : span.end].strip() == text[span.start : span.end]


def test_offsets_count_code_points_so_characters_outside_the_first_plane_move_nothing() -> None:
    text = "\U0001f600\U00020000。退款七天。"
    passages = KeyPassages(query("退款几天？"))
    passages.read(text)
    span = passages.span(0)
    assert span in (Span(3, 8), Span(0, 8))
    assert span is not None
    assert text[span.start : span.end].endswith("退款七天。")


@pytest.mark.parametrize("unit", [".", "。", "\n", "|", "费用。", " ", "```\n", "费用：\n- a\n", "1.", "a "])
def test_hostile_texts_take_linear_time(unit: str) -> None:
    passages = KeyPassages(query("费用 a 1 多少", "费用 a"))
    with at_most(3.0):
        passages.read(unit * (1_000_000 // len(unit)))
        passages.span(0, "费用 a")


def test_the_key_passage_of_a_named_article_is_its_beginning() -> None:
    """Discriminates: a sentence with the number's words that only mentions it."""
    text = """第三十八条 报酬未付的，可以解除。

第三十九条 严重失职的，可以解除。

（五）因第三十八条第一款的情形，第38条的规定。"""
    assert passage(query("第38条怎么规定的"), text).startswith("第三十八条 报酬未付的")
    assert passage(query("第39条怎么规定的"), text).startswith("第三十九条 严重失职的")
