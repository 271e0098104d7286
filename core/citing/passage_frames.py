"""What belongs around chosen sentences: a table row's header, a list item's lead-in; and what is too much."""

from __future__ import annotations

import re
from collections.abc import Sequence

from core.citing.passages import MAX_PASSAGE_CHARS, Span
from core.relevance.sparse import WeightedTerm

LEAD_CHARS = 75  # kept before the first match of a sentence that is cut

# A heading, a fence or a table's ruler does not answer, whatever words it has.
_ANSWERLESS = re.compile(r"#{1,6}\s|```|~~~|[|:\-\s]+$|[=\-*_\s]+$")
_ROW = re.compile(r"\|")
_ITEM = re.compile(r"[-*+•]\s|\d{1,3}[.)、]|[(（]\d{1,2}[)）]|[①-⑳]")
_LEADS_IN = re.compile(r"[:\uff1a][*_]{0,2}$")
_CLAUSE_END = re.compile(r"[,，;；、\s]")


def is_answerless(text: str, span: Span) -> bool:
    return bool(_ANSWERLESS.match(text, span.start, span.end))


def with_frame(text: str, spans: Sequence[Span], first: int, last: int) -> tuple[int, int]:
    """The sentences with the header of their table, the lead-in of their list, or what they lead in to.

    As far as all of it is short enough.
    """
    if _LEADS_IN.search(text, spans[last].start, spans[last].end):
        return first, _led_in(text, spans, first, last)
    for part in (_ROW, _ITEM):
        if part.match(text, spans[first].start):
            before = first
            while before and part.match(text, spans[before - 1].start) and _fits(spans, before - 1, last):
                before -= 1
            head = _head(text, spans, before, last, part)
            return first if head is None else head, last
    return first, last


def cut_to_length(text: str, span: Span, terms: Sequence[WeightedTerm]) -> Span:
    """What is too long is cut to the stretch that begins shortly before its first match, at a clause."""
    if span.end - span.start <= MAX_PASSAGE_CHARS:
        return span
    lowered = text[span.start : span.end].lower()
    first = min([at for term in terms if (at := lowered.find(term.text)) >= 0], default=0)
    first = min(first, span.end - span.start - 1)
    start = span.start + max(0, min(first - LEAD_CHARS, span.end - span.start - MAX_PASSAGE_CHARS))
    clauses = [clause.end() for clause in _CLAUSE_END.finditer(text, start, span.start + first)]
    if start > span.start and clauses:
        start = clauses[0]
    end = min(span.end, start + MAX_PASSAGE_CHARS)
    while text[end - 1].isspace():
        end -= 1
    return Span(start, end)


def _fits(spans: Sequence[Span], first: int, last: int) -> bool:
    return spans[last].end - spans[first].start <= MAX_PASSAGE_CHARS


def _led_in(text: str, spans: Sequence[Span], first: int, last: int) -> int:
    """The last of the items that follow a lead-in, or the one sentence that does."""
    end = last
    for at in range(last + 1, len(spans)):
        listed = _ITEM.match(text, spans[at].start) or _ROW.match(text, spans[at].start)
        if not _fits(spans, first, at) or (not listed and at > last + 1):
            break
        end = at
        if not listed:
            break
    return end


def _head(text: str, spans: Sequence[Span], before: int, last: int, part: re.Pattern[str]) -> int | None:
    """The first sentence of the table or the list that reaches up to `before`; None: it does not fit."""
    if part is _ROW:
        whole = before == 0 or not _ROW.match(text, spans[before - 1].start)
        return before if whole else None
    leads = before > 0 and _LEADS_IN.search(text, spans[before - 1].start, spans[before - 1].end)
    return before - 1 if leads and _fits(spans, before - 1, last) else None
