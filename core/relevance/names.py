"""What a question names and an embedding barely represents: part numbers and codes, clauses, articles, days
and times of day, versions, people. What applies during a span of days or times is left to the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
from typing import NamedTuple

from core.dates import MONTH_NAMES, in_digits, in_words, number_in
from core.relevance.query import (
    CERTAIN_FOLLOW_UP,
    MAX_FORM_CHARS,
    MAY_LEAN_WORDS,
    follow_up_weight,
    names_subject,
    own_words,
    wording,
)
from core.relevance.sparse import CACHED_TEXTS, covered, ungrouped
from core.text import fold_width

MAX_CODES = 16

_WORD = re.compile(r"[A-Za-z0-9]+(?:[-_./:][A-Za-z0-9]+)*")
_MANY_DIGITS = re.compile(r"\d{4}")
_YEAR = r"(?:1\d|20)\d\d"
_NOT_A_CODE = re.compile(
    rf"{_YEAR}(?:[-/.]\d{{1,2}}){{0,2}}|\d{{1,2}}[-/.]\d{{1,2}}[-/.]{_YEAR}|{_YEAR}[-/]{_YEAR}"
    r"|(?:[a-z]{4,}-)?\d+(?:st|nd|rd|th|s)"
)
_CALLED_CODE = re.compile(
    r"(?:\b(?:http|error|code|status|alarm)\b|错误|錯誤|错|故障|代码|代碼|报警|報警|状态|警报)[码碼号號]?"
    r"[ :：#]{0,2}(\d{3})(?!\d|\.\d|\s?[行个個次条條元天])",
    re.IGNORECASE,
)
_SHORT_CODE = re.compile(r"(?=.{2,8}$)[a-z]+-?\d[a-z\d]*")
_MAX_IDENTIFIER_CHARS = 64


def identifiers(text: str) -> tuple[str, ...]:
    """Return the identifiers in `text`, lowercased, deduplicated, in order of appearance. An identifier is a
    word with four consecutive digits that is not a year or date, a word of letters with at least two digits
    that is not an ordinal, or a three-digit number that the text calls an error or a code."""
    names: dict[str, None] = {}
    called = frozenset(_CALLED_CODE.findall(text))
    for word in _words(text):
        if word not in called and not _is_identifier(word):
            continue
        names[word] = None
        if len(names) == MAX_CODES:
            break
    return tuple(names)


def codes_of_kind(code: str) -> re.Pattern[str]:
    """Match codes that agree up to their first digit or, for numbers, in length: E2 and E-05 for E02,
    TH-215-E for TH-212-W."""
    letters = re.split(r"\d", code)[0].rstrip("-_./: ")
    kind = rf"{re.escape(letters)}[-_ ]?\d" if letters else rf"\d{{{len(code)}}}(?!\d)"
    return re.compile(rf"(?<![a-z0-9]){kind}", re.IGNORECASE)


def short_codes(text: str) -> frozenset[str]:
    """Return words of letters followed by digits, lowercased: E2, but also A4 and B2. They are codes if table
    rows begin with them. At most the first sixteen: each is searched for in all passages."""
    codes = dict.fromkeys(filter(_SHORT_CODE.fullmatch, _words(text)))
    return frozenset(islice(codes, MAX_CODES))


def _words(text: str) -> Iterator[str]:
    return (match.group().lower() for match in _WORD.finditer(text))


def clauses(question: str) -> tuple[str, ...]:
    """Return the dotted numbers of the clauses, sections and so on that the question names, in order."""
    return tuple(dict.fromkeys(wording("clause").findall(question)))[:MAX_CODES]


@dataclass(frozen=True, slots=True)
class NumberedPart:
    """An article, chapter, figure or the like, named by its number; `alike` matches all of its kind."""

    name: str
    number: str
    called: re.Pattern[str]
    heads: re.Pattern[str]
    alike: re.Pattern[str]

    def share(self, text: str) -> float:
        """Return 1 if the part begins in the text or heads it, MENTIONED if the text only names it."""
        if self.heads.search(text):
            return 1.0
        return MENTIONED if self.called.search(text) else 0.0

    def is_item_of(self, answer: str) -> bool:
        """Whether it is a list item there: 第二条, if the answer quoted a list and no article."""
        if self.name[-1] not in "条條":
            return False
        quoted = answer.replace("> ", "")
        item = re.search(rf"^ *(?:{self.number})[.、．)]", quoted, re.MULTILINE)
        return item is not None and not self.alike.search(quoted)


MENTIONED = 0.5
_IN_BOTH_SCRIPTS = {"条": "[条條]", "节": "[节節]", "课": "[课課]", "讲": "[讲講]", "编": "[编編]"}
_TO_ONE_SCRIPT = str.maketrans("條節課講編〇两兩", "条节课讲编零二二")
_LINE_START = r"(?:^|> )[ \t\u3000#*>_【|-]*+"  # a line, or a heading in a path


@lru_cache(maxsize=32)  # a turn needs it for judging, quoting and citing
def numbered_parts(question: str, answer: str = "") -> tuple[NumberedPart, ...]:
    """Return the parts that a question names, deduplicated: 第37条, Chapter 3, 附件二. 第37条 also matches
    第三十七条, and section 5 the heading "5. Safety". Items of the last `answer` are excluded."""
    if len(question) > MAX_FORM_CHARS:
        return ()
    each = ((name, match) for name in _AS_WRITTEN for match in wording(name).finditer(question))
    once = {match.group(): (_AS_WRITTEN[name], match) for name, match in each}
    parts = [_numbered_part(*one) for one in list(once.values())[:MAX_CODES]]
    return tuple(part for part in parts if not part.is_item_of(answer))


# By wording, how texts refer to such a part.
_AS_WRITTEN = {
    "numbered_zh": r"第\s?(?:{number})\s?{kind}|(?<=> )(?:{number})(?=[、.．\s])",
    "numbered_en": r"\b{kind}\s(?:{number})(?![\d.]*\d)|(?<=> )(?:{number})(?=[.)]?\s)",
    "labelled": r"{kind}\s?(?:{number})(?![\d.]*\d)(?![A-Za-z一二三四五六七八九十])",
}


_ANY_NUMBER = r"\d+|[零一二三四五六七八九十百千]+"


def _numbered_part(written: str, match: re.Match[str]) -> NumberedPart:
    kind, number = (match[name].translate(_TO_ONE_SCRIPT) for name in ("kind", "number"))
    known = int(number) if number.isdecimal() else int(number_in(number) or 0)
    number = f"{known}|{in_words(known)}" if known else re.escape(number)
    kind = _IN_BOTH_SCRIPTS.get(kind, kind)
    called, alike = (written.format(kind=kind, number=each) for each in (number, _ANY_NUMBER))
    of_line = re.IGNORECASE | re.MULTILINE
    heads, others = (re.compile(f"{_LINE_START}(?:{each})", of_line) for each in (called, alike))
    return NumberedPart(match.group(), number, re.compile(called, re.IGNORECASE), heads, others)


def shares(names: tuple[str, ...], texts: list[str]) -> list[float]:
    """Return the share of the identifiers that each text has as whole words, 0…1."""
    if not names:
        return [0.0] * len(texts)
    lowered = [ungrouped(text.lower()) for text in texts]
    return [sum(_has_word(text, code) for code in names) / len(names) for text in lowered]


def _has_word(text: str, code: str) -> bool:
    """Check for the code first: compiling a pattern takes a millisecond."""
    return code in text and bool(re.search(rf"(?<![a-z0-9]){re.escape(code)}(?![a-z0-9])", text))


def _is_identifier(word: str) -> bool:
    digits = sum(map(str.isdigit, word))
    if digits < 2 or len(word) > _MAX_IDENTIFIER_CHARS or _NOT_A_CODE.fullmatch(word):
        return False
    return any(map(str.isalpha, word)) or _MANY_DIGITS.search(word) is not None


STILL_COVERED = 0.5  # of an earlier question's words, in the last answer: it is still the subject
_PLACES = {"first": 0, "second": 1, "third": 2, "last": -1}
MAX_CARRIED = 3


def with_subject(question: str, before: Sequence[str], answer: str) -> list[str]:
    """Return the earlier questions so that the last one names what a follow-up is about: with the names that
    it carries over from the last answer, or else merged with those it depends on itself, or that the last
    answer is still about. Joined with "how is it paid?" or 谁负责 alone, "when does it start?" would be about
    nothing."""
    before = [*before]
    if not before:
        return before
    if names := carried(question, before[-1], answer):
        return [*before[:-1], f"{before[-1]} {names}"]
    if people := _people_meant(question, before, answer):
        return [*before[:-1], people if wording("person").search(question) else f"{before[-1]} {people}"]
    if own_words(question) > MAY_LEAN_WORDS:
        return before
    at = _first_of(before, lambda text: True)
    if covered(before[at], answer) < STILL_COVERED:
        if follow_up_weight(question) < CERTAIN_FOLLOW_UP:
            return before
        at = _first_of(before, lambda text: not names_subject(text))
    return [*before[:at], " ".join(before[at:])]


def _first_of(before: Sequence[str], goes_on: Callable[[str], bool]) -> int:
    """Return the index of the question that the last ones, each a follow-up, depend on."""
    at = len(before) - 1
    while at > 0 and follow_up_weight(before[at]) >= CERTAIN_FOLLOW_UP and goes_on(before[at]):
        at -= 1
    return at


def carried(question: str, last: str, answer: str) -> str:
    """Return the names (part numbers, rooms, codes) of the last answer that a follow-up question is about.

    The one it points at (the second one, 最后那个), or, if the last question asked "which", those that it did
    not name itself, or, if it asked "whether", the only one; "" for most questions.
    """
    if not follow_up_weight(question):
        return ""
    lowered = answer.lower()
    names = [answer[at : at + len(name)] for name in identifiers(answer) if (at := lowered.find(name)) >= 0]
    if not names:
        return ""
    place = next((at for name, at in _PLACES.items() if wording(name).search(question)), None)
    if place is not None:
        return names[place] if len(names) > 1 and place < len(names) else ""
    new = [name for name in names if name.lower() not in last.lower()]
    most = MAX_CARRIED if wording("which").search(last) else int(wording("whether").search(last) is not None)
    return " ".join(new) if wording("it").search(question) and len(new) <= most else ""


_CLAUSE = re.compile(r"(?:[^，,。；;！!？?\n.]|\.(?! ))+[，,。；;！!？?\n.]?")
_ENDS = frozenset("。；;！!？?\n.")


def people_in(text: str) -> list[str]:
    """Return the names of people: 李敏, 老蔡, 王师傅, then Anil Mehta. No Chinese one begins with a word of
    the dictionary, unless that has it as a name."""
    names = [match["called"] or match["name"] for match in wording("named_zh").finditer(text)]
    names += [match["english"] for match in wording("named_en").finditer(text)]
    return [name for name in dict.fromkeys(names) if len(name) > 1 and _may_be_name(name)]


def _may_be_name(name: str) -> bool:
    import rjieba

    if name.isascii():
        return True
    word, tag = rjieba.tag(name, False)[0]
    return len(word) == 1 or tag[:2] in ("nr", "ns", "nz") or name[0] == "老"


def _people_meant(question: str, before: Sequence[str], answer: str) -> str:
    """Return whom 他 is, or whose 电话 is asked for after 谁: those of the last answer named beside most
    words of the question that they answered. "" for any other question, or one that names somebody."""
    is_of_person = wording("person").search(question) is not None
    at = _first_of(before, lambda text: not wording("who").search(text))
    asks_who = wording("who").search(before[at]) and wording("reaches").search(question)
    asked = " ".join(before[at:])
    if not (follow_up_weight(question) and (is_of_person or asks_who)) or people_in(f"{asked}\n{question}"):
        return ""
    beside = beside_people(re.sub(r"^> ?", "", answer, flags=re.MULTILINE))
    return max(beside, key=lambda names: covered(asked, beside[names]), default="")


def beside_people(text: str) -> dict[str, str]:
    """Return the clauses about each person, or about several in one clause: in a paragraph, from the
    beginning of the sentence that names them to the next name."""
    beside = dict[str, str]()
    for block in text.split("\n\n"):
        names = before = ""
        for clause in _CLAUSE.findall(block):
            if people := people_in(clause):
                names = " ".join(people[:MAX_CARRIED])
            if names:
                beside[names], before = f"{beside.get(names, '')}{before}{clause}", ""
            else:
                before = "" if clause[-1] in _ENDS else f"{before}{clause}"
    return beside


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


def gives_hours(text: str) -> bool:
    """Whether the text has a span of times of day: 8:00–22:00."""
    (_, (_, spans)) = _moments(text)
    return bool(spans)


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


# Called a version (v3.6, 版本 3.6), or with three numbers: 3.6.0. Addresses have four, dates more digits.
_VERSION = r"(?:(?:\b(?:version|release|v)|版本)[ .:：]?\s?{number}|{three})(?![.\d]*\d)"
_NUMBER, _THREE = r"\d{1,3}(?:\.\d{1,3}){1,3}", r"(?<![\d.§])\d{1,3}\.\d{1,3}\.\d{1,3}"
_NAMED = re.compile(_VERSION.format(number=f"({_NUMBER})", three=f"({_THREE})"), re.IGNORECASE)
# At the beginning of a line, a row or a heading, followed by nothing or by its date: not section 3.6.1.
_HEADS = r"(?:^|> )[ \t*#|>\[-]{{0,8}}+(?:\w+ )?{version}(?=[ \t*\]]*(?:[|(（:：,，–—-]|$))"
_OF_LINE = re.IGNORECASE | re.MULTILINE
_ALIKE = re.compile(_HEADS.format(version=_VERSION.format(number=_NUMBER, three=_THREE)), _OF_LINE)


@dataclass(frozen=True, slots=True)
class Version:
    """`called` matches it anywhere in a text, `heads` above its release notes, `alike` above those of any
    version."""

    name: str
    called: re.Pattern[str]
    heads: re.Pattern[str]
    alike: re.Pattern[str] = _ALIKE


@lru_cache(maxsize=32)  # a turn needs it for judging and quoting
def version_in(question: str) -> Version | None:
    """Return the version that the question names; None without one or with several: from 4.9.0 to 5.4.0."""
    if len(question) > MAX_FORM_CHARS or clauses(question):
        return None
    named = {one or other for one, other in _NAMED.findall(question)}
    if len(named) != 1:
        return None
    (name,) = named
    own = rf"(?<![\d.]){re.escape(name)}(?!\d)"
    either = rf"(?:(?:version|release|v|版本)[ .:：]?\s?)?{own}(?:\.\d+)*"
    return Version(name, re.compile(own), re.compile(_HEADS.format(version=either), _OF_LINE))
