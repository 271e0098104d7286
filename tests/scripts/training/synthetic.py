"""Synthetic training questions, in which what separates right from wrong is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from core.relevance.features import FEATURES, QUESTION_FEATURES, Matrix
from scripts.training.judged import Judged

NEAR, COVERAGE = FEATURES.index("near"), FEATURES.index("coverage")
TOP_DENSE, OVERLAP, FOREIGN = (QUESTION_FEATURES.index(name) for name in ("top_dense", "overlap", "foreign"))
CANDIDATES = 20


def logistic(value: Matrix) -> Matrix:
    chances: Matrix = 1 / (1 + np.exp(-value))
    return chances


def judged(
    labels: Sequence[float] | Matrix,
    part: str = "mtrag",
    kind: str = "answerable",
    gold: int = 1,
) -> Judged:
    documents = tuple(f"doc {at}" for at in range(len(labels)))
    rows, question = np.zeros((len(labels), len(FEATURES))), np.zeros(len(QUESTION_FEATURES))
    return Judged(part, kind, rows, question, np.array(labels, dtype=float), documents, gold)


def drawn(rng: np.random.Generator, number: int, part: str = "mtrag") -> Judged:
    """A question whose candidates are right with logit 2 near − coverage − 2 and nothing else."""
    rows = rng.normal(size=(CANDIDATES, len(FEATURES)))
    chances = logistic(2 * rows[:, NEAR] - rows[:, COVERAGE] - 2)
    labels = (rng.random(CANDIDATES) < chances).astype(float)
    empty = judged(labels, part, gold=int(labels.sum()))
    at_home = np.array([not name.startswith("foreign") for name in QUESTION_FEATURES])
    return replace(empty, rows=rows, question=rng.normal(size=len(QUESTION_FEATURES)) * at_home)


def refused(rng: np.random.Generator, number: int, part: str = "mtrag", kind: str = "unanswerable") -> Judged:
    like = drawn(rng, number, part)
    return replace(like, kind=kind, labels=np.zeros(CANDIDATES), gold=0)


def asked(rng: np.random.Generator, count: int = 150, separation: float = 1.0) -> list[Judged]:
    """As many with an answer as without one; the overlap separates them."""
    rows = [each for number in range(count) for each in (drawn(rng, number), refused(rng, number))]
    for one in rows:
        one.question[OVERLAP] += separation * (one.kind == "answerable")
    return rows
