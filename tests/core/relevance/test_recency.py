"""Dates of documents in the ranking. `judged` is the reranker's judgement of each candidate."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from core.dates import dates_in
from core.knowledge import Candidate, Chunk
from core.relevance.probability import MIN_NAMED, NOT_SURE, SURE
from core.relevance.query import Query
from core.relevance.recency import DATE_LOGIT, by_dates

TERMS = "报名费每人{}元，学费每学年{}元，住宿费另计；录取后两周内在财务处缴清，逾期视为放弃。"


def candidate(chunk_id: str, date: str, chance: float = 0.5, **more: str) -> Candidate:
    """A candidate of a separate document; headings are equal except for their numbers, unless `more` has
    another."""
    text = more.get("text", TERMS.format(len(chunk_id), len(date)))
    heading, document_id = more.get("heading", "收费办法"), f"document of {chunk_id}"
    chunk = Chunk(chunk_id, document_id, f"{chunk_id}.md", text, position=0, heading=heading, date=date)
    return Candidate(chunk, probability=chance)


def best(candidates: list[Candidate], asked: str, dates: tuple[str, ...] = ()) -> str:
    ranked = by_dates(Query("学费多少？", (), asked=asked, dates=dates), candidates)
    return max(ranked, key=lambda one: one.probability).chunk.chunk_id


VERSIONS = [candidate("2018", "2018-05-01"), candidate("2020", "2020-05"), candidate("2024", "2024")]


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        ("2026-06-15", "2024"), ("2024", "2024"), ("2023-12-31", "2020"), ("2020-05-31", "2020"),
        ("2020-04-30", "2018"), ("2018", "2018"),
    ],
)  # fmt: skip
def test_the_newest_version_that_existed_on_the_day_ranks_first(asked: str, version: str) -> None:
    """Discriminates: the newest of all; the nearest, which may be of the following year."""
    assert best(VERSIONS, asked) == version
    assert best(VERSIONS[::-1], asked) == version


def test_before_the_first_version_none_is_preferred() -> None:
    assert by_dates(Query("学费多少？", (), asked="2017"), VERSIONS) == VERSIONS


def test_a_year_in_a_heading_is_when_the_version_becomes_valid() -> None:
    """Admissions of 2023 are published in December 2022: asked in 2022, either may be meant; before that
    month only those of 2022. Discriminates: the date of publication alone."""
    old = candidate("old", "2021-12-17", 0.5, heading="2022年招生简章")
    new = candidate("new", "2022-12-15", 0.4, heading="2023年招生简章")
    assert by_dates(Query("学费多少？", (), asked="2022"), [old, new]) == [old, new]
    assert best([replace(new, probability=0.9), old], "2022-11-30") == "old"
    assert best([old, new], "2023-01-01") == "new"


def test_a_version_of_a_year_is_not_older_than_one_of_a_day_in_it() -> None:
    """The same page twice, of which one says no more than the year."""
    both = [candidate("year", "2019", 0.6), candidate("day", "2019-06-06", 0.5)]
    assert by_dates(Query("学费多少？", (), asked="2026"), both) == both


def test_candidates_that_are_not_versions_of_each_other_keep_their_probability() -> None:
    """Discriminates: ranking the newer document first, whatever its subject."""
    old = candidate("old", "2018")
    for other in (
        candidate("undated", ""),
        candidate("other heading", "2024", heading="奖学金办法"),
        candidate("other words", "2024", text="校园卡在服务大厅办理，遗失补办需带身份证。"),
        replace(VERSIONS[2], chunk=replace(VERSIONS[2].chunk, document_id=old.chunk.document_id)),
    ):
        both = [old, other]
        assert by_dates(Query("学费多少？", (), asked="2026"), both) == both


LONGER = TERMS + "减免学费的申请每年九月提交，家庭经济困难的学生优先，由学院评议后报学生处审批。"


def test_recency_is_a_preference_and_a_much_better_answer_still_ranks_first() -> None:
    """Discriminates: a filter; raising a version of which only a part was kept to the probability of the
    complete one."""
    short = "学费每学年另行通知，住宿费另计；录取后两周内在财务处缴清。"
    both = [candidate("old", "2018", 0.9, text=LONGER), candidate("new", "2024", 0.3, text=short)]
    assert best(both, "2026") == "old"
    ranked = by_dates(Query("学费多少？", (), asked="2026"), both)
    assert 0.3 < ranked[0].probability < 0.9
    assert ranked[1].probability == 0.3


def test_among_equal_versions_the_valid_one_gets_the_best_probability_of_them() -> None:
    """The same words with other numbers: different probabilities are due to chance."""
    ranked = by_dates(
        Query("学费多少？", (), asked="2026"), [candidate("old", "2018", 0.8), candidate("new", "2024", 0.05)]
    )
    assert ranked[1].probability == 0.8
    assert (
        best([candidate("2018", "2018", 0.8), candidate("2024", "2024", 0.05)], "2026", ("2024",)) == "2024"
    )
    assert ranked[0].probability == pytest.approx(0.8 / (0.8 + 0.2 * np.exp(DATE_LOGIT)))


def test_documents_of_the_time_named_in_the_question_rank_first() -> None:
    notes = [candidate(date, date, heading=f"例会 {at}", text=f"第 {at} 次：纪要。") for at, date in
             enumerate(("2023-05-08", "2024-05-06", "2024-06-03"))]  # fmt: skip
    assert best(notes, "2026-06-15", ("2024-05",)) == "2024-05-06"
    assert best(notes, "2026-06-15", ("2023",)) == "2023-05-08"
    ranked = by_dates(Query("例会", (), asked="2026", dates=("2021",)), notes)
    assert ranked == notes  # no document is of that time


def test_a_text_about_the_named_year_is_not_penalised_for_a_later_date() -> None:
    fitting = candidate("of 2022", "2022-01-10", heading="通知", text="放假安排。")
    about = candidate("report", "2023-03-01", heading="年报", text="2022 年营业收入增长一成。")
    undated = candidate("undated", "", heading="公司", text="成立于上海。")
    later = candidate("later", "2023-03-02", heading="年报", text="今年营业收入增长一成。")
    query = Query("2022 年的收入", (), asked="2026", dates=("2022",))
    chances = [one.probability for one in by_dates(query, [fitting, about, undated, later])]
    assert chances[:3] == [0.5, 0.5, 0.5]
    assert chances[3] == pytest.approx(1 / (1 + np.exp(DATE_LOGIT)))


def test_versions_of_every_compared_year_keep_their_rank() -> None:
    ranked = by_dates(Query("2018 和 2020 年", (), asked="2026", dates=("2018", "2020")), VERSIONS)
    assert [one.probability for one in ranked[:2]] == [0.5, 0.5]
    assert ranked[2].probability < 0.5


@pytest.mark.parametrize("chance", [0.0, 1.0])
def test_a_probability_stays_between_0_and_1(chance: float) -> None:
    ranked = by_dates(Query("", (), asked="2026"), [candidate("a", "2018", chance), candidate("bb", "2024")])
    assert 0.0 <= ranked[0].probability <= 1.0


@pytest.mark.parametrize(
    ("title", "question", "first"),
    [
        ("2025上半年（作废）", "托盘多少钱？", "valid"),
        ("Prices 2024 (superseded)", "How much is a pallet?", "valid"),
        ("2025上半年（作废）", "作废的价目里托盘多少钱？", "void"),
        ("发票作废流程", "托盘多少钱？", "void"),
        ("How to void an order", "How much is a pallet?", "void"),
    ],
)
def test_a_document_whose_title_says_void_ranks_lower_unless_requested(
    title: str, question: str, first: str
) -> None:
    """Discriminates: the price of an outdated list that scored higher by chance."""
    rows = [candidate("void", "", 0.5, heading=title), candidate("valid", "", 0.4, heading="2025下半年")]
    judged = by_dates(Query(question, ()), rows)
    assert max(judged, key=lambda one: one.probability).chunk.chunk_id == first


CLOSED = "All get 25 days.\n\n| Month | Closed on |\n| --- | --- |\n| August | 1st |"


@pytest.mark.parametrize(
    ("question", "heading", "text", "is_sure"),
    [
        ("2024年第三季度的营收", "2024 Q2", "Revenue rose to 4.8 million.", False),
        ("What was the revenue in Q3 2024?", "Q2 2024", "Revenue rose to 4.8 million.", False),
        ("What was the revenue in Q2 2024?", "Second quarter 2024", "It rose to 4.8 million.", True),
        ("What was the revenue in Q2?", "Report", "In the second quarter revenue rose.", True),
        ("revenue in Q3", "Revenue", "| Unit | Q1 | Q2 |\n| --- | --- | --- |\n| North | 1 | 2 |", False),
        ("九月的退货率", "销售月报 2025年8月", "退货率 1.9%。", False),
        ("8月的退货率", "销售月报 2025年八月", "退货率 1.9%。", True),
        ("9月能休年假吗", "考勤办法（2026年3月修订）", "年假要在当年休完。", True),
        ("9月能休年假吗", "年假", "次年3月底之前要休完。", True),
        ("water in May", "Water", "| Month | m3 |\n| --- | --- |\n| March | 8 |\n| April | 9 |", False),
        ("water in April", "Water", "| Month | m3 |\n| --- | --- |\n| March | 8 |\n| April | 9 |", True),
        ("星期天早班谁值", "值班表", "| 星期 | 早班 |\n| --- | --- |\n| 周一 | 王芳 |", False),
        ("周三几点开门", "开放时间", "周一至周五：9 点", True),
        ("周六几点开门", "开放时间", "周一至周五：9 点", False),
        ("2022年有多少人", "2023 年度总结", "员工总数为 214 人。", False),
        ("2022年有多少人", "2021–2023 年总结", "员工总数为 214 人。", True),
        ("2022年有多少人", "员工手册 2023版", "员工总数为 214 人。", True),
        ("7月和8月哪个多", "销售月报 2025年8月", "退货率 1.9%。", True),
        ("退货率是多少", "销售月报 2025年8月", "退货率 1.9%。", True),
        ("May I bring my dog?", "Dogs of the month", "| Month | Dog |\n| --- | --- |\n| March | Rex |", True),
        ("I have one. May I bring it?", "March 2026", "Dogs may be brought.", True),
        ("一周五天都要到公司吗", "到岗", "| 星期 | 到岗 |\n| --- | --- |\n| 周一 | 是 |", True),
        ("两周一次的例会谁主持", "例会", "周三：产品例会，王芳主持。", True),
        ("周三几点开门", "开放时间", "工作日：9:00-18:00\n周六：10:00-14:00", True),
        ("周日几点开门", "开放时间", "工作日：9:00-18:00\n周六：10:00-14:00", False),
        ("周日几点开门", "开放时间", "周一至周五：9 点\n周六日：10 点", True),
        ("周日谁值班", "值班表", "周一：王强，3 个工作日内交接。", False),
        ("Open on Saturday?", "Hours", "Monday: 9 to 18\nOn weekends we are closed.", True),
        ("Which bus runs on Sunday?", "Bus 12", "Fri-Mon: every 10 min", True),
        ("1月供暖吗", "供暖", "11月15日至次年3月15日：供暖", True),
        ("8月供暖吗", "供暖", "11月15日至次年3月15日：供暖", False),
        ("4月几点闭园", "闭园时间", "3月1日—5月31日：18 点", True),
        ("the fee in April", "Fees", "1 March to 31 May: 90 dollars", True),
        ("2025年入职的员工年假几天", "2024年员工手册", "年假十天。", True),
        ("H1N1疫苗能报销吗", "2026年下半年体检", "疫苗可以报销。", True),
        ("I started in September, how much leave do I get?", "Leave", CLOSED, True),
        ("How much leave do I get if I start in September?", "Leave", CLOSED, True),
        ("我九月入职，年假几天", "年假", "年假十天。\n| 月份 | 休馆 |\n| --- | --- |\n| 8月 | 是 |", True),
        ("I closed it in September, how much leave do I get?", "Leave", CLOSED, False),  # it mentions that
        ("我9月的工资发了多少", "工资", "| 月份 | 工资 |\n| --- | --- |\n| 8月 | 90 |", False),
        ("我9月入职，年假几天", "年假", "| 入职月份 | 天 |\n| --- | --- |\n| 8月 | 5 |", False),
        (
            "我9月入职，年假几天",
            "年假",
            "| 入职月份 | 天 |\n| --- | --- |\n| 8月 | 5 |\n\n其他月份五天。",
            True,
        ),
    ],
)
def test_text_under_a_different_period_than_the_questions_is_not_sure(
    question: str, heading: str, text: str, is_sure: bool
) -> None:
    """Discriminates: a period anywhere in the text; the date of a text's revision; days within a range."""
    one = candidate("only", "", 0.8, heading=heading, text=text)
    (judged,) = by_dates(Query(question, (), dates=dates_in(question, date(2026, 1, 1))), [one])
    assert (judged.probability >= SURE) is is_sure
    assert judged.probability in (0.8, NOT_SURE)


