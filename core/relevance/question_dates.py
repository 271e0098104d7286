"""The dates a question names: 2018年, 去年, in March 2021, last year. Only what is surely a date counts."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator

from core.relevance.iso_dates import WrittenDate, in_digits, iso, written_dates
from core.text import fold_width

MAX_CHARS = 2_000
MAX_SPAN_YEARS = 10  # of a range of years, each is named; of a longer one its ends
EARLIEST_BARE_YEAR = 1900  # a number without 年 that may be a year
YEARS_AHEAD = 20

_YEAR = r"([12]\d{3})"
_COUNTED = (
    r"words?|char|tokens?|people|persons?|users?|students?|staff|dollars?|usd|yuan|rmb|cny|euros?|pounds?|k?m\b"
    r"|met(?:er|re)s?|kilomet|miles?|feet|k?g\b|tons?|lines?|m?s\b|seconds?|minutes?|hours?|days?|weeks?|months?"
    r"|years?|times|steps?|rows?|records?|items?|units?|copies|cases|countries|cities|pages?|points?|requests?"
    r"|calls?|[kmg]?b\b|px|pixels?|calories|volts?|watts?|or (?:more|less|fewer)|and (?:more|above)"
)
_NO_NUMBER = (
    r"(?!\s?(?:to|and|or|[-–])\s?(?!(?:19|20)\d\d\b)\d)(?![\w.,:%/-]*\d)(?!\s?[%$€£¥元°])"
    rf"(?!\s(?:{_COUNTED}))"
)
_RANGES = (
    re.compile(rf"(?<![\w.-]){_YEAR}\s?年?\s?(?:[-–—~～至到]|to|through)\s?{_YEAR}(?![\d-])(?:\s?年)?"),
    re.compile(rf"\bbetween\s{_YEAR}\sand\s{_YEAR}(?!\d)", re.IGNORECASE),
)
_SEASON = re.compile(rf"(?<![\w./-]){_YEAR}\s?[-–/]\s?(\d\d)(?![\d/-])(?!\s?月)")
_SHORT_YEAR = re.compile(r"(?<![\d.])(\d\d)年(\d{1,2})月(?:(\d{1,2})[日号號])?")
_AFTER_WORDS = (
    r"in|since|during|until|till|before|after|from|year|early|late|mid|mid-|end of|start of|beginning of"
    r"|class of|as of|(?:spring|summer|autumn|fall|winter)(?: of)?"
    r"|(?<=(?:19|20)\d\d )(?:and|or|to|vs\.?|versus)"
)
_BEFORE_WORDS = (
    r"annual|fiscal|budget|edition|season|elections?|olympics|world cup|census|results|earnings|reports?"
    r"|survey|conference|academic|admissions?|enrol|tuition|tax|calendar|holidays?|graduat"
)
_BEFORE_WORDS_ZH = (
    r"招生|高考|[届屆级級]|学年|學年|财年|財年|赛季|賽季|春季|秋季|夏季|冬季"
    r"|上半年|下半年|第[一二三四1-4]季|世界杯|奥运|年度"
)
_BARE_YEARS = [
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"\b(?:{_AFTER_WORDS})\s{_YEAR}(?!\d){_NO_NUMBER}",
        rf"\b(?:by|for|of)\s{_YEAR}(?=\s*(?:[?.!,;:)]|$))",
        rf"\b(?:FY|fiscal(?: year)?|financial year|academic year|Q[1-4]|H[12]|CY)[\s-]?{_YEAR}(?![\w.])",
        rf"(?<![\w.#-]){_YEAR}\s(?=(?:{_BEFORE_WORDS}))",
        rf"(?<![\w.#-]){_YEAR}(?=\s?(?:{_BEFORE_WORDS_ZH}))",
        r"\bFY\s?'?(\d\d)(?![\w.%])",
    )
]
_SMALL_MAY = re.compile(r"(?:^|[^\w])may\s")
_AFTER_PREPOSITION = re.compile(
    r"\b(?:in|of|since|until|till|by|before|after|from|during|to|and|for)\s$", re.I
)

_NOT_BEFORE = r"(?!轻|輕|龄|齡|代|级|級|薪|限|份(?!之)|费|費|租|均|会员)"
_YEAR_WORDS = (
    (rf"(?<![如当當])(?:今|本)年{_NOT_BEFORE}(?!中|末|初)", 0),
    (rf"(?<![过過失])去年{_NOT_BEFORE}", -1),
    (rf"(?<![年月天日周以之目大])前年{_NOT_BEFORE}", -2),
    (r"大前年", -3),
    (rf"(?<![说說证證声聲表注标標文透])明年{_NOT_BEFORE}", 1),
    (rf"(?<![年月天日周以之今])后年{_NOT_BEFORE}", 2),
    (r"(?<!the )(?<!every )(?<!each )\blast year\b(?! of)", -1),
    (r"(?<!the )(?<!every )(?<!each )\bthis year\b", 0),
    (r"(?<!the )(?<!every )(?<!each )\bnext year\b(?! of)", 1),
    (r"\bthe year before last\b", -2),
)
_MONTH_OF = (
    r"(?:\s{0,2}的?\s{0,2}(?P<month>\d{1,2})\s{0,2}月(?:份)?(?:\s{0,2}(?P<day>\d{1,2})\s{0,2}[日号號])?)?"
)
_MONTH_WORDS = (
    (r"(?<![日基成资資样樣版文])本月(?!薪|租|均|饼|餅)|这个月|這個月|(?<!the )\bthis month\b", 0),
    (r"上个月|上個月|(?<![马馬网線线以晚早])上月(?!薪|租|均)|(?<!the )\blast month\b", -1),
    (r"下个月|下個月|(?<![线線以乡鄉])下月(?!薪|租|均)|(?<!the )\bnext month\b", 1),
)
_DAY_WORDS = (
    (r"(?<![以之目当當])昨天|\byesterday\b", -1),
    (r"(?<![以之目当當先提大])前天(?!气|氣)", -2),
    (r"(?<![说說证證声聲表注标標文透])明天|\btomorrow\b", 1),
)


def dates_in(question: str, today: datetime.date) -> tuple[str, ...]:
    """ISO 8601 days, months and years, each once: those named outright first, in the order of the question,
    then those that `today` makes clear (去年, last month).

    今天, today and now name nothing: they are said of anything. Nor does a month without its year.
    """
    text = in_digits(fold_width(question[:MAX_CHARS]))
    named = sorted(_written(text, today))
    explicit = [date for _, date in named]
    relative = [date for _, date in sorted(_relative(text, today))]
    return tuple(dict.fromkeys(filter(None, (*explicit, *relative))))


def _written(text: str, today: datetime.date) -> Iterator[tuple[int, str]]:
    """Where each stands in the text, and the date; a stretch that was read once is not read again."""
    latest = today.year + YEARS_AHEAD
    taken: list[tuple[int, int]] = []
    for start, end, dates in _readings(text):
        known = [date for date in dates if date and int(date[:4]) <= latest]
        if known and not any(start < until and since < end for since, until in taken):
            taken.append((start, end))
            yield from ((start + at, date) for at, date in enumerate(known))


def _readings(text: str) -> Iterator[tuple[int, int, list[str]]]:
    """Start, end and dates; the most particular forms first."""
    yield from _spans(text)
    for date in written_dates(text):
        if date.sure and not _is_modal(text, date):
            yield date.start, date.end, [date.iso]
    for match in _SHORT_YEAR.finditer(text):
        year, month, day = match.groups()
        yield match.start(), match.end(), [iso(2000 + int(year), int(month), int(day) if day else None)]
    for match in (match for form in _BARE_YEARS for match in form.finditer(text)):
        year = match.group(1) if len(match.group(1)) == 4 else f"20{match.group(1)}"
        if int(year) >= EARLIEST_BARE_YEAR:
            yield match.start(1), match.end(1), [year]


def _spans(text: str) -> Iterator[tuple[int, int, list[str]]]:
    """2019-2021, and 2021/22."""
    for match in (match for form in _RANGES for match in form.finditer(text)):
        first, last = int(match.group(1)), int(match.group(2))
        if EARLIEST_BARE_YEAR <= first < last:
            yield match.start(), match.end(), _years(first, last)
    for match in _SEASON.finditer(text):
        first = int(match.group(1))
        if first >= EARLIEST_BARE_YEAR and int(match.group(2)) == (first + 1) % 100 > 12:
            yield match.start(), match.end(), [iso(first), iso(first + 1)]


def _years(first: int, last: int) -> list[str]:
    span = range(first, last + 1) if last - first < MAX_SPAN_YEARS else (first, last)
    return [iso(year) for year in span]


def _is_modal(text: str, date: WrittenDate) -> bool:
    """How many people may 2000 flyers reach?"""
    is_may = _SMALL_MAY.match(text[max(0, date.start - 1) : date.end])
    return is_may is not None and not _AFTER_PREPOSITION.search(text[: date.start])


def _relative(text: str, today: datetime.date) -> Iterator[tuple[int, str]]:
    words: tuple[tuple[tuple[tuple[str, int], ...], str, Callable[[int, re.Match[str]], str]], ...] = (
        (_YEAR_WORDS, _MONTH_OF, lambda ago, match: _in_year(today.year + ago, match)),
        (_MONTH_WORDS, "", lambda ago, _: _month(today, ago)),
        (_DAY_WORDS, "", lambda ago, _: (today + datetime.timedelta(days=ago)).isoformat()),
    )
    for forms, tail, date_of in words:
        for form, ago in forms:
            for match in re.finditer(f"(?:{form}){tail}", text, re.IGNORECASE):
                yield match.start(), date_of(ago, match)


def _in_year(year: int, match: re.Match[str]) -> str:
    month, day = match.group("month"), match.group("day")
    return iso(year, int(month) if month else None, int(day) if day else None) or iso(year)


def _month(today: datetime.date, ahead: int) -> str:
    months = today.year * 12 + today.month - 1 + ahead
    return iso(months // 12, months % 12 + 1)
