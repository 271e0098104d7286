from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.relevance.iso_dates import in_digits, is_iso_date, iso, written_date_at, written_dates


@pytest.mark.parametrize("text", ["2018", "2018-03", "2018-03-05", "1000", "2999-12-31", "2024-02-29"])
def test_a_day_a_month_and_a_year_are_iso_dates(text: str) -> None:
    assert is_iso_date(text)


@pytest.mark.parametrize(
    "text",
    ["", "18", "0999", "3000", "2018-3", "2018-13", "2018-00", "2023-02-29", "2018-03-32", "2018-03-05T10:00",
     "2018/03/05", " 2018", "2018\n", "20180305", "２０１８", "2018-", "-2018"],
)  # fmt: skip
def test_anything_else_is_none(text: str) -> None:
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
        ("03/04/2021", "2021"),  # the third of April, or the fourth of March
    ],
)
def test_what_people_write_is_read(text: str, date: str) -> None:
    text = in_digits(text)
    assert written_date_at(text) == date
    assert [date_.iso for date_ in written_dates(f"见 {text}。")] == [date]


@pytest.mark.parametrize(
    "text",
    ["2018", "1990年代", "2000年前", "2000年的历史", "2018-13-01", "2023-02-29", "A-2018-01-05", "X2018-01",
     "12018-01", "2018-011", "GB 2312-1980", "1.2.3", "March 3", "3月5日", "2021-03-05-07", "13900002018年"],
)  # fmt: skip
def test_what_is_no_date_is_not(text: str) -> None:
    assert list(written_dates(text)) == []


def test_what_a_version_may_look_like_is_not_sure() -> None:
    results = list(written_dates("2021.3.2 or 2021.03.02"))
    assert [(date.iso, date.sure) for date in results] == [("2021-03-02", False), ("2021-03-02", True)]


@given(st.dates())
def test_every_day_is_written_and_read_back(day: object) -> None:
    text = str(day)
    year, month, number = map(int, text.split("-"))
    if year >= 1000:
        for written in (text, f"{year}年{month}月{number}日", f"{year}/{month}/{number}"):
            assert (year > 2999) is (written_date_at(written) == "")
            if year <= 2999:
                assert written_date_at(written) == iso(year, month, number) == text


@given(st.text(alphabet="0123456789-/. 年月日MarchOf,", max_size=60))
def test_whatever_is_read_is_an_iso_date(text: str) -> None:
    assert all(is_iso_date(date.iso) for date in written_dates(in_digits(text)))
