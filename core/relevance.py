"""How probably a candidate answers the question: a few features, one logistic function, a threshold.

One raw score cannot refuse: a cosine of 0.85 may be the answer or the least bad of nothing. The features
say how a candidate stands out from the others of its list, and how much of the question it holds.
Coefficients are learnt by scripts/train_relevance.py and shipped as data, with their figures.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files

import numpy as np

from core.knowledge import Candidate
from core.matching import Matrix, QuestionWords, WordMatch
from core.query import Query
from core.text import is_mostly_chinese

DENSE_FEATURES = ("dense", "top_dense", "dense_lead", "dense_gap", "top_lead", "dense_rank")
LIST_FEATURES = ("sparse_share", "sparse_rank", "question_words")
WORD_FEATURES = (
    "coverage",
    "rare_coverage",
    "best_coverage",
    "sentence_coverage",
    "heading_coverage",
    "same_script",
)
# In another language than the question's, words say nothing and the cosine must say it all.
FOREIGN_FEATURES = (
    "foreign_dense",
    "foreign_lead",
    "foreign_gap",
    "foreign_top_lead",
    "foreign_rank",
    "foreign_mixed",
    "foreign_beside_native",
)
FOREIGN_OF = ("dense", "dense_lead", "dense_gap", "top_lead", "dense_rank")
FEATURES = (*DENSE_FEATURES, *LIST_FEATURES, *WORD_FEATURES, *FOREIGN_FEATURES, "joined")
ABSOLUTE_FEATURES = (
    "dense",
    "top_dense",
    "foreign_dense",
)  # they mean something only for the embedder they were learnt on
ANY_EMBEDDING = "any"
TWIN_SPARSE_RANK = 3
TWIN_LEAD = 0.02  # of cosine; among E5's texts on one subject the second is .01 behind, a twin's rival .03
LANGUAGE_CHARS = 200  # of a text, to tell its language


@dataclass(frozen=True, slots=True)
class Feature:
    name: str
    coefficient: float
    mean: float
    scale: float


@dataclass(frozen=True, slots=True)
class Coefficients:
    """A logistic model over standardised features: sigmoid(intercept + Σ coefficient (x − mean) / scale)."""

    embedding: str
    intercept: float
    features: tuple[Feature, ...]


@lru_cache(maxsize=8)
def load_coefficients(embedding: str) -> Coefficients:
    """The coefficients learnt for this embedding, else those that use no absolute cosine.

    Other embedders spread their cosines differently, so for them only ranks, distances within the list
    and words are judged. Source: core/relevance_coefficients/*.json.
    """
    folder = files("core") / "relevance_coefficients"
    source = folder / f"{embedding.replace('/', '_')}.json"
    if not source.is_file():
        source = folder / f"{ANY_EMBEDDING}.json"
    read = json.loads(source.read_text(encoding="utf-8"))
    features = tuple(Feature(**feature) for feature in read["features"])
    return Coefficients(str(read["embedding"]), float(read["intercept"]), features)


def judge(query: Query, candidates: Sequence[Candidate], coefficients: Coefficients) -> list[Candidate]:
    """The candidates with their probability and key passage, in the order given."""
    if not candidates:
        return []
    words = QuestionWords.of(query)
    matches = [WordMatch.of(words, candidate) for candidate in candidates]
    rows = _features(query, candidates, words, matches)
    chances = _with_twin(candidates, logistic(rows, coefficients), rows[:, FEATURES.index("same_script")])
    return [
        replace(candidate, probability=float(chance), key_passage=match.passage(words))
        for candidate, chance, match in zip(candidates, chances, matches, strict=True)
    ]


def _with_twin(candidates: Sequence[Candidate], chances: Matrix, same_script: Matrix) -> Matrix:
    """In a collection of parallel documents both twins are found; the reader's language goes first.

    A text in another language is judged by its cosine alone, so it can pass its own twin, whose words do
    not all match. The one that leads its language clearly by meaning and is among the first by words
    therefore gets no less than any other language brings; ties keep the fused order.
    """
    lifted = chances.copy()
    own = sorted(
        (c.dense or 0.0 for c, same in zip(candidates, same_script, strict=True) if same), reverse=True
    )
    for at, candidate in enumerate(candidates):
        by_words = candidate.sparse_rank is not None and candidate.sparse_rank <= TWIN_SPARSE_RANK
        leads = candidate.dense_rank == 1 and (candidate.dense or 0.0) - [*own, 0.0, 0.0][1] >= TWIN_LEAD
        if leads and by_words and same_script[at]:
            lifted[at] = max(chances[at], chances[same_script == 0].max(initial=0.0))
    return lifted


def features(query: Query, candidates: Sequence[Candidate]) -> Matrix:
    """One row per candidate, one column per name in FEATURES."""
    words = QuestionWords.of(query)
    return _features(query, candidates, words, [WordMatch.of(words, candidate) for candidate in candidates])


def logistic(rows: Matrix, coefficients: Coefficients) -> Matrix:
    """Probabilities 0…1, one per row; finite for any finite row."""
    total = np.full(len(rows), coefficients.intercept)
    for feature in coefficients.features:
        column = rows[:, FEATURES.index(feature.name)]
        total += feature.coefficient * (column - feature.mean) / feature.scale
    chances: Matrix = 1.0 / (1.0 + np.exp(-np.clip(total, -30.0, 30.0)))
    return chances


def apply_threshold(candidates: Sequence[Candidate], threshold: float, top_n: int) -> list[Candidate]:
    """At most `top_n` candidates of at least this probability, in the order given (best first)."""
    return [candidate for candidate in candidates if candidate.probability >= threshold][:top_n]


def _features(
    query: Query, candidates: Sequence[Candidate], words: QuestionWords, matches: list[WordMatch]
) -> Matrix:
    chinese = is_mostly_chinese(query.question)
    foreign = np.array(
        [float(is_mostly_chinese(match.text[:LANGUAGE_CHARS]) != chinese) for match in matches]
    )
    dense, held = _dense_features(candidates), _word_features(words, matches)
    return np.column_stack(
        [
            dense,
            _list_features(query, candidates),
            held,
            1.0 - foreign,
            dense[:, [DENSE_FEATURES.index(name) for name in FOREIGN_OF]] * foreign[:, None],
            foreign * (1.0 - foreign).max(),
            # how much of the question the best text of the question's own language holds
            foreign * (held[:, WORD_FEATURES.index("sentence_coverage")] * (1.0 - foreign)).max(),
            np.full(len(candidates), sum(form.weight for form in query.forms[1:])),
        ]
    )


def _dense_features(candidates: Sequence[Candidate]) -> Matrix:
    """Columns as in DENSE_FEATURES."""
    known = [candidate.dense for candidate in candidates if candidate.dense is not None]
    floor = min(known, default=0.0)  # what the dense list did not return lies below all it did
    dense = np.array([floor if candidate.dense is None else candidate.dense for candidate in candidates])
    top, mean = np.full(len(dense), dense.max()), dense.mean()
    ranks = _reciprocals([candidate.dense_rank for candidate in candidates])
    return np.column_stack([dense, top, dense - mean, dense - top, top - mean, ranks])


def _list_features(query: Query, candidates: Sequence[Candidate]) -> Matrix:
    """Columns as in LIST_FEATURES; shares of the best, as heights grow with the collection."""
    sparse = np.array([candidate.sparse or 0.0 for candidate in candidates])
    possible = max((sum(form.sparse.values) for form in query.forms), default=0.0)
    share = sparse / sparse.max() if sparse.max() > 0 else sparse
    ranks = _reciprocals([candidate.sparse_rank for candidate in candidates])
    return np.column_stack([share, ranks, np.full(len(sparse), np.log1p(possible))])


def _word_features(words: QuestionWords, matches: list[WordMatch]) -> Matrix:
    """Columns as in WORD_FEATURES without the last."""
    body = np.array([match.sentence_terms.max(axis=0, initial=0.0) for match in matches])
    heading = np.array([match.heading_terms for match in matches])
    here = np.maximum(body, heading)
    rarity = np.log1p((len(matches) + 1) / (here.sum(axis=0) + 0.5))  # what no candidate has weighs most
    coverage = words.covered(here)
    in_sentence = [
        words.covered(np.maximum(match.sentence_terms, match.heading_terms)).max(initial=0.0)
        for match in matches
    ]
    return np.column_stack(
        [
            coverage,
            words.covered(here, rarity),
            np.full(len(matches), coverage.max()),
            in_sentence,
            words.covered(heading),
        ]
    )


def _reciprocals(ranks: Sequence[int | None]) -> Matrix:
    return np.array([0.0 if rank is None else 1.0 / rank for rank in ranks])
