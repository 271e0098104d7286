"""What of a question's words a text holds, and how near to each other they stand."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from core.relevance.query import Query
from core.relevance.sparse import folded, is_cjk, question_terms, word_pieces, words_of

Matrix = npt.NDArray[np.float64]
MAX_QUESTION_CHARS = 400  # of a form, for matching; enough to know what a longer question is about
MAX_ANSWER_CHARS = 800  # of the last answer; enough to know what it is about
MAX_TERMS = 160
MAX_TEXT_CHARS = 8_000  # of a candidate; far beyond any chunk
MAX_REPEATS = 8  # of one term that are looked at in one text
NEAR_CHARS = 160  # about a sentence of an alphabet
NEAR_CHARS_CJK = 60


@dataclass(frozen=True, slots=True)
class Hits:
    """Where a text has the question's terms: positions ascending, each with the number of its term."""

    positions: list[int]
    terms: list[int]

    def here(self, count: int) -> Matrix:
        """1 for each of `count` terms that the text has at all."""
        row = np.zeros(count)
        row[self.terms] = 1.0
        return row


@dataclass(slots=True)
class QuestionWords:
    """The terms of a question and of what it may lean on.

    `rows`: the weight of each term in the question as it was asked, in the one before, in all before, and
    in the last answer.
    """

    terms: list[str]
    rows: Matrix
    _cjk: list[int] = field(default_factory=list)
    _latin: dict[str, int] = field(default_factory=dict)
    _known: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, query: Query) -> QuestionWords:
        previous = query.previous
        texts = [query.forms[0].text, *previous[-1:], *([""] if not previous else []), " ".join(previous)]
        weighted = [_weights(text[-MAX_QUESTION_CHARS:]) for text in texts] + [
            _weights(query.last_answer[:MAX_ANSWER_CHARS])
        ]
        terms = list(dict.fromkeys(term for form in weighted for term in form))[:MAX_TERMS]
        words = cls(
            terms, np.array([[form.get(term, 0.0) for term in terms] for form in weighted]).reshape(4, -1)
        )
        for number, term in enumerate(terms):
            if is_cjk(term):
                words._cjk.append(number)
            else:
                words._latin[term] = number
        return words

    def hits(self, text: str) -> Hits:
        lowered = folded(text[:MAX_TEXT_CHARS])
        hits = self._words(lowered) if self._latin else []
        if self._cjk:
            lowered = lowered.lower()
            for number in self._cjk:
                hits += [(at, number) for at in _places(lowered, self.terms[number])]
        hits.sort()
        return Hits([at for at, _ in hits], [number for _, number in hits])

    def _words(self, text: str) -> list[tuple[int, int]]:
        places: list[tuple[int, int]] = []
        for at, word in words_of(text):
            numbers = self._known.get(word)
            if numbers is None:
                known = (self._latin.get(piece) for piece in word_pieces(word))
                numbers = self._known[word] = tuple(number for number in known if number is not None)
            if numbers:  # few words are of the question
                places.extend((at, number) for number in numbers)
        return places


def _places(text: str, term: str) -> list[int]:
    places: list[int] = []
    at = text.find(term)
    while at >= 0 and len(places) < MAX_REPEATS:
        places.append(at)
        at = text.find(term, at + 1)
    return places


def _weights(text: str) -> dict[str, float]:
    return {term.text: term.weight for term in question_terms(text)}


def covered_nearby(weight: Matrix, hits: Hits, width: int) -> float:
    """The largest weight of different terms within `width` characters."""
    shares = weight.tolist()
    counts = [0] * len(shares)
    best = held = 0.0
    first = 0
    for at, number in zip(hits.positions, hits.terms, strict=True):
        if not counts[number]:
            held += shares[number]
        counts[number] += 1
        while hits.positions[first] < at - width:
            passed = hits.terms[first]
            counts[passed] -= 1
            if not counts[passed]:
                held -= shares[passed]
            first += 1
        best = max(best, held)
    return best
