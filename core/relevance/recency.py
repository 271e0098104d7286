"""Prefer candidates of the right time: dated as the question says, the version in force when it was asked,
and not marked as void.

A preference, never a filter: the odds of the others are divided, so that one that answers much better still
ranks first. Undated candidates keep their probability, but one under another quarter, month, weekday or year
than the question's is at most the closest, as are the notes of another version; one with a line for that
period and all words of the question is sure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from core.dates import MONTH_NAMES, first_day, last_day
from core.knowledge import Candidate, Chunk
from core.relevance.amounts import AMOUNT, amounts, in_arabic, lies_in_range
from core.relevance.features import asks_only_of
from core.relevance.names import (
    gives_hours,
    lies_in_span,
    names_moment,
    version_in,
    without_moments,
)
from core.relevance.probability import FEW_NAMED, MIN_NAMED, NOT_SURE, SURE
from core.relevance.query import MAX_FORM_CHARS, Query, wording
from core.relevance.sparse import MIN_WORD_WEIGHT, covered, folded, is_cjk, question_terms, word_stems
from core.text import fold_width

# Logits that a candidate of another time loses. Chosen, not fitted: half of a wrong part number's
# IDENTIFIER_LOGIT.
DATE_LOGIT = 1.5
SHARED_WORDS = 0.6  # of the shorter text's character pairs; passages on one subject share up to .3
SAME_WORDS = 0.8  # from here on, versions differ only in numbers and answer alike
AMENDING_SHARE, AMENDED = 0.5, 1.0001  # of the question's words, and of the best probability
PAIRS = 16_384  # hash buckets for pairs: of a chunk's about 400 pairs, five collide by chance
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_NOT_IN_NAMES = re.compile(r"[\W\d_年月日]+")


def by_dates(query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates with probabilities adjusted by date, in the given order."""
    candidates = _by_versions(query, _by_periods(query, _by_titles(query, _by_spans(query, candidates))))
    candidates = _by_amendments(query, candidates)
    if not query.asked or not any(candidate.chunk.date for candidate in candidates):
        return candidates
    dated = [_Dated(candidate.chunk) for candidate in candidates]
    chances = [candidate.probability for candidate in candidates]
    behind = _out_of_period(query.dates, dated)
    if any(behind):  # then the question's own time has been applied
        judged = _judged(dated, chances, behind)
    else:
        day = max(map(last_day, query.dates or (query.asked,)))
        judged = _judged(dated, chances, _superseded(dated, day))
    return [
        replace(candidate, probability=chance) if chance != candidate.probability else candidate
        for candidate, chance in zip(candidates, judged, strict=True)
    ]


