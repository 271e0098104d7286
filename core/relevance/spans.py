"""Whether a day or a time of day in a question lies within a span given in a text: June 10 in "June 5 to June
20", 9 pm in "8:00 to 22:00". What applies during the span is left to the text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from core.dates import MONTH_NAMES, in_digits
from core.relevance.sparse import CACHED_TEXTS
from core.text import fold_width

_MONTH = rf"\b(?P<month>{'|'.join(f'(?:{name})' for name in MONTH_NAMES)})\b\.?"
_DAY, _UNTIL = (
    r"(?<!\d)(?P<day>\d{1,2})(?:st|nd|rd|th)?",
    r"(?:\s?(?:[-–—]|to)\s?(?P<until>\d{1,2})(?:st|nd|rd|th)?)?(?![\d:])",
)
_DAYS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?<!\d)(?P<month>\d{1,2})\s?月\s?(?P<day>\d{1,2})(?!\d)(?:\s?[日号號])?",
        r"(?<![\d年第])(?P<day>\d{1,2})\s?[日号號](?![楼樓线線院柜机機室房门門])",  # in every month
        r"(?<!\d)20\d\d[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})(?!\d)",
        rf"{_MONTH}\s{_DAY}{_UNTIL}(?:,?\s20\d\d)?",
        rf"{_DAY}{_UNTIL}\s(?:of\s)?{_MONTH}(?:,?\s20\d\d)?",
    )
]
_TIMES = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?P<part>凌晨|夜里|[早晚下傍][上晚午]?)?\s?(?<![\d.])(?P<hour>\d{1,2})\s?"
        r"(?:[:：](?P<minute>\d\d)(?![\d:])|[点點時时](?![间間])(?P<half>半)?)(?:\s?(?P<half_day>[ap])\.?m\b)?",
        r"(?<![\d.:])(?P<hour>\d{1,2})\s?(?P<half_day>[ap])\.?m\b",
    )
]
_TO = re.compile(
    r"\s*(?:[（(][^（()）]{1,8}[)）]\s*)?(?:[-–—~～至到]+|to|through|until|till)\s*"
    r"(?:次[日年]|翌[日年]|第二天|(?:20\d\d)\s?年?)?\s*",
    re.IGNORECASE,
)
_PM = frozenset("晚下傍夜p")
_MAX_CHARS = 8_000  # far longer than any chunk
_MONTHS = [re.compile(name, re.IGNORECASE) for name in MONTH_NAMES]


class _Moment(NamedTuple):
    """`first` to `last`, usually equal: days as month × 100 + day, month 0 for every month, or minutes."""

    start: int
    end: int
    first: int
    last: int


def names_moment(question: str) -> bool:
    """Whether the question names a day or a time of day."""
    return any(moments for moments, _ in _moments(question))


def lies_in_span(question: str, text: str) -> bool:
    """Whether a day or a time in the question lies within a span of days or times given in the text."""
    if not names_moment(question):
        return False
    asked = _moments(question)
    each = zip(asked, _moments(text), strict=True)
    pairs = ((moment, span) for (moments, _), (_, spans) in each for moment in moments for span in spans)
    return any(_is_within(moment.first, *span) for moment, span in pairs)


def without_moments(text: str) -> str:
    """Remove days and times of day."""
    text = in_digits(fold_width(text))
    for pattern in (*_DAYS, *_TIMES):
        text = pattern.sub(" ", text)
    return text


_Spans = list[tuple[int, int]]


@lru_cache(maxsize=CACHED_TEXTS)
def _moments(text: str) -> tuple[tuple[list[_Moment], _Spans], tuple[list[_Moment], _Spans]]:
    """Return, for days and for times of day, the moments in the text, in order, and its spans."""
    text = in_digits(fold_width(text[:_MAX_CHARS]))
    days = _without_overlaps(_day(match) for each in _DAYS for match in each.finditer(text))
    times = _without_overlaps(_time(match) for each in _TIMES for match in each.finditer(text))
    return (days, [*_spans(text, days)]), (times, [*_spans(text, times)])


def _without_overlaps(moments: Iterable[_Moment]) -> list[_Moment]:
    """Resolve overlaps, in text order: the 5th of June is not also the 5th of every month."""
    longest: list[_Moment] = []
    for moment in sorted(moments, key=lambda each: (each.start, -each.end)):
        if not longest or moment.start >= longest[-1].end:
            longest.append(moment)
    return longest


def _day(match: re.Match[str]) -> _Moment:
    named = {"month": "0", "until": None, **match.groupdict()}
    day, until, month = named["day"] or "0", named["until"], str(named["month"])
    if not month.isdecimal():
        month = str(next(at for at, name in enumerate(_MONTHS, 1) if name.fullmatch(month)))
    first, last = (int(month) * 100 + int(number) for number in (day, until or day))
    return _Moment(*match.span(), first, last)


def _time(match: re.Match[str]) -> _Moment:
    named = {"minute": None, "half": None, "part": None, **match.groupdict()}
    hour, part = int(named["hour"] or 0), (named["part"] or named["half_day"] or " ").lower()
    hour = hour % 12 + 12 * (part[0] in _PM) if part[0] in _PM or part == "a" else hour
    minutes = hour * 60 + (30 if named["half"] else int(named["minute"] or 0))
    return _Moment(*match.span(), minutes, minutes)


def _spans(text: str, named: list[_Moment]) -> Iterator[tuple[int, int]]:
    yield from ((each.first, each.last) for each in named if each.last != each.first)
    for one, other in pairwise(named):
        if _TO.fullmatch(text, one.end, other.start):
            yield one.first, other.last


def _is_within(asked: int, first: int, last: int) -> bool:
    """Handles November 15 to February 28, 22:00 to 7:00, and June 5 to the 20th."""
    if last < 32 < first:
        last += first // 100 * 100
    if last < 32:
        asked %= 100
    return first <= asked <= last if first <= last else not last < asked < first