def test_text_under_another_month_ranks_below_that_of_the_question() -> None:
    august = candidate("august", "", 0.3, heading="销售月报 2025年8月", text="新签客户 11 家。")
    july = candidate("july", "", 0.2, heading="销售月报 2025年7月", text="新签客户 18 家。")
    ranked = by_dates(Query("七月份新签了多少客户", ()), [august, july])
    assert ranked[0].probability < ranked[1].probability == 0.2


@pytest.mark.parametrize(
    ("question", "is_named"),
    [
        ("What was new in version 3.6.0?", True),
        ("3.6.0 更新了什么", True),
        ("版本 3.6 有什么新功能", True),
        ("What was new in v3.6?", True),
        ("Is 10.3.6.0 the address?", False),
        ("Can I go from 3.5.0 to 3.6.0?", False),
        ("What does section 3.6.0 say?", False),
    ],
)
def test_notes_of_another_version_rank_below_those_of_the_named_one(question: str, is_named: bool) -> None:
    """Discriminates: the nearest by meaning, since all notes describe what is new; an IP address; a part of a
    text."""
    other = candidate("b", "", 0.6, heading="Release notes > 3.7.0 — 15 June 2026", text="New: clones.")
    meant = candidate("a", "", 0.3, heading="Release notes > 3.6.0 — 20 May 2026", text="New: passkeys.")
    guide = candidate("c", "", 0.2, heading="3.1.2 Passkeys", text="Made in the settings.")
    chances = [one.probability for one in by_dates(Query(question, ()), [other, meant, guide])]
    assert (chances[0] < chances[1]) is is_named
    assert chances[2] == 0.2