def _by_amendments(query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Rank what changes a numbered clause before the clause, which may still read as before, if it has half
    of the question's words and is half as probable as the best."""
    best = max((each.probability for each in candidates), default=0.0)
    least, judged = AMENDING_SHARE * best, list[Candidate]()
    for each in candidates:
        changes = wording("amends").finditer(each.chunk.text) if each.probability >= least else ()
        is_it = any(covered(query.question, change[0]) >= AMENDING_SHARE for change in changes)
        judged.append(replace(each, probability=min(1.0, AMENDED * best)) if is_it else each)
    return judged


def _by_titles(query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Lower texts under a title that says they are void, unless the question asks for those or names a time
    of its own."""
    titles = [f"{each.chunk.file_name} {each.chunk.heading}" for each in candidates]
    is_void = [bool(wording("void_title").search(title)) for title in titles]
    if query.dates or all(is_void) or not any(is_void) or wording("void").search(query.question):
        return list(candidates)
    return [
        replace(each, probability=_divided(each.probability, DATE_LOGIT)) if void else each
        for each, void in zip(candidates, is_void, strict=True)
    ]


# Quarters (1…4), halves (5, 6) and months (7…18) of a year; weekdays; years. The matching group is a number,
# or one of these words.
_WORDS = {
    word: at
    for words in ("一二三四五六七八九", "first second third fourth", "mon tue wed thu fri sat sun", "上下",
                  "jan feb mar apr may jun jul aug sep oct nov dec")
    for at, word in enumerate(words.split() if " " in words else words, 1)
} | {"日": 7, "天": 7, "十": 10, "十一": 11, "十二": 12}  # fmt: skip
_PERIODS = tuple(
    [(offset, re.compile(pattern, re.IGNORECASE)) for offset, pattern in family]
    for family in (
        (
            (0, r"(?<![a-z])q([1-4])(?!\d)|(?<!\d)([1-4])q\b|([1-4一二三四])季度"
                r"|\b(first|second|third|fourth|[1-4])(?:st|nd|rd|th)?\s{1,3}quarter"),
            (4, r"([上下])半年|(?<![a-z])h([12])(?![a-z\d])|\b(first|second)\s{1,3}half"),
            (6, r"(?<!\d)(1[0-2]|0?[1-9])月|\b20\d\d[-/](0[1-9]|1[0-2])(?!\d)"
                r"|(?<![一二三四五六七八九十])(十[一二]?|[一二三四五六七八九])月"
                rf"|\b(?:({'|'.join(MONTH_NAMES[:4])})|(?:(?!\A)(?<![.?!]\s)|(?=May\s*(?:\d|\n|\Z)))((?-i:May))|({'|'.join(MONTH_NAMES[5:])}))\b"),
        ),
        ((0, r"(?:周|週|星期|礼拜|禮拜)([一二三四五六日天])(?!次|个|個|回|遍|轮|輪|天(?!气|氣)|小时|小時)"
             r"|\b(mon|tues|wednes|thurs|fri|satur|sun)days?\b"
             r"|\b((?-i:Mon|Tues?|Wed|Thu|Fri|Sat|Sun(?!\.\*)))\b"),),
        ((0, r"(?<!\d)(199\d|20[0-4]\d)(?!\d)"),),
    )
)  # fmt: skip
_UP_TO = re.compile(
    r"\s*(?:\d{1,2}(?:日|号|號|st|nd|rd|th)?,?\s*)?(?:[-–—~～至到]|to|through|until)"
    r"\s*(?:20\d\d[-/年]?|次年|翌年|\d{1,2}(?:st|nd|rd|th)?\s)?"
)
_OF_YEAR, _OF_WEEK, _YEAR_ITSELF = range(len(_PERIODS))
_MONTHS, _WEEKDAYS = range(7, 19), range(1, 8)
# Other expressions that include a month, in a table of months.
_OTHER_MONTHS = re.compile(r"其[他它余餘]的?月|\b(?:an)?other months?\b", re.IGNORECASE)
# Other expressions that include a weekday; "within three working days" does not.
_SOME_DAYS = (
    (range(1, 6), re.compile(r"(?<![个個\d])工作日|平日|\bweekdays?\b", re.IGNORECASE)),
    (range(6, 8), re.compile(r"[周週](?:末|六[和、]?[日天])|双休日|雙休日|\bweekends?\b", re.IGNORECASE)),
    (_WEEKDAYS, re.compile(r"每天|每日|\bdaily\b|\bevery day\b", re.IGNORECASE)),
)
# a table's header, the first cell of a row, or the text before a colon
_LABEL = re.compile(
    r"^(\|[^\n]*)(?=\n[ \t]*\|[ :|-]+$)|^[ \t>*#|-]*([^|:：\n]{1,24})(?=[|:：])", re.MULTILINE
)
# In brackets, or of an edition: when the text was written, not what it is about.
_EDITION = re.compile(
    r"[（(【\[][^）)】\]]*[）)】\]]|\S*(?:版|手册|手冊|制度|修订|修訂|发布|發佈|生效|起|edition|version|revision)\S*"
    r"|\b(?:updated|revised|edition|version|revision|effective|since|as of)\b.*",
    re.IGNORECASE,
)


def _by_periods(query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
    """A text under another quarter, month, weekday or year than the question's is not sure, and ranks below
    those with that one; a line for that period with all of the question's words is sure."""
    named = [(family, numbers) for family, numbers in _asked(query).items() if len(numbers) == 1]
    if not named:
        return list(candidates)
    asker, words = _of_asker(query.question), _words(query.question)
    fits = [[_fits(each.chunk, family, numbers, asker) for family, numbers in named] for each in candidates]
    judged = []
    for candidate, of_each in zip(candidates, fits, strict=True):
        chance = candidate.probability
        if False in of_each:
            behind = any(other[at] for other in fits for at, fit in enumerate(of_each) if fit is False)
            chance = min(NOT_SURE, _divided(chance, DATE_LOGIT * behind))
        elif all(of_each) and _has_line(candidate.chunk, *named[0], words):
            chance = max(chance, min(SURE, _divided(chance, -DATE_LOGIT)))
        judged.append(replace(candidate, probability=chance))
    return judged


def _by_hours(query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Of 几点关门, which asks for opening hours and nothing else, the few texts with hours are at least the
    closest: they rather say 8:00–22:00 than that anything closes."""
    if not wording("asks_hours").fullmatch(query.question.strip()):
        return list(candidates)
    hours = {at for at, each in enumerate(candidates) if gives_hours(each.chunk.text)}
    if len(hours) > FEW_NAMED:
        return list(candidates)
    return [
        replace(each, probability=max(each.probability, MIN_NAMED)) if at in hours else each
        for at, each in enumerate(candidates)
    ]


def _by_spans(query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
    """A text with a span that includes the question's day, weekday, time or amount is about it, though the
    words differ: with all other words of the question it may be sure, with some it gains, and if nothing else
    is asked, such texts, if few, are at least the closest."""
    asked, measured = " ".join((query.question, *query.dates)), amounts(query.question)
    names_one = names_moment(asked) or bool(_numbers(asked, _OF_WEEK))
    names_any = names_one or measured or _weekdays(asked, _SOME_DAYS[:2])
    if len(query.question) > MAX_FORM_CHARS or not names_any:
        return _by_hours(query, candidates)
    texts = [f"{each.chunk.heading or each.chunk.title}\n{each.chunk.text}" for each in candidates]
    within = [
        lies_in_span(asked, text) or _has_weekday(asked, text) or bool(lies_in_range(measured, text))
        for text in texts
    ]
    rest = without_moments(AMOUNT.sub(" ", in_arabic(query.question)))
    words = [word for word in _words(rest) if not wording("beside_day").fullmatch(word)]
    judged = []
    for candidate, is_within, text in zip(candidates, within, texts, strict=True):
        chance, held = candidate.probability, [is_within and _holds(text, [word]) for word in words]
        if sum(held) > (0 if names_one else len(words) / 2):  # a weekend or an amount is often a circumstance
            chance = max(chance, min(SURE if all(held) else NOT_SURE, _divided(chance, -DATE_LOGIT)))
        elif is_within and not words and sum(within) <= FEW_NAMED:
            chance = max(chance, MIN_NAMED)
        judged.append(replace(candidate, probability=chance))
    return judged


def _has_weekday(question: str, text: str) -> bool:
    asked = _weekdays(question, _SOME_DAYS[:2])
    some_days = _SOME_DAYS if gives_hours(text) else _SOME_DAYS[:2]  # 每天 8:00–20:00, not 每天一次
    return bool(asked & _weekdays(text, some_days))


def _weekdays(text: str, some_days: Sequence[tuple[range, re.Pattern[str]]]) -> set[int]:
    """Return the weekdays that it names, in one word (周末) or each."""
    return _numbers(text, _OF_WEEK).union(*(days for days, some in some_days if some.search(text)))


def _by_versions(query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Notes of another version that do not mention the named one are not sure, and rank below its own; these
    are sure if nothing else is asked."""
    version = version_in(query.question)
    if not version:
        return _by_hours(query, candidates)
    texts = [f"{each.chunk.heading or each.chunk.title}\n{each.chunk.text}" for each in candidates]
    under = [version.heads.search(text) is not None for text in texts]
    asks_only = sum(under) == 1 and asks_only_of([version.name], query.question, texts[under.index(True)])
    judged = []
    for candidate, is_of, text in zip(candidates, under, texts, strict=True):
        chance = candidate.probability
        if version.alike.search(text) and not version.called.search(text):
            chance = min(NOT_SURE, _divided(chance, DATE_LOGIT * any(under)))
        elif is_of and asks_only:
            chance = max(SURE, chance)
        judged.append(replace(candidate, probability=chance))
    return judged


_CLAUSE = re.compile(r"[,，;；。]|\.\s|\b(?:if|when|as)\b|如果|要是", re.IGNORECASE)


def _of_asker(question: str) -> str:
    """Return the clauses about the asker rather than the subject: I started in September."""
    clauses = _CLAUSE.split(question.rstrip("?？ "))
    about = [each for each in clauses if wording("of_asker").match(each) and not wording("asks").search(each)]
    return "\n".join(about) if len(about) < len(clauses) else ""


def _words(question: str) -> list[str]:
    """Return its content words, without the period, interrogatives and light verbs."""
    for each in ("asks_what", "light_verbs"):
        question = wording(each).sub(" ", question)
    return [
        term.text for term in question_terms(_without_periods(question)) if term.weight >= MIN_WORD_WEIGHT
    ]


def _without_periods(text: str) -> str:
    for _, period in (*(each for family in _PERIODS for each in family), *_SOME_DAYS[:2]):
        text = period.sub(" ", text)
    return text


def _has_line(chunk: Chunk, family: int, numbers: set[int], words: Sequence[str]) -> bool:
    """Whether a line or row for only that period has all words, together with what heads it."""
    labels = [*_LABEL.finditer(chunk.text)]
    above = "\n".join((chunk.heading or chunk.title, *(each[1] for each in labels if each[1])))
    of_it = (each for each in labels if each[2] and _numbers(each[2], family) == numbers)
    lines = (chunk.text[each.start() :].lstrip("\n").partition("\n")[0] for each in of_it)
    return bool(words) and any(_holds(f"{above}\n{line}", words) for line in lines)


def _holds(text: str, words: Sequence[str]) -> bool:
    lowered, stems = folded(text).lower(), word_stems(text)
    return all(word in lowered if is_cjk(word) else word in stems for word in words)


def _fits(chunk: Chunk, family: int, numbers: set[int], asker: str) -> bool | None:
    """Decide as `_is_of`, but return None if the period only describes the asker and no heading of the text
    mentions that."""
    is_of = _is_of(chunk, family, numbers)
    words = _words(asker) if is_of is False and _numbers(asker, family) & numbers else []
    if not words:
        return is_of
    labels = "\n".join((chunk.heading or chunk.title, *map("".join, _LABEL.findall(chunk.text))))
    return is_of if any(_holds(labels, [word]) for word in words) else None


def _asked(query: Query) -> dict[int, set[int]]:
    """Return the period numbers by family. A number is a year only if it was read as one."""
    question = query.question if len(query.question) <= MAX_FORM_CHARS else ""
    named = {family: _numbers(question, family) for family in range(len(_PERIODS))}
    named[_YEAR_ITSELF] &= {int(date[:4]) for date in query.dates}
    return named


def _is_of(chunk: Chunk, family: int, numbers: set[int]) -> bool | None:
    """Whether the text is under that period; None if it is under none, or mentions this one in its body."""
    above = chunk.heading or chunk.title
    labels, whole = "\n".join(map("".join, _LABEL.findall(chunk.text))), f"{above}\n{chunk.text}"
    if _numbers(f"{above}\n{labels}", family) & numbers:
        return True
    of_some_days = family == _OF_WEEK and any(
        numbers & {*days} and some.search(whole) for days, some in _SOME_DAYS
    )
    of_some_days |= bool(family == _OF_YEAR and numbers & {*_MONTHS} and _OTHER_MONTHS.search(chunk.text))
    if of_some_days or _numbers(chunk.text, family) & numbers:
        return None
    return False if _numbers(f"{_EDITION.sub('', above)}\n{labels}", family) else None


def _numbers(text: str, family: int) -> set[int]:
    """Return the period numbers, including all within a range."""
    each = ((offset, match) for offset, period in _PERIODS[family] for match in period.finditer(text))
    numbers, end, last = set[int](), 0, 0
    for offset, match in sorted(each, key=lambda one: one[1].start()):
        number = offset + _number(next(filter(None, match.groups())).lower())
        if last and _UP_TO.fullmatch(text, end, match.start()):
            numbers.update(_between(last, number, _WEEKDAYS if family == _OF_WEEK else _MONTHS))
        numbers.add(number)
        end, last = match.end(), number
    return numbers


def _between(first: int, last: int, around: range) -> Iterable[int]:
    """Return all numbers between the two, also from November to February."""
    is_over = first > last and first in around and last in around
    return (*range(first, around.stop), *range(around.start, last)) if is_over else range(first, last)


def _number(word: str) -> int:
    return int(word) if word.isdecimal() else _WORDS.get(word) or _WORDS[word[:3]]


class _Dated:
    """A chunk as a version of a document. Days are numbers (20260131)."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.first, self.last = first_day(chunk.date), last_day(chunk.date)
        self._shared: dict[_Dated, float] = {}

    @cached_property
    def holds(self) -> tuple[int, int]:
        """The first and last day from which it may apply: those of its date, or of a later year in its
        heading, since admissions of 2022 are published in December 2021."""
        years = set(_YEAR.findall(self.chunk.heading)) if self.first else set()
        year = years.pop() if len(years) == 1 else ""
        return max((self.first, self.last), (first_day(year), last_day(year)))

    @cached_property
    def name(self) -> str:
        """The name that all its versions share: the heading path, or else the file name, without numbers."""
        stem = self.chunk.file_name.rpartition(".")[0]
        return _NOT_IN_NAMES.sub("", fold_width(self.chunk.heading or stem)).casefold()

    @cached_property
    def pairs(self) -> NDArray[np.bool_]:
        """Which pairs of neighbouring characters the text has, hashed."""
        text = _NOT_IN_NAMES.sub("", fold_width(self.chunk.text)).casefold()
        codes = np.frombuffer(text.encode("utf-32-le", "replace"), dtype=np.uint32)
        pairs = np.zeros(PAIRS, dtype=np.bool_)
        pairs[(codes[:-1] * np.uint32(31) + codes[1:]) % PAIRS] = True
        return pairs

    @cached_property
    def pair_count(self) -> int:
        return int(np.count_nonzero(self.pairs))

    def shared_words(self, other: _Dated) -> float:
        """Return the share of the shorter text that both have; 0 if they are not versions of one thing."""
        if not self.name or self.name != other.name or self.chunk.document_id == other.chunk.document_id:
            return 0.0
        if other not in self._shared:
            shared = int(np.count_nonzero(self.pairs & other.pairs))
            self._shared[other] = shared / max(1, min(self.pair_count, other.pair_count))
        return self._shared[other]

    def holds_instead_of(self, other: _Dated, day: int) -> bool:
        """Of two versions: whether this one applies that day, the other being older or not yet out."""
        since, _ = self.holds
        _, until = other.holds
        return 0 < since <= day and (0 < until < since or other.first > day)


Behind = Sequence[Sequence[int]]
"""For each candidate the indexes of those that rank before it by date."""


def _out_of_period(dates: Sequence[str], dated: Sequence[_Dated]) -> Behind:
    """Rank texts of another time below those of the question's time, unless they name its year: what is about
    a year may be written later."""
    periods = [(first_day(date), last_day(date)) for date in dates]
    years = {date[:4] for date in dates}
    of_it = [any(one.first <= until and since <= one.last for since, until in periods) for one in dated]
    fitting = [at for at, fits in enumerate(of_it) if fits]
    about = [not one.first or any(year in one.chunk.indexed_text for year in years) for one in dated]
    return [() if fits or names else fitting for fits, names in zip(of_it, about, strict=True)]


def _superseded(dated: Sequence[_Dated], day: int) -> Behind:
    """Rank other versions below the one that applies on that day."""
    return [
        [
            at
            for at, other in enumerate(dated)
            if other.holds_instead_of(one, day) and other.shared_words(one) >= SHARED_WORDS
        ]
        for one in dated
    ]


def _judged(dated: Sequence[_Dated], chances: Sequence[float], behind: Behind) -> list[float]:
    """Among versions that differ only in numbers, the best score is chance: the one of the right time gets no
    less than the others had."""
    lifted = list(chances)
    for at, before in enumerate(behind):
        for other in before:
            if chances[at] > lifted[other] and dated[other].shared_words(dated[at]) >= SAME_WORDS:
                lifted[other] = chances[at]
    return [
        _divided(chance, DATE_LOGIT) if before else chance
        for chance, before in zip(lifted, behind, strict=True)
    ]


def _divided(chance: float, logit: float) -> float:
    odds = chance / max(1.0 - chance, 1e-12) * math.exp(-logit)
    return odds / (1.0 + odds)
