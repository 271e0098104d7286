"""A question that asks several things, in its parts; one that compares, in what it compares."""

from __future__ import annotations

import re

from core.relevance.query import FEW_WORDS, own_words

MOST_PARTS = 3
LONGEST_PARTED = 300  # characters; a longer question is taken as one, and costs no time
_BETWEEN = re.compile(
    r"(?<=[?？；;])\s*(?=\S)|[，,。]\s*(?:另外|还有|以及|同时|顺便问?|再问)[，,]?"
    r"|[，,]?\s+and\s+(?=(?:what|how|when|where|who|which|why|can|could|do|does|is|are|will|would|should)\b)"
    r"|(?<=[吗呢少么样])[，,]\s*(?=\S*(?:[吗呢么]|多少|怎么|什么|几|哪))",
    re.IGNORECASE,
)
_COMPARED_ZH = re.compile(
    r"^(?P<a>[^，,？?]{2,40}?)(?:和|与|跟|同|、)(?P<b>[^，,？?]{2,40}?)"
    r"(?P<rest>(?:在.{1,20}[上面])?(?:的[^的]{1,12})?(?:之间)?(?:有|是)?(?:什么|啥|哪些|何|多大)?(?:的)?"
    r"(?:区别|不同|差别|差异|不一样|相差|差多少|差几|差|哪个|谁|相比).*)$"
)
_COMPARED_EN = re.compile(
    r"(?:difference|differences|differ|compare|comparison|distinguish\w*)\b(?:[^?]*?\bbetween)?\s+(?:the\s+)?"
    r"(?P<a>[^?,]{2,60}?)\s+(?:and|with|to|vs\.?|versus|from)\s+(?P<b>[^?]{2,60})[?.\s]*$"
    r"|^(?P<a2>[^?,]{2,60}?)\s+(?:vs\.?|versus|or)\s+(?P<b2>[^?,]{2,60})(?P<rest>[,?].*)?$",
    re.IGNORECASE,
)


def parts_of(question: str) -> list[str]:
    """At most MOST_PARTS; the question itself where it is one."""
    if len(question) > LONGEST_PARTED:
        return [question]
    compared = _compared(question)
    if compared:
        return compared
    parts = [part.strip(" ，,。") for part in _BETWEEN.split(question)]
    say_something = all(own_words(part) > FEW_WORDS for part in parts)
    return parts if 1 < len(parts) <= MOST_PARTS and say_something else [question]


def _compared(question: str) -> list[str]:
    """Each of the two with the rest of the question."""
    match = _COMPARED_ZH.search(question) or _COMPARED_EN.search(question)
    if match is None:
        return []
    named = match.groupdict()
    one, other = named.get("a") or named.get("a2"), named.get("b") or named.get("b2")
    rest = named.get("rest") or ""
    return [f"{each.strip()} {rest}".strip() for each in (one, other) if each]
