"""What rerankers return, as probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence

Scores = list[list[float | None]]
"""Probabilities: a row for each question, in it one for each text, None for what was left out."""


class ScoreScale:
    """Whether scores are probabilities, or raw: so from the first one outside 0…1 on, for good."""

    def __init__(self) -> None:
        self._raw = False

    def chances(self, scores: Sequence[float | None]) -> list[float | None]:
        """Probabilities of scores that came together; what is no number counts as 0, None stays."""
        told = [score for score in scores if score is not None and not math.isnan(score)]
        self._raw = self._raw or any(not 0.0 <= score <= 1.0 for score in told)
        return [self._chance(score) for score in scores]

    def _chance(self, score: float | None) -> float | None:
        if score is None:
            return None
        return probability(score) if self._raw or math.isnan(score) else score


def probability(score: float) -> float:
    """The sigmoid of a model's raw score, without overflow; a score that is no number counts as 0."""
    if math.isnan(score):
        return 0.0
    if score >= 0:
        return 1.0 / (1.0 + math.exp(-score))
    grown = math.exp(score)
    return grown / (1.0 + grown)