def test_the_notes_of_a_version_are_sure_if_nothing_else_is_asked() -> None:
    notes = candidate("a", "", 0.3, heading="Notes > [3.6.0] - 2026-02-20", text="New: passkeys.")
    for question, chance in (("What's new in 3.6.0?", SURE), ("Who tested version 3.6.0?", 0.3)):
        assert by_dates(Query(question, ()), [notes])[0].probability == chance


def test_text_that_only_mentions_the_month_does_not_rank_above_text_under_another() -> None:
    august = candidate("august", "", 0.4, heading="销售月报 2025年8月", text="销售额为 287 万元。")
    budget = candidate("budget", "", 0.3, heading="差旅预算", text="超出的在9月30日前报财务。")
    ranked = by_dates(Query("9月的销售额是多少", ()), [august, budget])
    assert [one.probability for one in ranked] == [0.4, 0.3]


MONTHS = "- January: revenue 120, 14 new customers\n- March: revenue 143"
TABLE = "| 月份 | 营业额 | 客流 |\n| --- | --- | --- |\n| 2月 | 38 | 61 |\n| 3月 | 52 | 86 |"


@pytest.mark.parametrize(
    ("question", "heading", "text", "is_sure"),
    [
        ("What was the revenue in March?", "Q1 2025", MONTHS, True),
        ("How many new customers in January 2025?", "Q1 2025", MONTHS, True),
        ("How much revenue did we make in March?", "Q1 2025", MONTHS, True),
        ("How much revenue did Leeds make in March?", "Q1 2025", MONTHS, False),
        ("三月份营业额多少？", "2025年第一季度", TABLE, True),
        ("2月客流多少", "2025年第一季度", TABLE, True),
        ("How many new customers in March?", "Q1 2025", MONTHS, False),  # that line has no such word
        ("What was the revenue of Leeds in March?", "Q1 2025", MONTHS, False),
        ("What was the revenue in February?", "Q1 2025", MONTHS, False),
        ("What was the revenue in March 2024?", "Q1 2025", MONTHS, False),
        ("What was the revenue in March 2024?", "Report", f"2024: revenue 900\n{MONTHS}", True),
        ("What was the revenue in March 2024?", "Report", "2024: revenue 900\nIt rose in March.", False),
        ("What was the revenue in March?", "Q1 2025", "January to March: revenue 390", False),
        ("What was the revenue in March?", "Report", "The revenue is known at the end of March.", False),
        ("And in March?", "Q1 2025", MONTHS, False),
    ],
)
def test_a_line_of_the_month_with_all_words_of_the_question_is_sure(
    question: str, heading: str, text: str, is_sure: bool
) -> None:
    """Discriminates: calling the month of a quarter only the closest; another figure of it, or of a range,
    sure."""
    one = candidate("only", "", 0.3, heading=heading, text=text)
    (judged,) = by_dates(Query(question, (), dates=dates_in(question, date(2026, 1, 1))), [one])
    assert judged.probability == (SURE if is_sure else min(judged.probability, 0.3))


