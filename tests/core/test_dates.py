from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dates import (
    dates_in,
    day_asked,
    in_digits,
    in_words,
    is_iso_date,
    iso,
    leading_date,
    number_in,
    written_dates,
)
from tests.support.machine import at_most


@pytest.mark.parametrize("text", ["2018", "2018-03", "2018-03-05", "1000", "2999-12-31", "2024-02-29"])
def test_a_day_a_month_and_a_year_are_iso_dates(text: str) -> None:
    assert is_iso_date(text)


@pytest.mark.parametrize(
    "text",
    ["", "18", "0999", "3000", "2018-3", "2018-13", "2018-00", "2023-02-29", "2018-03-32", "2018-03-05T10:00",
     "2018/03/05", " 2018", "2018\n", "20180305", "２０１８", "2018-", "-2018"],
)  # fmt: skip
def test_anything_else_is_not_a_date(text: str) -> None:
    """Discriminates: `match` for `fullmatch`; taking \\d of other scripts; not asking the calendar."""
    assert not is_iso_date(text)


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("2015 - 12 - 25", "2015-12-25"),
        ("2015/1/5", "2015-01-05"),
        ("2015.01.05", "2015-01-05"),
        ("2018年", "2018"),
        ("2018年3月", "2018-03"),
        ("2018 年 3 月 5 日", "2018-03-05"),
        ("2018年3月5號", "2018-03-05"),
        ("2018年的3月", "2018-03"),
        ("二〇一八年十二月二十五日", "2018-12-25"),
        ("二零二零年十月", "2020-10"),
        ("2018-03", "2018-03"),
        ("3 March 2021", "2021-03-03"),
        ("3rd of March 2021", "2021-03-03"),
        ("03-Mar-2021", "2021-03-03"),
        ("March 3, 2021", "2021-03-03"),
        ("Sept. 2021", "2021-09"),
        ("25/12/2021", "2021-12-25"),
        ("12/25/2021", "2021-12-25"),
        ("5.5.2021", "2021-05-05"),
        ("02.01.2024", "2024-01-02"),
        ("03/04/2021", "2021"),  # 3 April or 4 March
    ],
)
def test_common_ways_of_writing_a_date_are_read(text: str, date: str) -> None:
    text = in_digits(text)
    assert leading_date(text) == date
    assert [date_.iso for date_ in written_dates(f"见 {text}。")] == [date]


@pytest.mark.parametrize(
    "text",
    ["2018", "1990年代", "2000年前", "2000年的历史", "2018-13-01", "2023-02-29", "A-2018-01-05", "X2018-01",
     "12018-01", "2018-011", "GB 2312-1980", "1.2.3", "March 3", "3月5日", "2021-03-05-07", "13900002018年"],
)  # fmt: skip
def test_text_that_is_not_a_date_is_not_read(text: str) -> None:
    assert list(written_dates(text)) == []


def test_a_date_that_could_be_a_version_is_not_sure() -> None:
    results = list(written_dates("2021.3.2 or 2021.03.02"))
    assert [(date.iso, date.sure) for date in results] == [("2021-03-02", False), ("2021-03-02", True)]


@given(st.dates())
def test_every_day_is_read_back_as_written(day: object) -> None:
    text = str(day)
    year, month, number = map(int, text.split("-"))
    if year >= 1000:
        for written in (text, f"{year}年{month}月{number}日", f"{year}/{month}/{number}"):
            assert (year > 2999) is (leading_date(written) == "")
            if year <= 2999:
                assert leading_date(written) == iso(year, month, number) == text


@given(st.text(alphabet="0123456789-/. 年月日MarchOf,", max_size=60))
def test_any_date_read_is_an_iso_date(text: str) -> None:
    assert all(is_iso_date(date.iso) for date in written_dates(in_digits(text)))


TODAY = datetime.date(2026, 1, 31)

NAMED = {
    "2018年的招生人数是多少？": "2018",
    "中国人民大学２０１８年招生": "2018",
    "2018年3月有哪些活动": "2018-03",
    "2018年3月5日发生了什么": "2018-03-05",
    "二〇一八年三月的通知": "2018-03",
    "18年3月的数据": "2018-03",
    "去年招了多少人": "2025",
    "前年和去年相比呢": "2024 2025",
    "今年3月的考试": "2026-03",
    "今年三月五号的考试": "2026-03-05",
    "在去年的12月": "2025-12",
    "明年的计划": "2027",
    "后年的计划": "2028",
    "本月有哪些假期": "2026-01",
    "上个月的账单": "2025-12",
    "下个月的账单": "2026-02",
    "昨天的会议": "2026-01-30",
    "2019-2021年的分数线": "2019 2020 2021",
    "2019年至2021年": "2019 2020 2021",
    "2000到2025年": "2000 2025",
    "2018级培养方案": "2018",
    "2021学年的校历": "2021",
    "2000年以来的变化": "2000",
    "去年和2018年相比": "2018 2025",
    "In March 2021, what was the fee?": "2021-03",
    "what happened on 3 March 2021": "2021-03-03",
    "What changed last year?": "2025",
    "plans for next month": "2026-02",
    "FY2022 revenue": "2022",
    "FY22 revenue": "2022",
    "revenue in Q3 2021": "2021",
    "fees in 2018 and 2019": "2018 2019",
    "between 2018 and 2020": "2018 2019 2020",
    "the 2021/22 season": "2021 2022",
    "the 2018 annual report": "2018",
    "the class of 2020": "2020",
    "will it be done by 2030?": "2030",
    "in may 2021": "2021-05",
    "2018-03-05 log entry": "2018-03-05",
    "2018, 2018年 and 2018年": "2018",
}

