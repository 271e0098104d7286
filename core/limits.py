"""What a question is limited to: which documents match, and how the limits are worded for people and for
models."""

from __future__ import annotations

import re
from typing import Literal

from core.knowledge import Chunk, KnowledgeFilter
from core.prompt.knowledge_context import escape_fences
from core.relevance.iso_dates import first_day, last_day

Language = Literal["zh", "en"]
NO_LIMITS = KnowledgeFilter()

_SCOPE = {"zh": "检索范围：{}", "en": "Search scope: {}"}
_NOTHING_WITHIN = {
    "zh": "本次提问只检索了这个范围，其中没有相关资料。"
    "请在第一句说明：在所限定的范围内没有找到；范围之外没有检索。",
    "en": "Only this scope was searched, and nothing relevant is in it. Say in the first sentence that "
    "nothing was found within these limits, and that nothing beyond them was searched.",
}
_SCOPE_IN_PROMPT = re.compile(
    "|".join(
        re.escape(_SCOPE[language]).replace(r"\{\}", f"(?P<{language}>.+)")
        + "\n"
        + re.escape(_NOTHING_WITHIN[language])
        for language in ("zh", "en")
    )
)


def fits(limits: KnowledgeFilter, chunk: Chunk) -> bool:
    """As the store's query decides it."""
    return (
        _one_of(limits.tags, chunk.tags)
        and _one_of(limits.document_ids, (chunk.document_id,))
        and _one_of(limits.sources, (chunk.source,))
        and _within(limits, first_day(chunk.date))
    )


def days(limits: KnowledgeFilter) -> tuple[int, int | None] | None:
    """The first and the last day that fit, as numbers (20260131); None: any date fits, and none does."""
    if not limits.since and not limits.until:
        return None
    return max(1, first_day(limits.since)), last_day(limits.until) or None


def scope_of(limits: KnowledgeFilter, language: Language) -> str:
    """In one line for a person; "" when nothing is limited. Documents are counted, not named."""
    chinese = language == "zh"
    fields = [
        _listed("标签：" if chinese else "tags: ", limits.tags, chinese),
        _documents(len(limits.document_ids), chinese),
        _listed("来源：" if chinese else "sources: ", limits.sources, chinese),
        _dates(limits, chinese),
    ]
    return ("；" if chinese else "; ").join(filter(None, fields))


def scope_line(limits: KnowledgeFilter, language: Language) -> str:
    """For the knowledge context; it can close no fence."""
    scope = scope_of(limits, language)
    return escape_fences(_SCOPE[language].format(scope)) if scope else ""


def nothing_within(limits: KnowledgeFilter, language: Language) -> str:
    """For a prompt without passages; "" when nothing is limited."""
    line = scope_line(limits, language)
    return f"{line}\n{_NOTHING_WITHIN[language]}" if line else ""


def scope_in_prompt(prompt: str) -> str:
    """The scope that `nothing_within` wrote into this prompt; "" when it is absent."""
    match = _SCOPE_IN_PROMPT.search(prompt)
    return next(filter(None, match.groups()), "") if match else ""


def _one_of(allowed: tuple[str, ...], values: tuple[str, ...]) -> bool:
    return not allowed or not set(allowed).isdisjoint(values)


def _within(limits: KnowledgeFilter, day: int) -> bool:
    bounds = days(limits)
    if bounds is None:
        return True
    return bounds[0] <= day and (bounds[1] is None or day <= bounds[1])


def _listed(name: str, values: tuple[str, ...], chinese: bool) -> str:
    plain = ("、" if chinese else ", ").join(" ".join(value.split()) for value in values)
    return f"{name}{plain}" if plain else ""


def _documents(number: int, chinese: bool) -> str:
    if not number:
        return ""
    if chinese:
        return f"指定的 {number} 份文档"
    return "one chosen document" if number == 1 else f"{number} chosen documents"


def _dates(limits: KnowledgeFilter, chinese: bool) -> str:
    match limits.since, limits.until:
        case "", "":
            return ""
        case since, "":
            return f"日期：{since} 起" if chinese else f"dated {since} or later"
        case "", until:
            return f"日期：{until} 止" if chinese else f"dated {until} or earlier"
        case since, until:
            return f"日期：{since} 至 {until}" if chinese else f"dated {since} to {until}"