def test_an_improbable_text_is_not_sure_because_of_its_month() -> None:
    (judged,) = by_dates(Query("revenue in March", ()), [candidate("only", "", 0.1, text=MONTHS)])
    assert 0.1 < judged.probability < SURE


SPANS = [
    ("6月10号能打电钻吗", "6 月 5 日至 6 月 20 日为静音期，禁止使用电钻。", True),
    ("6月25号能打电钻吗", "6 月 5 日至 6 月 20 日为静音期，禁止使用电钻。", False),
    ("六月十号能打电钻吗", "6月5日（周五）至20日为静音期，禁止使用电钻。", True),
    ("3月8号能交电费吗", "电费于每月1日至10日缴纳。", True),
    ("Can we swim on July 3?", "You can swim from June 15, 2026 to September 10, 2026.", True),
    ("Can we swim on 3 July?", "You can swim on 1–5 July.", True),
    ("Can we swim on December 24?", "No swimming from November 15 to February 28.", True),
    ("Can we swim on Wednesday?", "You can swim Mon-Fri.", True),
    ("Can we swim at the weekend?", "You can swim Sat, Sun 9:00–17:00.", True),
    ("Can we swim at the weekend?", "**Sun.** Swim in the shade.", False),
    ("周末能游泳吗", "周六、周日可以游泳。", True),
    ("周末能游泳吗", "周一至周五可以游泳。", False),
    ("工作日能游泳吗", "周三可以游泳。", True),
    ("周三能游泳吗", "每天 8:00–22:00 可以游泳。", True),
    ("周三能游泳吗", "每天换一次水，可以游泳。", False),
    ("八岁能游泳吗", "六岁以上可以游泳。", True),
    ("五岁能游泳吗", "六岁以上可以游泳。", False),
    ("晚上九点能游泳吗", "8:00–22:00 可以游泳。", True),
    ("晚上十一点能游泳吗", "8:00–22:00 可以游泳。", False),
    ("夜里十一点能游泳吗", "22:00 至次日 7:00 禁止游泳。", True),
    ("Can we swim at 9 pm?", "You can swim from 10am to 6pm.", False),
    ("游泳2小时多少钱", "8:00–22:00 可以游泳。", False),
]


