"""Summaries of the older part of a branch: where one applies, what it is made from, how long it may be."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from core.citing.passages import sentences
from core.conversation.turns import Summary
from core.prompt.fence import ANY_CODE, Kind, between, fenced, neutral
from core.relevance.sparse import WeightedTerm, presence, question_terms

Count = Callable[[str], int]
"""Counts the tokens of a text."""

CHARS_PER_TOKEN = 10  # no estimate assumes more


@dataclass(frozen=True, slots=True)
class SummarySource:
    """A turn in the form to summarise."""

    turn_id: str
    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class AppliedSummary:
    """The summary that applies to a branch, stored with `turn_id`: of the turns `covered`, from `start` on.
    `created_us` is UTC microseconds."""

    text: str
    covered: frozenset[str]
    turn_id: str
    start: str
    created_us: int


def nearest_applicable(branch: Sequence[str], stored: Mapping[str, Summary]) -> AppliedSummary | None:
    """Return the last of the `stored` summaries on the branch that was made from this branch only.

    `branch` are turn ids from the root to the leaf. A summary applies if every turn that it or one of its
    predecessors covers is on the branch, in order: it never mentions an erased, expired or unrelated turn.
    """
    place = {turn_id: at for at, turn_id in enumerate(branch)}
    holding: dict[str, Summary] = {}
    for turn_id in sorted(place.keys() & stored.keys(), key=place.__getitem__):
        if _holds(turn_id, stored[turn_id], place, holding):
            holding[turn_id] = stored[turn_id]
    if not holding:
        return None
    turn_id, nearest = next(reversed(holding.items()))
    covered = frozenset(_covered(turn_id, holding))
    return AppliedSummary(nearest.text, covered, turn_id, nearest.start, nearest.created_us)


def _holds(turn_id: str, summary: Summary, place: Mapping[str, int], holding: Mapping[str, Summary]) -> bool:
    places = [place.get(each, -1) for each in summary.covers]
    if not places or places[0] < 0 or any(earlier >= later for earlier, later in pairwise(places)):
        return False
    if summary.covers[-1] != turn_id:
        return False
    if summary.previous is None:
        return summary.start == summary.covers[0]
    before = holding.get(summary.previous)
    if before is None or place[summary.previous] >= places[0]:
        return False
    # A later one is not this one's predecessor, though it has replaced it.
    return before.start == summary.start and before.created_us <= summary.created_us


def _covered(turn_id: str | None, stored: Mapping[str, Summary]) -> Iterator[str]:
    while turn_id is not None:
        yield from stored[turn_id].covers
        turn_id = stored[turn_id].previous


def summaries_about(turn_ids: Collection[str], stored: Mapping[str, Summary | None]) -> set[str]:
    """Return the turns whose summary was made from one of `turn_ids`, directly or through its predecessors.

    A summary that is unreadable, or continues a missing one, may mention anything: it counts, too.
    """
    erased = frozenset(turn_ids)
    after: dict[str, list[str]] = defaultdict(list)
    waiting: list[str] = []
    for holder, summary in stored.items():
        if summary is not None and summary.previous is not None:
            after[summary.previous].append(holder)
        if summary is None or holder in erased or _made_of(summary, erased, stored):
            waiting.append(holder)
    holders: set[str] = set()
    while waiting:
        holder = waiting.pop()
        if holder not in holders:
            holders.add(holder)
            waiting += after[holder]
    return holders


def _made_of(summary: Summary, erased: frozenset[str], stored: Mapping[str, Summary | None]) -> bool:
    lost = summary.previous is not None and summary.previous not in stored
    return lost or summary.start in erased or not erased.isdisjoint(summary.covers)


def in_steps(turns: Sequence[SummarySource], limit: int, count: Count) -> Iterator[tuple[SummarySource, ...]]:
    """Group the turns in order, each group at most `limit` tokens with its fences; shorten long turns."""

    def as_sent(text: str) -> int:
        return count(neutral(text))

    group: list[SummarySource] = []
    fences = count(_turn_text(SummarySource("", "", ""), ANY_CODE))
    size = 0
    for turn in turns:
        tokens = as_sent(turn.question) + as_sent(turn.answer) + fences
        if group and size + tokens > limit:
            yield tuple(group)
            group, size = [], 0
        group.append(turn if tokens <= limit else _shortened(turn, limit - fences, as_sent))
        size += min(tokens, limit)
    if group:
        yield tuple(group)


def _shortened(turn: SummarySource, limit: int, count: Count) -> SummarySource:
    question = _without_middle(turn.question, limit // 3, count)
    return replace(
        turn, question=question, answer=_without_middle(turn.answer, limit - count(question), count)
    )


def _without_middle(text: str, limit: int, count: Count) -> str:
    """Keep beginning and end, where a long text says what it is about and what came of it."""
    cut, size = text, len(text)
    while count(cut) > limit and size > 2:
        size = size * 4 // 5
        cut = f"{text[: size * 2 // 3]} … {text[len(text) - size // 3 :]}"
    return cut


def task_text(previous: str, turns: Sequence[SummarySource], length: str, code: str) -> str:
    """Return the input of the summarising model besides its instruction: data in fences of this request."""
    parts = [f"<length>{length}</length>"]
    if previous:
        parts.append(fenced(Kind.SUMMARY, code, previous))
    return "\n\n".join([*parts, *(_turn_text(turn, code) for turn in turns)])


def _turn_text(turn: SummarySource, code: str) -> str:
    question, answer = neutral(turn.question), neutral(turn.answer)
    text = f"<question>\n{question}\n</question>\n<answer>\n{answer}\n</answer>"
    return between(Kind.HISTORY, code, text)


def cut_at_sentence(text: str, limit: int, count: Count) -> str:
    """Return as many whole sentences as fit `limit` tokens; of a longer first sentence, its beginning."""
    if count(text) <= limit:
        return text
    text = text[: limit * CHARS_PER_TOKEN]
    ends = [span.end for span in sentences(text)]
    whole = _last_fitting(ends, lambda end: count(text[:end]) <= limit)
    if whole is not None:
        return text[:whole]
    part = _last_fitting(range(1, len(text) + 1), lambda end: count(text[:end]) <= limit)
    return text[: part or 0].rstrip()


def _last_fitting(ends: Sequence[int], fits: Callable[[int], bool]) -> int | None:
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if fits(ends[middle]) else (low, middle)
    return ends[low - 1] if low else None


# A summary without a model: each turn's question, and the most informative sentence of its answer.


QUESTION_CHARS = 120  # of a question
ANSWER_CHARS = 240
SEARCHED_CHARS = 20_000  # of an answer, searched for its most informative sentence

_MARKS = re.compile(r"^(?:[>#*+\-•|\s]|\d{1,3}[.)、]\s)+|\s*\[\d{1,3}\]")
_NOT_A_STATEMENT = re.compile(r"#{1,6}\s|```|~~~|[|:\-=*_\s]+$")


def extract(previous: str, turns: Sequence[SummarySource], limit: int, count: Count) -> str:
    """Summarise without a model: a line per turn, the older ones thinned out to fit `limit` tokens."""
    lines = [line for line in previous.split("\n") if line] + [key_line(turn) for turn in turns]
    return cut_at_sentence("\n".join(_thinned(lines, limit, count)), limit, count)


def key_line(turn: SummarySource) -> str:
    """Join the first sentence of the question and the most informative one of the answer."""
    asked = _one_line(_first_sentence(turn.question), QUESTION_CHARS)
    answered = _one_line(_most_informative(turn), ANSWER_CHARS)
    return f"- {asked} → {answered}"


def _thinned(lines: Sequence[str], limit: int, count: Count) -> list[str]:
    """Drop every second line, but none of the last quarter, until the rest fits; the first one stays."""
    remaining = list(lines)
    sizes = [count(line) + 1 for line in lines]
    total, at = sum(sizes), 1
    while total > limit and len(remaining) > 2:
        at = at if at < len(remaining) * 3 // 4 else 1
        total -= sizes.pop(at)
        del remaining[at]
        at += 1
    return remaining if total <= limit else remaining[-1:]


def _first_sentence(text: str) -> str:
    spans = sentences(text[:SEARCHED_CHARS])
    return text[spans[0].start : spans[0].end] if spans else ""


def _most_informative(turn: SummarySource) -> str:
    text = turn.answer[:SEARCHED_CHARS]
    terms = question_terms(turn.question)
    best, most = "", -1.0
    for span in sentences(text):
        sentence = text[span.start : span.end]
        value = _informativeness(sentence, terms)
        if value > most:
            best, most = sentence, value
    return best


def _informativeness(sentence: str, terms: Sequence[WeightedTerm]) -> float:
    """Score how much of the question the sentence has, plus whether it has a figure; lead-ins score 0."""
    if _NOT_A_STATEMENT.match(sentence) or sentence.endswith((":", "：")):
        return 0.0
    here = presence(terms, sentence)
    weight = sum(term.weight for term, present in zip(terms, here, strict=True) if present)
    return 0.1 + weight + 0.5 * any(char.isdigit() for char in sentence)


def _one_line(text: str, limit: int) -> str:
    line = " ".join(_MARKS.sub("", text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
