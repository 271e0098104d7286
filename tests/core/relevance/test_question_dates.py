"""Discriminates: reading any four digits as a year; taking 今年 out of 如今年轻人; a clock inside core."""

from __future__ import annotations

import datetime
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.relevance.iso_dates import is_iso_date
from core.relevance.question_dates import dates_in

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
def test_what_only_looks_like_a_date_gives_nothing(question: str) -> None:
    assert dates_in(question, TODAY) == ()


def test_what_is_written_out_comes_before_what_today_makes_clear() -> None:
    assert dates_in("去年比2018年3月多吗，比2017年呢", TODAY) == ("2018-03", "2017", "2025")


def test_a_day_that_there_is_not_leaves_its_year() -> None:
    assert dates_in("去年2月30日", TODAY) == ("2025",)


@given(st.text(alphabet="0123456789-/. 年月日去今明前后天上个May in,FY", max_size=80), st.dates())
def test_whatever_is_read_is_an_iso_date_and_said_once(text: str, today: datetime.date) -> None:
    if 1_100 <= today.year <= 2_900:
        results = dates_in(text, today)
        assert all(map(is_iso_date, results))
        assert len(set(results)) == len(results)


def test_a_long_question_is_read_in_no_time() -> None:
    """Discriminates: a form that begins again at every character (quadratic)."""
    began = time.perf_counter()
    for text in (
        "2018年" * 3_000,
        "in 2018 " * 2_000,
        "1 " * 5_000,
        "去年" * 5_000,
        " " * 9_000,
        "2018-" * 2_000,
    ):
        dates_in(text, TODAY)
    assert time.perf_counter() - began < 2.0