@pytest.mark.parametrize(("question", "text", "lies_in_it"), SPANS)
def test_a_text_whose_span_contains_the_day_or_hour_is_sure(
    question: str, text: str, lies_in_it: bool
) -> None:
    """It has all other words of the question. Discriminates: counting only days and hours that are named."""
    (judged,) = by_dates(Query(question, ()), [candidate("rules", "", 0.2, text=text)])
    assert judged.probability == pytest.approx(SURE if lies_in_it else 0.2)


@pytest.mark.parametrize(
    ("question", "asks_hours"),
    [
        ("几点关门", True),
        ("请问你们周末几点开门？", True),
        ("晚上几点关", True),
        ("营业时间是几点到几点", True),
        ("营业时间", True),
        ("What time do you close?", True),
        ("when is the pool open on sunday", True),
        ("opening hours?", True),
        ("几点能退卡", False),
        ("窗户几点关", False),
        ("When do you close my account?", False),
    ],
)
def test_a_question_for_opening_hours_shows_the_texts_with_hours(question: str, asks_hours: bool) -> None:
    """Discriminates: refusing, since 8:00–22:00 has no word of the question."""
    texts = ("周末 8:00–22:00。", "单次票 35 元。")
    judged = by_dates(Query(question, ()), [candidate(text, "", 0.01, text=text) for text in texts])
    assert [each.probability for each in judged] == [MIN_NAMED if asks_hours else 0.01, 0.01]


