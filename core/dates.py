"""Parse written times into UTC microseconds, and dates as people write them, in Chinese and English, into ISO
8601: a day, a month or a year.

In a question, only what is certainly a date counts (2018年, 去年, in March 2021, last year).
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache

from core.text import fold_width

LATEST_ZONE = timezone(timedelta(hours=-12))
"""Interpreted in this zone, a local time is the latest instant that it can mean anywhere."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
END_US = 253_402_300_800_000_000  # the year 10000, where datetime ends
_DAY_US = 86_400_000_000
MAX_EXPIRE_DAYS = 36_500
CACHED_QUESTIONS = 512  # those of running conversations: each is read again in every later turn
_ZULU = re.compile(r"\s*(?:z|utc|gmt)$", re.IGNORECASE)


def today(zone: tzinfo) -> date:
    return datetime.now(zone).date()


def is_moment(created_us: int) -> bool:
    """Whether the time is after 1970, which stands for "unknown", and before the year 10000."""
    return 0 < created_us < END_US


def parse_time(text: str, zone: tzinfo) -> int | None:
    """Parse ISO 8601 or RFC 3339 into UTC microseconds; `zone` is for times that name none. None: unreadable.

    Of the two instants that a local time has when clocks are set back, take the later, so that nothing
    expires early; likewise for the hour that is skipped when they are set forward.
    """
    try:
        moment = _read(text)
        if moment.tzinfo is not None:
            moments = [moment]
        else:
            moments = [moment.replace(tzinfo=zone, fold=fold) for fold in (0, 1)]
        created_us = max((each.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1) for each in moments)
    except (ValueError, OverflowError):
        return None
    return created_us if is_moment(created_us) else None


def moment_at(us: int) -> datetime:
    """Convert UTC microseconds to a UTC datetime, clamped (damaged records) so that any zone can show it."""
    return _EPOCH + timedelta(microseconds=min(max(us, _DAY_US), END_US - _DAY_US))


