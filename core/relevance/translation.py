"""A question's words in the other language, by a dictionary: by these a passage in it can be compared, where
the question's own words say nothing. And a passage's own translation, beside which it is to stand first.

Source: CC-CEDICT (MDBG; CC BY-SA 4.0), made by scripts.training.translations; docs/decisions/0064.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import numpy.typing as npt

from core.knowledge import Candidate
from core.relevance.sparse import is_cjk, question_terms
from core.relevance.tokens import QuestionTokens, likeness

Matrix = npt.NDArray[np.float64]

SOURCE = Path(str(files("core.relevance") / "coefficients" / "translations.sqlite3"))
MOST_WORDS = 3  # of one meaning
MOST_MEANINGS = 40  # of one word; one with more (do, much, work) says little in either language
TWIN_LIKENESS = 0.28  # of nine in ten translations; a tenth of texts on one subject are more alike than .4
TWIN_ODDS = 5.0  # by which one's odds may lie below its translation's
TWIN_SPARSE_RANK = 3
TWIN_LEAD = 0.02  # of cosine; among E5's texts on one subject the second is .01 behind, a twin's rival .03
# Logits, for texts in another language: of the share of the question's words that the best of them has and
# one has not; of the best one's share beyond the usual, for all of them.
TRANSLATED = 3.0
BEST_TRANSLATED, USUAL_TRANSLATED = 2.0, 0.2
LEAST_WEIGHT = 0.6  # of a Chinese term that is a word, and no pair of characters within one or between two


@dataclass(frozen=True, slots=True)
class Translated:
    """A word of the question, or some that are one in the other language. `meanings`: what may stand for it,
    each the index terms that must be there, together."""

    weight: float
    meanings: tuple[tuple[str, ...], ...]


@lru_cache(maxsize=64)
def translated(question: str) -> tuple[Translated, ...]:
    """What the dictionary does not have stands for itself where it is no Chinese, as a name or a number does;
    else it is left out."""
    asked = [(term.text, term.weight) for term in question_terms(question)]
    chinese = [(term, weight) for term, weight in asked if is_cjk(term)]
    latin = [(term, weight) for term, weight in asked if not is_cjk(term)]
    words = [(term, weight) for term, weight in chinese if weight >= LEAST_WEIGHT and len(term) > 1]
    known = [Translated(weight, meanings) for term, weight in words if (meanings := _meanings(term))]
    kept = [Translated(weight, ((term,),)) for term, weight in latin] if chinese else _joined(latin)
    return tuple(word for word in (*known, *kept) if len(word.meanings) <= MOST_MEANINGS)


def _joined(asked: Sequence[tuple[str, float]]) -> list[Translated]:
    """The longest run of words that the dictionary has as one goes first: annual leave is 年假."""
    joined: list[Translated] = []
    at = 0
    while at < len(asked):
        for length in range(min(MOST_WORDS, len(asked) - at), 0, -1):
            run = asked[at : at + length]
            meanings = _meanings(" ".join(term for term, _ in run))
            if meanings or length == 1:
                break
        joined.append(Translated(sum(weight for _, weight in run), meanings or ((run[0][0],),)))
        at += length
    return joined


@lru_cache(maxsize=4_096)
def _meanings(term: str) -> tuple[tuple[str, ...], ...]:
    """The shortest first."""
    rows = _database().execute(
        "SELECT other FROM translation WHERE term = ? ORDER BY length(other), other LIMIT ?",
        (term, MOST_MEANINGS + 1),
    )
    return tuple(tuple(other.split(" ")) for (other,) in rows)


@lru_cache(maxsize=1)
def _database() -> sqlite3.Connection:
    return sqlite3.connect(f"{SOURCE.as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)


@dataclass(frozen=True, slots=True)
class TextWords:
    """A text folded and in lower case, and its index terms outside the scripts without spaces."""

    lowered: str
    terms: Collection[str]


def coverage(words: Sequence[Translated], texts: Sequence[TextWords]) -> npt.NDArray[np.float64]:
    """For each text the share of the words that it has by any of their meanings; those that few of the texts
    have weigh more. A meaning of several words counts as far as the text has them."""
    has = np.array([[_held(word, text) for word in words] for text in texts]).reshape(len(texts), len(words))
    weights = np.array([word.weight for word in words])
    weights *= np.log((len(texts) + 1) / ((has >= 1.0).sum(axis=0) + 0.5))
    return np.asarray(has @ weights / max(weights.sum(), 1e-9))


def _held(word: Translated, text: TextWords) -> float:
    here = text.lowered if is_cjk(word.meanings[0][0]) else text.terms
    best = 0.0
    for meaning in word.meanings:
        if meaning[0] in here or len(meaning) > 1:
            best = max(best, sum(term in here for term in meaning) / len(meaning))
            if best == 1.0:
                break
    return best


def dictionary_gains(shares: Matrix, foreign: Matrix) -> Matrix:
    """Logits of each text in another language by its share of the words, 0 for all others. What texts in the
    question's have of these, too, such as a name, says nothing for those abroad."""
    abroad = (foreign == 1) & ~np.isnan(shares)
    best = shares[abroad].max(initial=0.0)
    beyond = max(0.0, best - shares[~abroad].max(initial=USUAL_TRANSLATED))
    return np.where(abroad, TRANSLATED * (shares - best) + BEST_TRANSLATED * beyond, 0.0)


def with_twins(
    candidates: Sequence[Candidate], chances: Matrix, foreign: Matrix, tokens: QuestionTokens | None
) -> Matrix:
    """A text in the question's language gets no less than its translation, which other features judge; ties
    keep the fused order. Tokens say which text that is; so does leading its language clearly by meaning,
    among the first by words, which is all that an embedding without tokens shows."""
    lifted, own = chances.copy(), foreign == 0
    passing = own.any() & ~own & (chances > chances[own].max(initial=0.0))
    for at in np.flatnonzero(passing).tolist():
        least = chances[at] / (chances[at] + TWIN_ODDS * (1.0 - chances[at]))
        near = np.flatnonzero(own & (chances >= least)).tolist()
        alike = likeness(tokens, [candidates[each].signs for each in (at, *near)])
        if alike.max(initial=0.0) >= TWIN_LIKENESS:
            twin = near[alike.argmax()]
            lifted[twin] = max(lifted[twin], chances[at])
    dense = np.array([own[at] * (each.dense or 0.0) for at, each in enumerate(candidates)] + [0.0])
    at, lead = int(dense.argmax()), dense.max() - np.sort(dense)[-2]
    first = candidates[at].dense_rank == 1 and (candidates[at].sparse_rank or np.inf) <= TWIN_SPARSE_RANK
    if first and lead >= TWIN_LEAD:
        lifted[at] = max(lifted[at], chances[~own].max(initial=0.0))
    return lifted
