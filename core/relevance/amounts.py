"""Amounts with units that a question names (6 个人, 二十公斤), and ranges in a text that include them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from core.dates import number_in
from core.text import fold_width

MAX_QUESTION_CHARS = 600  # its end
MAX_TEXT_CHARS = 8_000  # far longer than any chunk

# What an amount measures, by its unit, and how much of it: 2 吨 are 2,000 公斤, 30 斤 15.
_UNITS = (
    (r"个?人|[名位](?!置)|people|persons?|guests?", "people", 1.0),
    (r"平(?:方米|方|米)?(?![均时日板等])|㎡|m²|sqm", "area", 1.0),
    (r"年(?![级底初月])|years?", "years", 1.0), (r"个月|months?", "months", 1.0), (r"天|days?", "days", 1.0),
    (r"岁|周岁", "age", 1.0), (r"小时|hours?", "minutes", 60.0), (r"分钟|min(?:ute)?s?", "minutes", 1.0),
    (r"公斤|千克|kg", "weight", 1.0), (r"斤", "weight", 0.5), (r"吨(?!位)|tonnes?", "weight", 1_000.0),
    (r"公里|千米|km", "length", 1_000.0), (r"毫米|mm", "length", 0.001), (r"厘米|公分|cm", "length", 0.01),
    (r"米|met(?:er|re)s?", "length", 1.0), (r"万元", "money", 10_000.0), (r"元|块钱?", "money", 1.0),
)  # fmt: skip
UNIT = rf"(?:{'|'.join(unit for unit, _, _ in _UNITS)})(?![a-z])"
_OF_UNIT = [(re.compile(unit, re.IGNORECASE), (kind, size)) for unit, kind, size in _UNITS]
AMOUNT = re.compile(
    rf"(?<![\d.:/第-])(?!(?:19|20)\d\d\s?年)(\d{{1,6}}(?:\.\d\d?)?)\s?({UNIT})", re.IGNORECASE
)
_NUMERAL = "[零一二两兩三四五六七八九十百千万半]"
# 一天多少钱 asks for a rate; 几十人 and 二三十人 are no numbers.
_RATE = rf"(?!一\s?(?:{UNIT})(?:能|要|可以|最多|给|有)?(?:多少|[几幾]|怎|收|一次))"
_IN_WORDS = re.compile(
    rf"(?<!{_NUMERAL})(?<![第几]){_RATE}({_NUMERAL}{{1,7}})"
    rf"(?=\s?(?:[-–—~～至到]\s?(?:{_NUMERAL}{{1,7}}|\d+)\s?)?{UNIT}|[及或]?以[上下内])"
)
_METRES = re.compile(r"(?<!\d)(\d)\s?米\s?([1-9一二三四五六七八九])(?![\d十百])")  # 1 米 2, 一米二


def in_arabic(text: str) -> str:
    """Replace the Chinese numerals of amounts, and of ranges of them, with digits: 十二岁 → 12岁."""
    text = _IN_WORDS.sub(lambda match: _digits(match[1]), text)
    return _METRES.sub(lambda match: f"{match[1]}.{_digits(match[2])}米", text)


def _digits(words: str) -> str:
    number = number_in(words)
    return words if number is None else f"{number:.12g}"


def unit_of(name: str) -> tuple[str, float]:
    """Return what this unit, or the name of a column with one, measures, and its size; "" if nothing."""
    return next((each for unit, each in _OF_UNIT if unit.search(name)), ("", 1.0))


# 5–8 人, 满 10 年不满 20 年, 15 天以上, over 5 kg. Searched from its number on, then what stands before it: a
# cell's unit may stand in its column's name.
_RANGE = re.compile(
    rf"(?P<one>\d{{1,6}}(?:\.\d\d?)?)\s?(?P<unit>{UNIT})?"
    rf"(?:\s?(?:[-–—~～至到]|[，,]?(?:但?不[满足]|至)|to)\s?(?P<two>\d{{1,6}}(?:\.\d\d?)?)\s?(?P<of_two>{UNIT})?"
    r"|\s?(?P<above>[及或]?以上|or more)|\s?(?P<below>[及或]?以[下内]|or less))?",
    re.IGNORECASE,
)
_BOUND = re.compile(
    r"(?:(?P<over>满|超过|大于|高于|over|more than|at least)"
    r"|(?P<under>不[满足]|不超过|低于|少于|小于|under|less than|up to))\s?\Z",
    re.IGNORECASE,
)
_BEFORE = re.compile(r"(?:(?P<label>[^\n:：;；]{1,16})[:：]\s?|(?<![\d.:/第-]))\Z")
_MAX_BOUND, _MAX_LABEL = 12, 20  # characters


@lru_cache(maxsize=32)  # asked of every unit that may be quoted
def amounts(question: str) -> Mapping[str, float]:
    """Return the amounts that the question names, by what they measure; of a follow-up's, the last ones."""
    matches = AMOUNT.finditer(in_arabic(fold_width(question[-MAX_QUESTION_CHARS:])))
    return {kind: float(match[1]) * size for match in matches for kind, size in (unit_of(match[2]),)}


def lies_in_range(asked: Mapping[str, float], text: str) -> bool | None:
    """Whether a range in the text includes one of these amounts; None without a range of its unit."""
    ranges = [each for each in _ranges(text[:MAX_TEXT_CHARS]) if each[0] in asked] if asked else []
    return any(low <= asked[kind] <= high for kind, low, high in ranges) if ranges else None


def _ranges(text: str) -> Iterator[tuple[str, float, float]]:
    """Yield what each range measures, its least and its greatest."""
    text = in_arabic(fold_width(text))
    for match in _RANGE.finditer(text):
        begin = match.start()
        bound = _BOUND.search(text, max(0, begin - _MAX_BOUND), begin)
        if bound or match["two"] or match["above"] or match["below"]:
            begin = bound.start() if bound else begin
            if before := _BEFORE.search(text, max(0, begin - _MAX_LABEL), begin):
                yield _range(match, bound, before["label"] or "")


def _range(match: re.Match[str], bound: re.Match[str] | None, label: str) -> tuple[str, float, float]:
    of_one, of_two = match["unit"], match["of_two"] or match["unit"] or label
    (kind, size), (_, size_of_one) = unit_of(of_two), unit_of(of_one or of_two)
    one, two = float(match["one"]) * size_of_one, float(match["two"] or "inf") * size
    if match["two"] or match["above"] or (bound and bound["over"]):
        return kind, one, two
    return kind, 0.0, one