UNNAMED = [
    "2000 元",
    "1024",
    "第2021号",
    "〔2021〕15号文件",
    "民国110年",
    "2509年",
    "2000年前的历史",
    "2000年的历史",
    "1990年代",
    "三年前年收入多少",
    "如今年轻人",
    "如今年会在哪里办",
    "说明年份",
    "证明年龄",
    "透明天花板",
    "过去年份",
    "日本月亮",
    "目前天气",
    "线下月租",
    "今年级",
    "今天吃什么",
    "3月15日截止吗",
    "近三年",
    "电话13900002018",
    "2018年龄",
    "GB/T 2312-1980",
    "PyCharm 2021.3.2",
    "iPhone 2021",
    "Windows Server 2019",
    "port 2024 is in use",
    "error 2019",
    "A-2018-01",
    "ISO 9001:2015",
    "model X2018",
    "in 2000 words",
    "for 2000 people",
    "from 2000 to 3000",
    "from 1000 to 2000",
    "How many people may 2000 flyers reach",
    "over the last year",
    "what is used today",
    "in 365 days",
    "T2019-01-01",
    "order 20210305",
    "1.2.2020.4",
    "room 2012",
    "v2021.03",
    "C919",
    "",
    "$2000 in total",
    "within 2000 km",
    "after 2000 requests",
    "March madness",
    "may I",
    "in 2000 or more cases",
]


@pytest.mark.parametrize(("question", "dates"), NAMED.items())
def test_the_dates_a_question_names(question: str, dates: str) -> None:
    assert " ".join(dates_in(question, TODAY)) == dates


@pytest.mark.parametrize("question", UNNAMED)
def test_text_that_only_looks_like_a_date_gives_nothing(question: str) -> None:
    assert dates_in(question, TODAY) == ()


@pytest.mark.parametrize(
    ("asked", "day"),
    [
        ("", "2026-03-01"),
        ("2026-03-01", "2026-03-01"),
        ("2026-03", "2026-03-01"),  # it has begun today
        ("2026", "2026-03-01"),
        ("2026-02", "2026-02-28"),
        ("2025", "2025-12-31"),
        ("2026-04", "2026-04-30"),
    ],
)
def test_days_count_from_today_within_the_period_and_otherwise_from_its_end(asked: str, day: str) -> None:
    """Discriminates: taking a month or a year that begins or ends today for another one."""
    assert day_asked(asked, datetime.date(2026, 3, 1)).isoformat() == day
    assert day_asked("2025", datetime.date(2025, 12, 31)).isoformat() == "2025-12-31"


def test_explicit_dates_take_precedence_over_dates_relative_to_today() -> None:
    assert dates_in("去年比2018年3月多吗，比2017年呢", TODAY) == ("2018-03", "2017", "2025")


def test_a_day_that_does_not_exist_leaves_its_year() -> None:
    assert dates_in("去年2月30日", TODAY) == ("2025",)


@given(st.text(alphabet="0123456789-/. 年月日去今明前后天上个May in,FY", max_size=80), st.dates())
def test_dates_of_a_question_are_iso_dates_without_duplicates(text: str, today: datetime.date) -> None:
    if 1_100 <= today.year <= 2_900:
        results = dates_in(text, today)
        assert all(map(is_iso_date, results))
        assert len(set(results)) == len(results)


def test_a_long_question_is_read_quickly() -> None:
    """Discriminates: a pattern that restarts at every character (quadratic)."""
    with at_most(2.0):
        for text in (
            "2018年" * 3_000,
            "in 2018 " * 2_000,
            "1 " * 5_000,
            "去年" * 5_000,
            " " * 9_000,
            "2018-" * 2_000,
        ):
            dates_in(text, TODAY)


def test_chinese_numerals_are_read_as_written() -> None:
    """Discriminates: 两百五 as 205, 二三十 as 23."""
    assert [number_in(in_words(number)) for number in range(1, 10_000)] == [*range(1, 10_000)]
    written = ("两百五", "一百零五", "一万二", "半", "二三十")
    assert [number_in(words) for words in written] == [250, 105, 12_000, 0.5, None]
