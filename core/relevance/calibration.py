"""What a probability means among one's own documents: a slope and a shift of its logit, fitted to questions
whose best passage is known to answer or not."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from core.errors import BadRequestError
from core.relevance.probability import SURE

LEAST_QUESTIONS = 20
LEAST_OF_EACH = 5  # without any that nothing answers, all would become sure
SHIFT_DEVIATION, SLOPE_DEVIATION = 2.0, 0.5  # of what collections differ by, before any question is known
LEAST_SLOPE = 0.1  # it never turns the order round
SURELY = 1e-6  # a probability of 0 or 1 has no logit
STEPS = 100
_MARKS = re.compile(r"\W+")


@dataclass(frozen=True, slots=True)
class Calibration:
    """Of a store whose texts have this embedding, judged by this reranker (as RERANKER names it).

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
        return chance if self.changes_nothing else _chance(self.slope * _logit(chance) + self.shift)

    def raw(self, chance: float) -> float:
        """What `of` was given."""
        return chance if self.changes_nothing else _chance((_logit(chance) - self.shift) / self.slope)

    @property
    def changes_nothing(self) -> bool:
        return (self.slope, self.shift) == (1.0, 0.0)

    def was_in_force(self, at_us: int) -> bool:
        return self.made_us <= at_us and not 0 < self.undone_us <= at_us


@dataclass(frozen=True, slots=True)
class Judged:
    """The best passage of a question: its probability before any calibration, and whether it answers."""

    chance: float
    answers: bool


@dataclass(frozen=True, slots=True)
class Verdicts:
    """How many answers would be sure, or only the closest passage, or refused."""

    sure: int = 0
    closest: int = 0
    refused: int = 0


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
    rows = np.array([(_logit(each.chance), 1.0) for each in judged])
    labels = np.array([float(each.answers) for each in judged])
    prior, tied = np.array([1.0, 0.0]), np.diag([SLOPE_DEVIATION**-2, SHIFT_DEVIATION**-2])
    found = prior.copy()
    for _ in range(STEPS):
        chances = 1.0 / (1.0 + np.exp(-np.clip(rows @ found, -30.0, 30.0)))
        gradient = rows.T @ (chances - labels) + tied @ (found - prior)
        curvature = (rows.T * (chances * (1.0 - chances))) @ rows + tied
        step = np.linalg.solve(curvature, gradient)
        found = found - step / max(1.0, float(np.linalg.norm(step)))  # a longer one overshoots for good
        found[0] = max(found[0], LEAST_SLOPE)
    return float(found[0]), float(found[1])


def verdicts(chances: Iterable[float], threshold: float) -> Verdicts:
    counts = Counter(
        "sure" if chance >= max(SURE, threshold) else "closest" if chance >= threshold else "refused"
        for chance in chances
    )
    return Verdicts(**counts)


def _logit(chance: float) -> float:
    bounded = min(max(chance, SURELY), 1.0 - SURELY)
    return math.log(bounded / (1.0 - bounded))


def _chance(logit: float) -> float:
    return 1.0 / (1.0 + math.exp(-logit))
