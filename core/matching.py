"""What of a question's words a candidate holds: in its sentences and its heading."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from core.knowledge import Candidate
from core.passages import Span, passage_of, presence, sentences
from core.query import Query
from core.sparse import WeightedTerm, question_terms

Matrix = npt.NDArray[np.float64]
MAX_QUESTION_CHARS = 400  # of a form, for matching; a longer question has said what it is about by then
MAX_TERMS = 80


@dataclass(frozen=True, slots=True)
class QuestionWords:
    """The terms of all forms, and per form the weight of each (rows: forms that have any terms)."""

    terms: list[WeightedTerm]
    weights: Matrix
    trust: Matrix

    @classmethod
    def of(cls, query: Query) -> QuestionWords:
        found = [question_terms(form.text[-MAX_QUESTION_CHARS:]) for form in query.forms]
        best: dict[str, float] = {}
        for terms in found:
            for term in terms:
                best[term.text] = max(best.get(term.text, 0.0), term.weight)
        order = list(best)[:MAX_TERMS]
        kept = [index for index, terms in enumerate(found) if terms]
        weights = np.zeros((len(kept), len(order)))
        for row, index in enumerate(kept):
            known = {term.text: term.weight for term in found[index]}
            weights[row] = [known.get(text, 0.0) for text in order]
        trust = np.array([query.forms[index].weight for index in kept])
        return cls([WeightedTerm(text, best[text]) for text in order], weights, trust)

    def covered(self, here: Matrix, emphasis: Matrix | None = None) -> Matrix:
        """Share of the question's weight that each row of `here` has, over the forms by their trust."""
        weights = self.weights if emphasis is None else self.weights * emphasis
        whole = weights.sum(axis=1)
        if not self.trust.sum() or not whole.all():
            return np.zeros(len(here))
        shares: Matrix = (here @ weights.T / whole) @ (self.trust / self.trust.sum())
        return shares


@dataclass(frozen=True, slots=True)
class WordMatch:
    """What one candidate has of the question: 1 where a sentence (row) or the heading has the term."""

    text: str
    spans: list[Span]
    sentence_terms: Matrix
    heading_terms: Matrix

    @classmethod
    def of(cls, words: QuestionWords, candidate: Candidate) -> WordMatch:
        chunk = candidate.chunk
        spans = sentences(chunk.text)
        rows = np.zeros((len(spans), len(words.terms)))
        # most candidates hold few of the terms: only those are looked for sentence by sentence
        held = [at for at, here in enumerate(presence(words.terms, chunk.text)) if here]
        if held:
            terms = [words.terms[at] for at in held]
            rows[:, held] = [presence(terms, chunk.text[span.start : span.end]) for span in spans]
        heading = np.array(presence(words.terms, chunk.heading), dtype=float)
        return cls(chunk.text, spans, rows, heading)

    def passage(self, words: QuestionWords) -> str:
        """The key passage: verbatim text of the chunk."""
        return passage_of(words.terms, self.text, self.spans, self.sentence_terms.astype(bool).tolist())
