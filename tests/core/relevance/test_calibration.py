"""A calibration: what it fits, that it can be inverted, and that it never reverses an order."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadRequestError
from core.relevance.calibration import Calibration, Judged, fit, holds_words
from scripts.evaluation.figures import calibration_error

CHANCES = st.floats(0.001, 0.999)
FITTED = st.builds(Calibration, st.floats(0.1, 4.0), st.floats(-5.0, 5.0))


@given(CHANCES, FITTED)
def test_a_calibration_can_be_inverted(chance: float, fitted: Calibration) -> None:
    if 1e-5 < fitted.of(chance) < 1 - 1e-5:  # beyond that, a probability has lost its precision
        assert fitted.raw(fitted.of(chance)) == pytest.approx(chance, rel=1e-3)


@given(CHANCES, CHANCES, FITTED)
def test_a_calibration_keeps_the_order(one: float, other: float, fitted: Calibration) -> None:
    assert (fitted.of(one) <= fitted.of(other)) is (one <= other) or fitted.of(one) == fitted.of(other)


def base(shift: float, many: int, seed: int) -> list[Judged]:
    """Passages that answer as often as their probability would predict if its logit were `shift` higher."""
    drawn = random.Random(seed)
    logits = [drawn.gauss(-shift, 1.5) for _ in range(many)]
    return [
        Judged(1 / (1 + math.exp(-logit)), drawn.random() < 1 / (1 + math.exp(-logit - shift)))
        for logit in logits
    ]


@pytest.mark.parametrize("shift", [-2.0, 2.0, 6.0])
def test_twenty_questions_bring_probabilities_close_to_the_true_ones(shift: float) -> None:
    """Discriminates: a shift with the wrong sign; one that is held at 0."""
    fitted = Calibration(*fit(base(shift, 20, seed=3)))
    others = base(shift, 2_000, seed=4)
    labels = np.array([float(each.answers) for each in others])
    before = calibration_error(np.array([each.chance for each in others]), labels)
    after = calibration_error(np.array([fitted.of(each.chance) for each in others]), labels)
    assert (before > 0.25, after < 0.12) == (True, True), (before, after)


def test_correct_probabilities_stay_nearly_the_same() -> None:
    assert list(fit(base(0.0, 2_000, seed=5))) == pytest.approx([1.0, 0.0], abs=0.15)


def test_too_few_questions_or_none_without_an_answer_are_refused() -> None:
    """Discriminates: a collection in which everything is sure, because nobody asked a question it cannot
    answer."""
    for answered, unanswered in ((9, 10), (40, 0), (40, 4), (4, 40)):
        judged = [Judged(0.5, answers=True)] * answered + [Judged(0.5, answers=False)] * unanswered
        with pytest.raises(BadRequestError, match="at least 20"):
            fit(judged)


def test_words_are_found_whatever_punctuation_is_between_them() -> None:
    assert holds_words("| Paris | 3,5 days |", "Paris: 3.5 days")
    assert not holds_words("Paris", "Paris 3")
