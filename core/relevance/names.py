"""Names that an embedding barely represents: part numbers and codes, clauses, articles."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from core.relevance.query import (
    CERTAIN_FOLLOW_UP,
    MAX_FORM_CHARS,
    follow_up_weight,
    names_subject,
    wording,
)
from core.relevance.sparse import in_words

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
    known = int(number) if number.isdecimal() else _numbers_in_words().get(number, 0)
    number = f"{known}|{in_words(known)}" if known else re.escape(number)
    kind = _IN_BOTH_SCRIPTS.get(kind, kind)
    called, alike = (written.format(kind=kind, number=each) for each in (number, _ANY_NUMBER))
    of_line = re.IGNORECASE | re.MULTILINE
    heads, others = (re.compile(f"{_LINE_START}(?:{each})", of_line) for each in (called, alike))
    return NumberedPart(match.group(), number, re.compile(called, re.IGNORECASE), heads, others)


@lru_cache(maxsize=1)
def _numbers_in_words() -> dict[str, int]:
    return {in_words(number): number for number in range(1, 2_000)}


def shares(names: tuple[str, ...], texts: list[str]) -> list[float]:
    """Return the share of the identifiers that each text has as whole words, 0…1."""
    if not names:
        return [0.0] * len(texts)
    lowered = [text.lower() for text in texts]
    return [sum(_has_word(text, code) for code in names) / len(names) for text in lowered]


def _has_word(text: str, code: str) -> bool:
    """Check for the code first: compiling a pattern takes a millisecond."""
    return code in text and bool(re.search(rf"(?<![a-z0-9]){re.escape(code)}(?![a-z0-9])", text))


def _is_identifier(word: str) -> bool:
    digits = sum(map(str.isdigit, word))
    if digits < 2 or len(word) > _MAX_IDENTIFIER_CHARS or _NOT_A_CODE.fullmatch(word):
        return False
    return any(map(str.isalpha, word)) or _MANY_DIGITS.search(word) is not None


_PLACES = {"first": 0, "second": 1, "third": 2, "last": -1}
MAX_CARRIED = 3


def with_subject(question: str, before: Sequence[str], answer: str) -> list[str]:
    """Return the earlier questions so that the last one names what a follow-up is about: with the names that
    it carries over from the last answer, or else merged with those it depends on itself. Joined with "how is
    it paid?" or 什么时候 alone, "when does it start?" would be about nothing."""
    before = [*before]
    if not before:
        return before
    if names := carried(question, before[-1], answer):
        return [*before[:-1], f"{before[-1]} {names}"]
    if follow_up_weight(question) < CERTAIN_FOLLOW_UP or names_subject(before[-1]):
        return before
    at = len(before) - 1
    while at > 0 and follow_up_weight(before[at]) >= CERTAIN_FOLLOW_UP:
        at -= 1
    return [*before[:at], " ".join(before[at:])]


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