def rfc3339(created_us: int) -> str:
    """Format UTC microseconds as RFC 3339 with microseconds and Z, which sorts as text in time order.

    An impossible time, as a damaged record may hold, becomes the nearest possible: the beginning of 1970, or
    the end of the year 9999.
    """
    created_us = min(max(created_us, 0), END_US - 1)
    moment = datetime.fromtimestamp(created_us // 1_000_000, UTC).replace(microsecond=created_us % 1_000_000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def names_zone(text: str) -> bool | None:
    """Whether a written time names its zone; None if it is not a time."""
    try:
        return _read(text).tzinfo is not None
    except ValueError:
        return None


def _read(text: str) -> datetime:
    return datetime.fromisoformat(_ZULU.sub("+00:00", text.strip()))


EARLIEST_YEAR, LATEST_YEAR = 1000, 2999

MONTH_NAMES = (
    "jan(?:uary)?", "feb(?:ruary)?", "mar(?:ch)?", "apr(?:il)?", "may", "june?", "july?", "aug(?:ust)?",
    "sept?(?:ember)?", "oct(?:ober)?", "nov(?:ember)?", "dec(?:ember)?",
)  # fmt: skip
_MONTH = rf"(?P<name>(?:{'|'.join(MONTH_NAMES)}))\b\.?"
_DAY = r"(?P<day>\d{1,2})"
_YEAR = r"(?P<year>[12]\d{3})"
_NO_DIGIT_AFTER = r"(?!\d)"
# part of a longer number or of an identifier is not a date
_BEGINS = r"(?<![\dA-Za-z_])(?<![\dA-Za-z][-/.#])"
_GAP = r"\s{0,3}"
# 1990年代 is a decade, and 2000年前, 2000年来, 2000年的历史 are two thousand years
_NOT_A_SPAN = r"(?![代龄齡])(?!(?<=00年)(?:[前来來间間多]|之久|的?(?:历史|歷史|文明)))"
_FORMS = (
    rf"{_YEAR}{_GAP}年{_NOT_A_SPAN}(?:度|的(?={_GAP}\d{{1,2}}{_GAP}月))?{_GAP}(?:(?P<month>\d{{1,2}}){_GAP}月(?:{_GAP}{_DAY}{_GAP}[日号號])?)?",
    rf"{_YEAR}{_GAP}(?P<mark>[-/.]){_GAP}(?P<month>\d{{1,2}}){_GAP}(?P=mark){_GAP}{_DAY}{_NO_DIGIT_AFTER}(?!(?P=mark)\d)",
    rf"{_YEAR}[-/](?P<month>0[1-9]|1[0-2])(?![-/.]?\d)",
    rf"{_DAY}(?:st|nd|rd|th)?(?: of)?[\s-]{{1,3}}{_MONTH},?[\s-]{{1,3}}{_YEAR}{_NO_DIGIT_AFTER}",
    rf"{_MONTH}\s{{1,3}}{_DAY}(?:st|nd|rd|th)?,?\s{{1,3}}{_YEAR}{_NO_DIGIT_AFTER}",
    rf"{_MONTH},?(?: of)?\s{{1,3}}{_YEAR}(?![\d:])",
    rf"{_DAY}(?P<mark>[-/.])(?P<month>\d{{1,2}})(?P=mark){_YEAR}{_NO_DIGIT_AFTER}",
)
_WRITTEN = [re.compile(_BEGINS + form, re.IGNORECASE) for form in _FORMS]
_ISO = re.compile(r"([12]\d{3})(?:-(\d\d)(?:-(\d\d))?)?", re.ASCII)
_NUMERALS = "〇零一二三四五六七八九"
_YEAR_IN_WORDS = re.compile(r"[一二][〇零○O一二三四五六七八九]{3}(?=\s*年)")
_IN_WORDS = re.compile(r"(?:[二三]?十[一二三四五六七八九]?|[一二三四五六七八九])(?=\s*[月日号號点點])")
_DIGITS = {ord(char): str(max(0, at - 1)) for at, char in enumerate(_NUMERALS)} | {
    ord("○"): "0",
    ord("O"): "0",
}


@dataclass(frozen=True, slots=True)
class WrittenDate:
    """`iso` is the date in `text[start:end]`. `sure` is False for forms that versions share: 2021.3.2."""

    start: int
    end: int
    iso: str
    sure: bool


def iso(year: int, month: int | None = None, day: int | None = None) -> str:
    """Format as "2021", "2021-03" or "2021-03-05"; "" if there is no such day."""
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
    """Whether this is YYYY, YYYY-MM or YYYY-MM-DD, in the years 1000 to 2999, and a day that exists."""
    match = _ISO.fullmatch(text)
    return match is not None and bool(iso(*(int(part) for part in match.groups() if part)))


def first_day(date: str) -> int:
    """Return the first day of an ISO day, month or year as a number: "2026-03" → 20260301; "" → 0."""
    match = _ISO.fullmatch(date)
    if match is None:
        return 0
    year, month, day = (int(part) if part else 1 for part in match.groups())
    return year * 10_000 + month * 100 + day


def last_day(date: str) -> int:
    """Return the last day of it as a number: "2026-02" → 20260228; "" → 0."""
    match = _ISO.fullmatch(date)
    if match is None:
        return 0
    year, month = int(match.group(1)), int(match.group(2) or 12)
    day = int(match.group(3) or calendar.monthrange(year, month)[1])
    return year * 10_000 + month * 100 + day


def day_asked(asked: str, today: date) -> date:
    """Return the day from which 去年 and last month are counted: the last day of `asked` (ISO 8601, "" for
    today), or `today` if that period contains it."""
    last = last_day(asked)
    if not last or first_day(asked) <= int(f"{today:%Y%m%d}") <= last:
        return today
    return date(last // 10_000, last // 100 % 100, last % 100)


def in_digits(text: str) -> str:
    """Replace Chinese numerals of years, months, days and hours with digits: 二〇一八年三月 → 2018年3月."""
    text = _YEAR_IN_WORDS.sub(lambda match: match.group().translate(_DIGITS), text)
    return _IN_WORDS.sub(lambda match: f"{number_in(match.group()):g}", text)


def written_dates(text: str) -> Iterator[WrittenDate]:
    """Yield every date that names its year, in text order; of overlapping readings only one.

    Digits only (see `in_digits`). 03/04/2021 gives only the year. A bare year is not a date.
    """
    matches = [match for form in _WRITTEN for match in form.finditer(text)]
    at = 0
    for match in sorted(matches, key=lambda match: (match.start(), -match.end())):
        if match.start() < at:
            continue
        at = match.end()
        if named := _iso_of(match):
            yield WrittenDate(match.start(), match.end(), named, _is_sure(match))


def leading_date(text: str) -> str:
    """Return the date at the beginning of the text; "" if there is none, or no such day exists."""
    for form in _WRITTEN:
        if match := form.match(text):
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
    if parts["mark"] == "." and month <= 12:  # with dots, the day always comes first
        return iso(year, month, day)
    if month == day or max(month, day) > 12:  # the order of day and month is clear only then
        return iso(year, min(month, day), max(month, day))
    return iso(year) if min(month, day) > 0 else ""


def _month_of(name: str) -> int:
    return next(at for at, pattern in enumerate(MONTH_NAMES, start=1) if re.fullmatch(pattern, name.lower()))


def _is_sure(match: re.Match[str]) -> bool:
    parts = match.groupdict()
    if parts.get("mark") != ".":
        return True
    return len(parts["month"]) == 2 and len(parts["day"]) == 2


_SIZES = {"十": 10, "百": 100, "千": 1_000, "万": 10_000}
_ZERO_RUNS = re.compile("(?:零[千百十]?)+")


def in_words(number: int) -> str:
    """Write 1…9999 in Chinese numerals: 一千零七十九."""
    digits = (_NUMERALS[1 + number // size % 10] for size in (1000, 100, 10, 1))
    text = "".join(f"{digit}{size}" for digit, size in zip(digits, ("千", "百", "十", ""), strict=True))
    return _ZERO_RUNS.sub("零", text).strip("零").removeprefix("一" if 10 <= number < 20 else "")


def number_in(words: str) -> float | None:
    """Read Chinese numerals: 两百五 → 250, 半 → .5; None if they are no number, as 二三十."""
    total, digit, size = 0, 0, 10
    for numeral in words.replace("两", "二").replace("兩", "二"):
        if numeral in _SIZES:
            size = _SIZES[numeral]
            total = (total + digit) * size if size == 10_000 else total + (digit or 1) * size
            digit = 0
        elif numeral in "〇零":
            size = 10
        elif digit or numeral not in _NUMERALS:
            return 0.5 if words == "半" else None
        else:
            digit = _NUMERALS.index(numeral) - 1
    return float(total + digit * size // 10)


MAX_CHARS = 2_000
_MAY_HOLD_DATE = re.compile(r"\d|[年月天]|year|month|yesterday|tomorrow", re.IGNORECASE)  # all forms need one
MAX_SPAN_YEARS = 10  # a range up to this long gives every year, a longer one its ends
EARLIEST_BARE_YEAR = 1900  # a number without 年 that may be a year
YEARS_AHEAD = 20

_YYYY = r"([12]\d{3})"
_COUNTED = (
    r"words?|char|tokens?|people|persons?|users?|students?|staff|dollars?|usd|yuan|rmb|cny|euros?|pounds?|k?m\b"
    r"|met(?:er|re)s?|kilomet|miles?|feet|k?g\b|tons?|lines?|m?s\b|seconds?|minutes?|hours?|days?|weeks?|months?"
    r"|years?|times|steps?|rows?|records?|items?|units?|copies|cases|countries|cities|pages?|points?|requests?"
    r"|calls?|[kmg]?b\b|px|pixels?|calories|volts?|watts?|or (?:more|less|fewer)|and (?:more|above)"
)
_NOT_A_QUANTITY = (
    r"(?!\s?(?:to|and|or|[-–])\s?(?!(?:19|20)\d\d\b)\d)(?![\w.,:%/-]*\d)(?!\s?[%$€£¥元°])"
    rf"(?!\s(?:{_COUNTED}))"
)
_RANGES = (
    re.compile(rf"(?<![\w.-]){_YYYY}\s?年?\s?(?:[-–—~～至到]|to|through)\s?{_YYYY}(?![\d-])(?:\s?年)?"),
    re.compile(rf"\bbetween\s{_YYYY}\sand\s{_YYYY}(?!\d)", re.IGNORECASE),
)
_SEASON = re.compile(rf"(?<![\w./-]){_YYYY}\s?[-–/]\s?(\d\d)(?![\d/-])(?!\s?月)")
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
        rf"\b(?:{_AFTER_WORDS})\s{_YYYY}(?!\d){_NOT_A_QUANTITY}",
        rf"\b(?:by|for|of)\s{_YYYY}(?=\s*(?:[?.!,;:)]|$))",
        rf"\b(?:FY|fiscal(?: year)?|financial year|academic year|Q[1-4]|H[12]|CY)[\s-]?{_YYYY}(?![\w.])",
        rf"(?<![\w.#-]){_YYYY}\s(?=(?:{_BEFORE_WORDS}))",
        rf"(?<![\w.#-]){_YYYY}(?=\s?(?:{_BEFORE_WORDS_ZH}))",
        r"\bFY\s?'?(\d\d)(?![\w.%])",
    )
]
_LOWERCASE_MAY = re.compile(r"(?:^|[^\w])may\s")
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


@lru_cache(maxsize=CACHED_QUESTIONS)
def dates_in(question: str, today: date) -> tuple[str, ...]:
    """Return ISO 8601 days, months and years without duplicates: explicit dates first, in the order of the
    question, then those relative to `today` (去年, last month).

    今天, today and now are ignored, since they go with anything; so is a month without its year.
    """
    folded = fold_width(question[:MAX_CHARS])
    if not _MAY_HOLD_DATE.search(folded):
        return ()
    text = in_digits(folded)
    named = sorted(_written(text, today))
    explicit = [date for _, date in named]
    relative = [date for _, date in sorted(_relative(text, today))]
    return tuple(dict.fromkeys(filter(None, (*explicit, *relative))))


def _written(text: str, today: date) -> Iterator[tuple[int, str]]:
    """Yield the index and ISO form of each date; a stretch that one form matched is not read again."""
    latest = today.year + YEARS_AHEAD
    taken: list[tuple[int, int]] = []
    for start, end, dates in _readings(text):
        known = [date for date in dates if date and int(date[:4]) <= latest]
        if known and not any(start < until and since < end for since, until in taken):
            taken.append((start, end))
            yield from ((start + at, date) for at, date in enumerate(known))


def _readings(text: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield start, end and dates; the most specific forms first."""
    yield from _spans(text)
    for written in written_dates(text):
        if written.sure and not _is_modal(text, written):
            yield written.start, written.end, [written.iso]
    for match in _SHORT_YEAR.finditer(text):
        year, month, day = match.groups()
        yield match.start(), match.end(), [iso(2000 + int(year), int(month), int(day) if day else None)]
    for match in (match for form in _BARE_YEARS for match in form.finditer(text)):
        year = match.group(1) if len(match.group(1)) == 4 else f"20{match.group(1)}"
        if int(year) >= EARLIEST_BARE_YEAR:
            yield match.start(1), match.end(1), [year]


def _spans(text: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield ranges of years: 2019-2021, and 2021/22."""
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
    """Whether this "may" is the verb: How many people may 2000 flyers reach?"""
    is_may = _LOWERCASE_MAY.match(text[max(0, date.start - 1) : date.end])
    return is_may is not None and not _AFTER_PREPOSITION.search(text[: date.start])


def _relative(text: str, today: date) -> Iterator[tuple[int, str]]:
    words: tuple[tuple[tuple[tuple[str, int], ...], str, Callable[[int, re.Match[str]], str]], ...] = (
        (_YEAR_WORDS, _MONTH_OF, lambda ago, match: _in_year(today.year + ago, match)),
        (_MONTH_WORDS, "", lambda ago, _: _month(today, ago)),
        (_DAY_WORDS, "", lambda ago, _: (today + timedelta(days=ago)).isoformat()),
    )
    for forms, tail, date_of in words:
        for form, ago in forms:
            for match in re.finditer(f"(?:{form}){tail}", text, re.IGNORECASE):
                yield match.start(), date_of(ago, match)


def _in_year(year: int, match: re.Match[str]) -> str:
    month, day = match.group("month"), match.group("day")
    return iso(year, int(month) if month else None, int(day) if day else None) or iso(year)


def _month(today: date, ahead: int) -> str:
    months = today.year * 12 + today.month - 1 + ahead
    return iso(months // 12, months % 12 + 1)
