"""A summary without a model: of each turn what was asked, and the most telling sentence of the answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from core.passages import presence, sentences
from core.sparse import WeightedTerm, question_terms
from core.summaries import Count, Told, cut_at_sentence

QUESTION_CHARS = 120  # of a question
ANSWER_CHARS = 240
SEARCHED_CHARS = 20_000  # of an answer, for its most telling sentence

_MARKS = re.compile(r"^(?:[>#*+\-•|\s]|\d{1,3}[.)、]\s)+|\s*\[\d{1,3}\]")
_NO_STATEMENT = re.compile(r"#{1,6}\s|```|~~~|[|:\-=*_\s]+$")


def extract(previous: str, turns: Sequence[Told], limit: int, count: Count) -> str:
    """A summary without a model: a line a turn, the older ones thinned out until `limit` tokens hold them."""
    lines = [line for line in previous.split("\n") if line] + [key_line(turn) for turn in turns]
    return cut_at_sentence("\n".join(_thinned(lines, limit, count)), limit, count)


def key_line(turn: Told) -> str:
    """The first sentence of the question and the most telling one of the answer."""
    asked = _one_line(_first_sentence(turn.question), QUESTION_CHARS)
    said = _one_line(_telling_sentence(turn), ANSWER_CHARS)
    return f"- {asked} → {said}"


def _thinned(lines: Sequence[str], limit: int, count: Count) -> list[str]:
    """Every second line goes, but none of the last quarter, until the rest fits; the first one stays."""
    kept = list(lines)
    sizes = [count(line) + 1 for line in lines]
    total, at = sum(sizes), 1
    while total > limit and len(kept) > 2:
        at = at if at < len(kept) * 3 // 4 else 1
        total -= sizes.pop(at)
        del kept[at]
        at += 1
    return kept if total <= limit else kept[-1:]


def _first_sentence(text: str) -> str:
    spans = sentences(text[:SEARCHED_CHARS])
    return text[spans[0].start : spans[0].end] if spans else ""


def _telling_sentence(turn: Told) -> str:
    text = turn.answer[:SEARCHED_CHARS]
    terms = question_terms(turn.question)
    best, most = "", -1.0
    for span in sentences(text):
        sentence = text[span.start : span.end]
        value = _telling(sentence, terms)
        if value > most:
            best, most = sentence, value
    return best


def _telling(sentence: str, terms: Sequence[WeightedTerm]) -> float:
    """How much of the question it takes up, and whether it has a figure; an announcement says nothing yet."""
    if _NO_STATEMENT.match(sentence) or sentence.endswith((":", ":")):
        return 0.0
    here = presence(terms, sentence)
    found = sum(term.weight for term, present in zip(terms, here, strict=True) if present)
    return 0.1 + found + 0.5 * any(char.isdigit() for char in sentence)


def _one_line(text: str, limit: int) -> str:
    line = " ".join(_MARKS.sub("", text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
