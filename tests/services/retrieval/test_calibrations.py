"""Calibrations: what one fits, that it can be inverted and never reverses an order; in the store, which one
is in force, and what ratings state about passages."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.settings import StoreSettings
from core.errors import BadRequestError, ConflictError
from scripts.evaluation.figures import calibration_error
from services.retrieval.reranking import NOT_CALIBRATED, Calibration, Calibrations, Judged, fit
from services.store.collections import ensure_collections
from services.store.dialect import Point, VectorStore
from tests.services.adapters.edge.stores import ENGINES, NO_INDEX_WARNING, open_store

pytestmark = pytest.mark.filterwarnings(NO_INDEX_WARNING)

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


@pytest.fixture(params=ENGINES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorStore]:
    async with open_store(request.param, tmp_path) as opened:
        await ensure_collections(opened, StoreSettings(), embedding_name="small", dimension=4)
        yield opened


class Clock:
    def __init__(self) -> None:
        self.now_us = 100

    def __call__(self) -> int:
        self.now_us += 10
        return self.now_us


def opened(store: VectorStore, reranker: str = "calibrated") -> Calibrations:
    return Calibrations(store, StoreSettings(), "small", reranker, Clock())


async def made(calibrations: Calibrations, shift: float) -> Calibration:
    one = calibrations.new(1.5, shift, 20)
    await calibrations.add(one)
    return one


async def test_the_last_calibration_is_in_force_until_undone_then_the_previous_one(
    store: VectorStore,
) -> None:
    """Discriminates: an undo that reverts to none, or forgets what earlier turns were judged by."""
    calibrations = opened(store)
    assert calibrations.current() == NOT_CALIBRATED
    first, second = await made(calibrations, 1.0), await made(calibrations, -1.0)
    assert calibrations.current() == second
    assert await calibrations.undo() == first
    assert await calibrations.undo() == NOT_CALIBRATED
    with pytest.raises(ConflictError, match="nothing to undo"):
        await calibrations.undo()
    assert [calibrations.at(each.made_us).shift for each in (first, second)] == [1.0, -1.0]


async def test_a_calibration_is_in_force_after_a_start_but_not_for_another_reranker(
    store: VectorStore,
) -> None:
    """Discriminates: applying one model's offsets to another's scores."""
    one = await made(opened(store), 1.0)
    again, other = opened(store), opened(store, "http:bge")
    for calibrations in (again, other):
        calibrations._now_us.now_us = 1_000  # type: ignore[attr-defined]
        await calibrations.load()
    assert (again.current(), other.current()) == (one, NOT_CALIBRATED)


async def test_ratings_are_read_with_uncalibrated_probabilities(
    store: VectorStore,
) -> None:
    """Discriminates: fitting to the results of an earlier calibration; counting comments, or turns without
    passages."""
    calibrations = opened(store)
    one = await made(calibrations, 1.0)
    shown, bare = [{"score": one.of(0.2)}, {"score": 0.01}], [{"score": 0.6}]
    turns = [
        {"created_us": one.made_us + 1, "feedback": {"rating": "down"}, "sources": shown},
        {"created_us": one.made_us - 1, "feedback": {"rating": "up"}, "sources": bare},
        {"created_us": one.made_us + 1, "feedback": {"rating": "up"}, "sources": []},
        {"created_us": one.made_us + 1, "feedback": {"rating": None, "comment": "x"}, "sources": shown},
        {"created_us": one.made_us + 1, "feedback": None, "sources": shown},
    ]
    points = [Point(id=number + 1, vector={}, payload=payload) for number, payload in enumerate(turns)]
    await store.upsert("conversations", points)
    rated = sorted(await calibrations.rated(), key=lambda each: each.chance)
    assert [each.answers for each in rated] == [False, True]
    assert [each.chance for each in rated] == pytest.approx([0.2, 0.6])
    assert isinstance(rated[0], Judged)
