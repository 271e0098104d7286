"""What is named that an embedding barely sees: part numbers and codes, clauses, articles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from core.relevance.query import MAX_FORM_CHARS, follow_up_weight, wording
from core.relevance.sparse import in_words

MOST_CODES = 16

_WORD = re.compile(r"[A-Za-z0-9]+(?:[-_./:][A-Za-z0-9]+)*")
_MANY_DIGITS = re.compile(r"\d{4}")
_YEAR = r"(?:1\d|20)\d\d"
_NO_CODE = re.compile(
    rf"{_YEAR}(?:[-/.]\d{{1,2}}){{0,2}}|\d{{1,2}}[-/.]\d{{1,2}}[-/.]{_YEAR}|{_YEAR}[-/]{_YEAR}"
    r"|(?:[a-z]{4,}-)?\d+(?:st|nd|rd|th|s)"
)
_CALLED_CODE = re.compile(
    r"(?:\b(?:http|error|code|status|alarm)\b|错误|錯誤|错|故障|代码|代碼|报警|報警|状态|警报)[码碼号號]?"
    r"[ :：#]{0,2}(\d{3})(?!\d|\.\d|\s?[行个個次条條元天])",
    re.IGNORECASE,
)
_SHORT_CODE = re.compile(r"(?=.{2,8}$)[a-z]+-?\d[a-z\d]*")
_LONGEST = 64


def identifiers(text: str) -> tuple[str, ...]:
    """Those of a text, in lower case, each once, in its order: words with four digits in a row that are no
    year or date, words of letters with at least two digits that are no ordinal, and what is called an error
    or a code and has three digits."""
    names: dict[str, None] = {}
    called = frozenset(_CALLED_CODE.findall(text))
    for word in _words(text):
        if word not in called and not _is_identifier(word):
            continue
        names[word] = None
        if len(names) == MOST_CODES:
            break
    return tuple(names)


def codes_of_kind(code: str) -> re.Pattern[str]:
    """Those that are alike up to their first digit, or of numbers those that are as long: E2 and E-05 for
    E02, TH-215-E for TH-212-W."""
    letters = re.split(r"\d", code)[0].rstrip("-_./: ")
    kind = rf"{re.escape(letters)}[-_ ]?\d" if letters else rf"\d{{{len(code)}}}(?!\d)"
    return re.compile(rf"(?<![a-z0-9]){kind}", re.IGNORECASE)


def short_codes(text: str) -> frozenset[str]:
    """The words of letters with digits behind them, in lower case: E2, but A4 and B2 as well. Where rows of a
    table begin with them, they are codes. At most the first sixteen: each is looked for in all passages."""
    codes = dict.fromkeys(filter(_SHORT_CODE.fullmatch, _words(text)))
    return frozenset(islice(codes, MOST_CODES))


def _words(text: str) -> Iterator[str]:
    return (match.group().lower() for match in _WORD.finditer(text))


def clauses(question: str) -> tuple[str, ...]:
    """The numbers with dots of the clauses, sections and the like that it names, each once, in its order."""
    return tuple(dict.fromkeys(wording("clause").findall(question)))[:MOST_CODES]


@dataclass(frozen=True, slots=True)
class NumberedPart:
    """An article, chapter, figure or the like that is named by its number; `alike` are all of its kind."""

    name: str
    number: str
    called: re.Pattern[str]
    heads: re.Pattern[str]
    alike: re.Pattern[str]

    def share(self, text: str) -> float:
        """1 for a text in which it begins or that is below its heading, MENTIONED for one that names it."""
        if self.heads.search(text):
            return 1.0
        return MENTIONED if self.called.search(text) else 0.0

    def is_item_of(self, answer: str) -> bool:
        """Whether it is a point of a list there: 第二条, where a list was quoted and no article."""
        if self.name[-1] not in "条條":
            return False
        quoted = answer.replace("> ", "")
        item = re.search(rf"^ *(?:{self.number})[.、．)]", quoted, re.MULTILINE)
        return item is not None and not self.alike.search(quoted)


MENTIONED = 0.5
_IN_BOTH_SCRIPTS = {"条": "[条條]", "节": "[节節]", "课": "[课課]", "讲": "[讲講]", "编": "[编編]"}
_TO_ONE_SCRIPT = str.maketrans("條節課講編〇两兩", "条节课讲编零二二")
_BEGINS = r"(?:^|> )[ \t\u3000#*>_【|-]*+"  # a line, or a heading of a path


@lru_cache(maxsize=32)  # asked for by the judging, the quoting and the citing of a turn
def numbered_parts(question: str, answer: str = "") -> tuple[NumberedPart, ...]:
    """Those that a question names, each once: 第37条, Chapter 3, 附件二. 第37条 is found as 第三十七条, and
    section 5 as the heading "5. Safety". None that is a point of the last `answer`."""
    if len(question) > MAX_FORM_CHARS:
        return ()
    each = ((name, match) for name in _AS_WRITTEN for match in wording(name).finditer(question))
    once = {match.group(): (_AS_WRITTEN[name], match) for name, match in each}
    parts = [_numbered_part(*one) for one in list(once.values())[:MOST_CODES]]
    return tuple(part for part in parts if not part.is_item_of(answer))


# By wording, how such a part is called in texts.
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
    heads, others = (re.compile(f"{_BEGINS}(?:{each})", of_line) for each in (called, alike))
    return NumberedPart(match.group(), number, re.compile(called, re.IGNORECASE), heads, others)


@lru_cache(maxsize=1)
def _numbers_in_words() -> dict[str, int]:
    return {in_words(number): number for number in range(1, 2_000)}


def shares(names: tuple[str, ...], texts: list[str]) -> list[float]:
    """Which share of the identifiers each text has, 0…1, as whole words."""
    if not names:
        return [0.0] * len(texts)
    lowered = [text.lower() for text in texts]
    return [sum(_has_word(text, code) for code in names) / len(names) for text in lowered]


def _has_word(text: str, code: str) -> bool:
    """A pattern is made, which takes a millisecond, only where the text has the code at all."""
    return code in text and bool(re.search(rf"(?<![a-z0-9]){re.escape(code)}(?![a-z0-9])", text))


def _is_identifier(word: str) -> bool:
    digits = sum(map(str.isdigit, word))
    if digits < 2 or len(word) > _LONGEST or _NO_CODE.fullmatch(word):
        return False
    return any(map(str.isalpha, word)) or _MANY_DIGITS.search(word) is not None


_PLACES = {"first": 0, "second": 1, "third": 2, "last": -1}
MOST_CARRIED = 3


def carried(question: str, last: str, answer: str) -> str:
    """The names (part numbers, rooms, codes) of the last answer that a question which leans on it is about.

    The one it points at (the second one, 最后那个), or, where the last question asked which it is, those that
    it did not name itself, or whether there is one, the only one; "" for most questions.
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
    most = MOST_CARRIED if wording("which").search(last) else int(wording("whether").search(last) is not None)
    return " ".join(new) if wording("it").search(question) and len(new) <= most else ""
