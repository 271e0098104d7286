"""Whether a question asks for a number or for a time, and whether a sentence has one to give."""

from __future__ import annotations

import re
from dataclasses import dataclass

_HOW_MANY = re.compile(
    r"多少|[几幾](?![乎何])|多[大长長高久远遠重快深宽寬]|比例|百分之|[数數人总總]量|人[数數]"
    r"|\bhow (?:many|much|long|often|far|old|tall|big|large|fast)\b"
    r"|\b(?:number|percentage|price|cost|amount) of\b",
    re.IGNORECASE,
)
_WHEN = re.compile(
    r"[何几幾][时時]|[什甚][么麼][时時]候|哪(?:一)?[年天日]|哪[个個]月|[几幾][月号號点點年]|[时時][间間]|日期|年份"
    r"|\bwhen\b|\b(?:which|what) (?:year|date|day|month|time|century|decade)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"\d+(?:[.,]\d+)*"
    r"|[〇零一二两兩三四五六七八九十百千万萬亿億]{1,8}"
    r" ?[个個天年月日次元块塊人名位倍岁歲层層届屆场場米吨噸公成种種]"
    r"|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|thousand|million|once|twice)\b",
    re.IGNORECASE,
)
_MOMENT = re.compile(
    r"(?<!\d)[12]\d{3}(?!\d)|\d{1,4}\s*(?:世[纪紀]|年代|[年月日号號点點时時])|\d{1,2}[:\uff1a]\d{2}"
    r"|凌晨|[早晚]上|[上下]午|每[天日周週月年]"
    r"|[〇零一二三四五六七八九十]{1,4}(?:世[纪紀]|年代|[年月日号號点點])|(?:[唐宋元明清汉漢]|朝|代|期)[代朝初末]"
    r"|\b(?:january|february|march|april|june|july|august|september|october|november|december|centur(?:y|ies)"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day|today|midnight|noon|daily|weekly|monthly)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class AskedFor:
    """What kind of thing the question wants; what it says itself (the year it names) does not answer it."""

    question: str
    number: bool
    moment: bool

    @classmethod
    def of(cls, question: str) -> AskedFor:
        moment = bool(_WHEN.search(question))
        return cls(question, bool(_HOW_MANY.search(question)) and not moment, moment)

    def is_in(self, text: str) -> bool:
        """Whether the text has a number, or a time, that the question wants and does not say itself."""
        if not self.number and not self.moment:
            return False
        pattern = _MOMENT if self.moment else _NUMBER
        return any(match.group() not in self.question for match in pattern.finditer(text))