def test_a_weekend_or_an_amount_may_be_a_circumstance() -> None:
    """Discriminates: lifting every text with a weekday and one of the words."""
    question = Query("My tent smells after a rainy weekend", ())
    for text, is_lifted in (
        ("Sat, Sun: dry the tent.", False),
        ("Sat, Sun: tents smell after rainy days.", True),
    ):
        (judged,) = by_dates(question, [candidate("a", "", 0.2, text=text)])
        assert (judged.probability > 0.2) == is_lifted


def test_asking_whether_a_day_is_possible_shows_the_few_spans_that_contain_it() -> None:
    """The question has no other word; with one that the text lacks, it has another subject. Discriminates:
    taking every span for relevant."""
    text = "The building is closed from June 15 to September 10."
    for question, chance in (("Can I come on July 3?", MIN_NAMED), ("Can I park on July 3?", 0.01)):
        (judged,) = by_dates(Query(question, ()), [candidate("hours", "", 0.01, text=text)])
        assert judged.probability == chance


CLAUSE = "第十三条 年假须提前五个工作日申请。"


@pytest.mark.parametrize(
    ("amending", "chance", "is_first"),
    [
        ("一、第十三条修改为：年假须提前三个工作日申请。", 0.4, True),
        ("一、第十三条修改为：年假须提前三个工作日申请。", 0.2, False),  # hardly about it
        ("一、第二十条修改为：餐补每天 120 元。", 0.4, False),
        ("第十四条 年假申请可改为事假。", 0.4, False),
    ],
)
def test_what_changes_a_clause_ranks_before_the_clause(amending: str, chance: float, is_first: bool) -> None:
    """Discriminates: the clause as it was, which has the words of the question in its own order."""
    clause, notice = candidate("clause", "", 0.6, text=CLAUSE), candidate("notice", "", chance, text=amending)
    before, after = by_dates(Query("年假要提前几天申请", ()), [clause, notice])
    assert (after.probability > before.probability) is is_first
    assert before.probability == clause.probability


def test_a_replaced_english_clause_ranks_below_what_replaces_it() -> None:
    """Discriminates: a section that only mentions another."""
    clause = candidate("clause", "", 0.6, text="3. The monthly rent is €1,150.")
    for text, is_first in (
        ('With effect from 1 July, clause 3 is replaced by: "The monthly rent is €1,210."', True),
        ("The monthly rent, section 3, is due on the third day.", False),
    ):
        notice = candidate("notice", "", 0.4, text=text)
        _, after = by_dates(Query("how much is the monthly rent", ()), [clause, notice])
        assert (after.probability > clause.probability) is is_first
