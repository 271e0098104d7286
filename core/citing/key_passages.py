"""Which consecutive sentences of each cited text answer best, judged over all of an answer's texts together.

The work is in small steps, a fraction of a millisecond each for a text of a chunk's length, so that who runs
an event loop can let others go between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from core.citing.asked_for import AskedFor
from core.citing.passage_frames import cut_to_length, is_answerless, with_frame
from core.citing.passages import LONGEST_SEARCHED, MAX_PASSAGE_CHARS, Span, presence, sentences
from core.knowledge import Candidate
from core.relevance.query import Query
from core.relevance.sparse import WeightedTerm, question_terms

MAX_WORDING_CHARS = 400  # enough to know what a longer one is about
MAX_TERMS = 80
MAX_SENTENCES = 6  # in one passage
# Shares of what a text holds of the question; tried on questions whose answers are known word for word.
COST_OF_SENTENCE = 0.05
COST_OF_LENGTH = 0.05  # for a passage as long as may be
OPENING = 0.1  # what a text begins with says what it is about
ASKED_FOR = 0.35  # a number where one is asked for, or a time
BESIDE = 0.3  # of what only a neighbouring sentence has
CLAIMED = 1.5  # what the answer says from this source, against what the question asks


@dataclass(frozen=True, slots=True)
class _Text:
    """A text's sentences; `held` says which of the question's terms each has: bit 0 is the first term."""

    text: str
    spans: tuple[Span, ...]
    held: tuple[int, ...]


class _Worth:
    """What sentences are worth for a list of terms: the share of all that the text has of them."""

    def __init__(self, weights: Sequence[float], held: Sequence[int], factor: float = 1.0) -> None:
        self._weights = weights
        self._held = held
        self._known: dict[int, float] = {}
        whole = self._sum(reduce(or_, held, 0))
        self._factor = factor / whole if whole else 0.0

    def of(self, first: int, last: int) -> float:
        """Of the sentences from `first` to `last`; what only a neighbour has counts for less."""
        inside = reduce(or_, self._held[first : last + 1])
        around = reduce(or_, self._held[max(0, first - 1) : last + 2]) & ~inside
        return self._factor * (self._sum(inside) + BESIDE * self._sum(around))

    def _sum(self, held: int) -> float:
        if held not in self._known:
            self._known[held] = sum(weight for at, weight in enumerate(self._weights) if held >> at & 1)
        return self._known[held]


class KeyPassages:
    """`read` every text in order; then `span` gives where the key passage of each stands."""

    def __init__(self, query: Query) -> None:
        self._terms = _terms_of(query)
        self._asked_for = AskedFor.of(query.question[-MAX_WORDING_CHARS:])
        self._texts: list[_Text] = []
        self._weights: list[float] = []

    def read(self, text: str) -> None:
        text = text[:LONGEST_SEARCHED]
        spans = tuple(sentences(text))
        self._texts.append(_Text(text, spans, _held(self._terms, text, spans)))
        self._weights = []

    def span(self, number: int, claim: str = "") -> Span | None:
        """In the text with this number, from 0. `claim` is what the answer says from it, where that is known.

        Consecutive sentences, at most about 300 characters; a stretch of one that is longer. None for a
        blank text.
        """
        text = self._texts[number]
        if not text.spans:
            return None
        worths = [_Worth(self._rarity(), text.held)]
        claimed = question_terms(claim[-MAX_WORDING_CHARS:])[:MAX_TERMS]
        if claimed:
            held = _held(claimed, text.text, text.spans)
            worths.append(_Worth([term.weight for term in claimed], held, CLAIMED))
        first, last = self._best(text, worths)
        first, last = with_frame(text.text, text.spans, first, last)
        span = Span(text.spans[first].start, text.spans[last].end)
        return cut_to_length(text.text, span, [*self._terms, *claimed])

    def _rarity(self) -> list[float]:
        """The weight of each term: its share of the question, and the more, the fewer texts have it."""
        if not self._weights:
            having = [reduce(or_, text.held, 0) for text in self._texts]
            counts = [sum(held >> at & 1 for held in having) for at in range(len(self._terms))]
            rare = [math.log1p((len(having) + 1) / (count + 0.5)) for count in counts]
            self._weights = [term.weight * each for term, each in zip(self._terms, rare, strict=True)]
        return self._weights

    def _best(self, text: _Text, worths: Sequence[_Worth]) -> tuple[int, int]:
        """The first and the last sentence; of equals the earliest."""
        spans = text.spans
        fits = [not is_answerless(text.text, span) for span in spans]
        asked_for = [self._asked_for.is_in(text.text[span.start : span.end]) for span in spans]
        best, best_value = (0, 0), -math.inf
        for first, last in _windows(spans, fits, _start(text, fits)):
            value = sum(worth.of(first, last) for worth in worths)
            value += ASKED_FOR * any(asked_for[first : last + 1]) + OPENING / (1 + first)
            value -= COST_OF_SENTENCE * (last - first)
            value -= COST_OF_LENGTH * (spans[last].end - spans[first].start) / MAX_PASSAGE_CHARS
            if value > best_value + 1e-9:
                best, best_value = (first, last), value
        return best


def key_spans(query: Query, texts: Sequence[str]) -> list[Span | None]:
    """The key passage of each text, at once: for those who hold nobody up."""
    passages = KeyPassages(query)
    for text in texts:
        passages.read(text)
    return [passages.span(number) for number in range(len(texts))]


def with_key_passages(query: Query, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The candidates with the passages that none had named for them."""
    spans = key_spans(query, [candidate.chunk.text for candidate in candidates])
    return tuple(
        replace(candidate, key_passage=candidate.chunk.text[span.start : span.end])
        if span and not candidate.key_passage
        else candidate
        for candidate, span in zip(candidates, spans, strict=True)
    )


def _terms_of(query: Query) -> list[WeightedTerm]:
    """Of all wordings; what one says that is trusted less counts for less."""
    best: dict[str, float] = {}
    for form in query.forms:
        for term in question_terms(form.text[-MAX_WORDING_CHARS:]):
            best[term.text] = max(best.get(term.text, 0.0), term.weight * form.weight)
    return [WeightedTerm(text, weight) for text, weight in best.items()][:MAX_TERMS]


def _held(terms: Sequence[WeightedTerm], text: str, spans: Sequence[Span]) -> tuple[int, ...]:
    # most texts hold few of the terms: only those are looked for sentence by sentence
    numbers = [at for at, here in enumerate(presence(terms, text)) if here]
    if not numbers:
        return (0,) * len(spans)
    present = [terms[at] for at in numbers]
    rows = (presence(present, text[span.start : span.end]) for span in spans)
    return tuple(sum(here << at for at, here in zip(numbers, row, strict=True)) for row in rows)


def _start(text: _Text, fits: Sequence[bool]) -> int:
    """Where to begin: only under the heading that has the words, when nothing else has any of them."""
    if any(held and fit for held, fit in zip(text.held, fits, strict=True)):
        return 0
    headings = (at for at, held in enumerate(text.held) if held and any(fits[at:]))
    return next(headings, 0)


def _windows(spans: Sequence[Span], fits: Sequence[bool], start: int) -> Iterator[tuple[int, int]]:
    """Runs of sentences that fit, all of them when none does; one that is too long by itself alone."""
    if not any(fits):
        fits = [True] * len(spans)
    for first in range(start, len(spans)):
        for last in range(first, min(len(spans), first + MAX_SENTENCES)):
            if not fits[last] or (last > first and spans[last].end - spans[first].start > MAX_PASSAGE_CHARS):
                break
            yield first, last
