"""Dates as people write them, Chinese and English, as ISO 8601: a day, a month or a year."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass

EARLIEST_YEAR, LATEST_YEAR = 1000, 2999

_MONTH_NAMES = (
    "jan(?:uary)?", "feb(?:ruary)?", "mar(?:ch)?", "apr(?:il)?", "may", "june?", "july?", "aug(?:ust)?",
    "sept?(?:ember)?", "oct(?:ober)?", "nov(?:ember)?", "dec(?:ember)?",
)  # fmt: skip
_MONTH = rf"(?P<name>(?:{'|'.join(_MONTH_NAMES)}))\b\.?"
_DAY = r"(?P<day>\d{1,2})"
_YEAR = r"(?P<year>[12]\d{3})"
_NO_DIGIT = r"(?!\d)"
# a number that goes on to the left, or an identifier, is no date
_BEGINS = r"(?<![\dA-Za-z_])(?<![\dA-Za-z][-/.#])"
_GAP = r"\s{0,3}"
# 1990年代 is ten years, and 2000年前, 2000年来, 2000年的历史 are two thousand
_NO_SPAN = r"(?![代龄齡])(?!(?<=00年)(?:[前来來间間多]|之久|的?(?:历史|歷史|文明)))"
_FORMS = (
    rf"{_YEAR}{_GAP}年{_NO_SPAN}(?:度|的(?={_GAP}\d{{1,2}}{_GAP}月))?{_GAP}(?:(?P<month>\d{{1,2}}){_GAP}月(?:{_GAP}{_DAY}{_GAP}[日号號])?)?",
    rf"{_YEAR}{_GAP}(?P<mark>[-/.]){_GAP}(?P<month>\d{{1,2}}){_GAP}(?P=mark){_GAP}{_DAY}{_NO_DIGIT}(?!(?P=mark)\d)",
    rf"{_YEAR}[-/](?P<month>0[1-9]|1[0-2])(?![-/.]?\d)",
    rf"{_DAY}(?:st|nd|rd|th)?(?: of)?[\s-]{{1,3}}{_MONTH},?[\s-]{{1,3}}{_YEAR}{_NO_DIGIT}",
    rf"{_MONTH}\s{{1,3}}{_DAY}(?:st|nd|rd|th)?,?\s{{1,3}}{_YEAR}{_NO_DIGIT}",
    rf"{_MONTH},?(?: of)?\s{{1,3}}{_YEAR}(?![\d:])",
    rf"{_DAY}(?P<mark>[-/.])(?P<month>\d{{1,2}})(?P=mark){_YEAR}{_NO_DIGIT}",
)
_WRITTEN = [re.compile(_BEGINS + form, re.IGNORECASE) for form in _FORMS]
_ISO = re.compile(r"([12]\d{3})(?:-(\d\d)(?:-(\d\d))?)?", re.ASCII)
_NUMERALS = "〇零一二三四五六七八九"
_YEAR_IN_WORDS = re.compile(r"[一二][〇零○O一二三四五六七八九]{3}(?=\s*年)")
_IN_WORDS = re.compile(r"(?:[二三]?十[一二三四五六七八九]?|[一二三四五六七八九])(?=\s*[月日号號])")
_DIGITS = {ord(char): str(max(0, at - 1)) for at, char in enumerate(_NUMERALS)} | {
    ord("○"): "0",
    ord("O"): "0",
}


@dataclass(frozen=True, slots=True)
class WrittenDate:
    """`iso` is what `text[start:end]` names. `sure` is False for forms that versions have, too: 2021.3.2."""

    start: int
    end: int
    iso: str
    sure: bool = True

    @property
    def year(self) -> int:
        return int(self.iso[:4])


def iso(year: int, month: int | None = None, day: int | None = None) -> str:
    """As "2021", "2021-03" or "2021-03-05"; "" when there is no such day."""
    if not EARLIEST_YEAR <= year <= LATEST_YEAR:
        return ""
    if month is None:
        return f"{year:04}"
    if not 1 <= month <= 12:
        return ""
    if day is None:
        return f"{year:04}-{month:02}"
    return f"{year:04}-{month:02}-{day:02}" if 1 <= day <= calendar.monthrange(year, month)[1] else ""


def is_iso_date(text: str) -> bool:
    """YYYY, YYYY-MM or YYYY-MM-DD, of the years 1000 to 2999, and a day that there is."""
    match = _ISO.fullmatch(text)
    return match is not None and bool(iso(*(int(part) for part in match.groups() if part)))


def first_day(date: str) -> int:
    """The first day of a day, a month or a year in ISO as a number: "2026-03" → 20260301; "" → 0."""
    match = _ISO.fullmatch(date)
    if match is None:
        return 0
    year, month, day = (int(part) if part else 1 for part in match.groups())
    return year * 10_000 + month * 100 + day


def last_day(date: str) -> int:
    """The last day of it as a number: "2026-02" → 20260228; "" → 0."""
    match = _ISO.fullmatch(date)
    if match is None:
        return 0
    year, month = int(match.group(1)), int(match.group(2) or 12)
    day = int(match.group(3) or calendar.monthrange(year, month)[1])
    return year * 10_000 + month * 100 + day


def in_digits(text: str) -> str:
    """Years, months and days in Chinese numerals written with digits: 二〇一八年三月五日 → 2018年3月5日."""
    text = _YEAR_IN_WORDS.sub(lambda match: match.group().translate(_DIGITS), text)
    return _IN_WORDS.sub(lambda match: str(_small_number(match.group())), text)


def written_dates(text: str) -> Iterator[WrittenDate]:
    """Every date that names its year, in the order of the text; overlapping readings count once.

    Digits only (see `in_digits`). Of 03/04/2021 only the year is known. A bare year is none.
    """
    matches = [match for form in _WRITTEN for match in form.finditer(text)]
    at = 0
    for match in sorted(matches, key=lambda match: (match.start(), -match.end())):
        if match.start() < at:
            continue
        at = match.end()
        if named := _iso_of(match):
            yield WrittenDate(match.start(), match.end(), named, _is_sure(match))


def written_date_at(text: str, at: int = 0) -> str:
    """The date that the text has exactly there; "" when it has none, or no such day exists."""
    for form in _WRITTEN:
        if match := form.match(text, at):
            return _iso_of(match)
    return ""


def _iso_of(match: re.Match[str]) -> str:
    parts = match.groupdict()
    year, day = int(parts["year"]), int(parts["day"]) if parts.get("day") else None
    if name := parts.get("name"):
        return iso(year, _month_of(name), day)
    month = int(parts["month"]) if parts.get("month") else None
    if month is None or day is None or match.start("day") > match.start("month"):
        return iso(year, month, day)
    if parts["mark"] == "." and month <= 12:  # with dots the day comes first everywhere
        return iso(year, month, day)
    if month == day or max(month, day) > 12:  # day and month in either order: clear only then
        return iso(year, min(month, day), max(month, day))
    return iso(year) if min(month, day) > 0 else ""


def _month_of(name: str) -> int:
    return next(at for at, pattern in enumerate(_MONTH_NAMES, start=1) if re.fullmatch(pattern, name.lower()))


def _is_sure(match: re.Match[str]) -> bool:
    parts = match.groupdict()
    if parts.get("mark") != ".":
        return True
    return len(parts["month"]) == 2 and len(parts["day"]) == 2


def _small_number(words: str) -> int:
    """1 to 39 from 一 … 三十九."""
    tens, ten, ones = words.rpartition("十")
    return (_NUMERALS.find(tens or "一") - 1) * 10 * bool(ten) + max(0, _NUMERALS.find(ones or "零") - 1)
