"""A store's own slope and shift of the logits, fitted to questions whose answering passages are known."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.errors import BadRequestError
from core.relevance.probability import logistic, logit

MIN_QUESTIONS = 20
MIN_OF_EACH = 5  # without unanswered ones, everything would become sure
SHIFT_DEVIATION, SLOPE_DEVIATION = 2.0, 0.5  # the prior: how much collections differ
MIN_SLOPE = 0.1  # never reverses the order
STEPS = 100
_MARKS = re.compile(r"\W+")


@dataclass(frozen=True, slots=True)
class Calibration:
    """Valid for a store with texts of this embedding, judged by this reranker (as RERANKER names it).

    In force from `made_us` until `undone_us` (0: it was not undone) or the next one.
    """

    slope: float = 1.0
    shift: float = 0.0
    questions: int = 0
    embedding: str = ""
    reranker: str = ""
    made_us: int = 0
    undone_us: int = 0

    def of(self, chance: float) -> float:
        return chance if self.changes_nothing else _chance(self.slope * logit(chance) + self.shift)

    def raw(self, chance: float) -> float:
        """Invert `of`."""
        return chance if self.changes_nothing else _chance((logit(chance) - self.shift) / self.slope)

    @property
    def changes_nothing(self) -> bool:
        return (self.slope, self.shift) == (1.0, 0.0)

    def was_in_force(self, at_us: int) -> bool:
        return self.made_us <= at_us and not 0 < self.undone_us <= at_us


def _chance(logit: float) -> float:
    return 1.0 / (1.0 + math.exp(-logit))


@dataclass(frozen=True, slots=True)
class Judged:
    """The best passage of a question: its uncalibrated probability, and whether it answers."""

    chance: float
    answers: bool


def holds_words(text: str, words: str) -> bool:
    """Whether the text has these words in sequence, whatever punctuation is between them."""
    return _MARKS.sub("", words) in _MARKS.sub("", text)


def fit(judged: Sequence[Judged]) -> tuple[float, float]:
    """Fit the most probable slope and shift, by Newton's method on the logits, starting from the prior.

    Raises BadRequestError if the questions are too few or one-sided.
    """
    answers = sum(each.answers for each in judged)
    if len(judged) < MIN_QUESTIONS or min(answers, len(judged) - answers) < MIN_OF_EACH:
        raise BadRequestError(
            f"{len(judged)} questions, {answers} of them answered by their best passage: at least "
            f"{MIN_QUESTIONS} are needed, {MIN_OF_EACH} of them answered by it and {MIN_OF_EACH} not."
        )
    rows = np.array([(logit(each.chance), 1.0) for each in judged])
    labels = np.array([float(each.answers) for each in judged])
    prior, tied = np.array([1.0, 0.0]), np.diag([SLOPE_DEVIATION**-2, SHIFT_DEVIATION**-2])
    params = prior.copy()
    for _ in range(STEPS):
        chances = logistic(rows @ params)
        gradient = rows.T @ (chances - labels) + tied @ (params - prior)
        curvature = (rows.T * (chances * (1.0 - chances))) @ rows + tied
        step = np.linalg.solve(curvature, gradient)
        params = params - step / max(1.0, float(np.linalg.norm(step)))  # a longer step overshoots for good
        params[0] = max(params[0], MIN_SLOPE)
    return float(params[0]), float(params[1])
