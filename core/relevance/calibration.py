"""A store's own slope and shift of the logits, from questions of which it is known what answers them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.errors import BadRequestError
from core.relevance.probability import logistic, logit

LEAST_QUESTIONS = 20
LEAST_OF_EACH = 5  # without any that nothing answers, all would become sure
SHIFT_DEVIATION, SLOPE_DEVIATION = 2.0, 0.5  # of what collections differ by, before any question is known
LEAST_SLOPE = 0.1  # it never turns the order round
STEPS = 100
_MARKS = re.compile(r"\W+")


@dataclass(frozen=True, slots=True)
class Judged:
    """The best passage of a question: its probability before any calibration, and whether it answers."""

    chance: float
    answers: bool


def holds_words(text: str, words: str) -> bool:
    """Whether the text has these words one after the other, whatever marks stand between."""
    return _MARKS.sub("", words) in _MARKS.sub("", text)


def fit(judged: Sequence[Judged]) -> tuple[float, float]:
    """The most probable slope and shift, by Newton's method on the logits, from where collections are alike.

    Raises BadRequestError where the questions cannot say.
    """
    answers = sum(each.answers for each in judged)
    if len(judged) < LEAST_QUESTIONS or min(answers, len(judged) - answers) < LEAST_OF_EACH:
        raise BadRequestError(
            f"{len(judged)} questions, of {answers} the best passage answers: at least {LEAST_QUESTIONS} are "
            f"needed, of which {LEAST_OF_EACH} are answered by it and {LEAST_OF_EACH} are not."
        )
    rows = np.array([(logit(each.chance), 1.0) for each in judged])
    labels = np.array([float(each.answers) for each in judged])
    prior, tied = np.array([1.0, 0.0]), np.diag([SLOPE_DEVIATION**-2, SHIFT_DEVIATION**-2])
    found = prior.copy()
    for _ in range(STEPS):
        chances = logistic(rows @ found)
        gradient = rows.T @ (chances - labels) + tied @ (found - prior)
        curvature = (rows.T * (chances * (1.0 - chances))) @ rows + tied
        step = np.linalg.solve(curvature, gradient)
        found = found - step / max(1.0, float(np.linalg.norm(step)))  # a longer one overshoots for good
        found[0] = max(found[0], LEAST_SLOPE)
    return float(found[0]), float(found[1])
