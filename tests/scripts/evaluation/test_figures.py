"""The figures against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from scripts.evaluation.figures import (
    Answer,
    quantile,
    refusal,
    retrieval,
    separation,
    top_calibration,
)
from scripts.evaluation.sets import Question


def answer(
    *ranked: tuple[str, float], gold: dict[str, float] | None = None, answerable: bool = True
) -> Answer:
    return Answer(Question("q", "?", gold=gold or {}, answerable=answerable), ranked)


def test_recall_is_the_fraction_of_what_is_relevant_and_the_gain_is_the_grade() -> None:
    """Discriminates: recall as hit-or-miss, and a gain of 1 for every grade."""
    figures = retrieval([answer(("x", 0.9), ("a", 0.8), ("b", 0.7), gold={"a": 2, "b": 1, "c": 1, "d": 1})])
    assert figures is not None
    assert (figures.recall_1, figures.recall_5, figures.recall_10) == (0.0, 0.5, 0.5)
    gained = 2 / math.log2(3) + 1 / math.log2(4)
    best = 2 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4) + 1 / math.log2(5)
    assert figures.ndcg_10 == pytest.approx(gained / best)
    assert figures.mrr_10 == 0.5


def test_a_document_named_twice_counts_once_and_takes_one_place() -> None:
    """Discriminates: ranks that count the repetition."""
    figures = retrieval([answer(("x", 0.9), ("x", 0.8), ("a", 0.7), gold={"a": 1})])
    assert figures is not None
    assert figures.mrr_10 == 0.5


def test_what_stands_below_the_tenth_place_is_not_found() -> None:
    ranked = [(str(place), 1 / place) for place in range(1, 12)]
    figures = retrieval([answer(*ranked, gold={"11": 1}), answer(gold={"a": 1})])
    assert figures is not None
    assert (figures.questions, figures.recall_10, figures.ndcg_10, figures.mrr_10) == (2, 0, 0, 0)


def test_only_answerable_questions_with_judged_documents_are_scored() -> None:
    assert retrieval([answer(("a", 1.0)), answer(("a", 1.0), gold={"a": 1}, answerable=False)]) is None


def test_refusing_is_the_positive_class() -> None:
    """Two of three unanswerable questions and one of two answerable ones are refused."""
    asked = [
        answer(("a", 0.9)), answer(("a", 0.1)),
        answer(("a", 0.3), answerable=False), answer(("a", 0.1), answerable=False), answer(answerable=False),
    ]  # fmt: skip
    figures = refusal(asked, 0.2)
    assert figures is not None
    assert (figures.precision, figures.recall, figures.f1) == pytest.approx((2 / 3, 2 / 3, 2 / 3))
    assert figures.balanced_accuracy == pytest.approx((1 / 2 + 2 / 3) / 2)
    # of the six pairs .9 wins three; .1 loses to .3, ties with .1, beats nothing found
    assert separation(asked) == pytest.approx((3 + 0 + 0.5 + 1) / 6)


def test_refusal_needs_questions_of_both_kinds() -> None:
    assert refusal([answer(("a", 0.9))], 0.2) is None
    assert separation([answer(("a", 0.9))]) is None


def test_calibration_compares_the_best_probability_with_whether_that_document_is_relevant() -> None:
    asked = [
        answer(("a", 0.85), gold={"a": 1}), answer(("b", 0.85), gold={"a": 1}),
        answer(("a", 0.25), gold={"a": 1}, answerable=False),
        answer(("a", 0.5)),  # answerable, but nobody says by what
    ]  # fmt: skip
    # bin .8–.9: |1.7 − 1|, bin .2–.3: |.25 − 0|; of three questions
    assert top_calibration(asked) == pytest.approx((0.7 + 0.25) / 3)


def test_the_best_score_need_not_stand_first() -> None:
    assert answer(("a", 0.2), ("b", 0.6)).best == ("b", 0.6)
    assert answer().best == ("", 0.0)


def test_a_quantile_of_nothing_is_nothing() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([], 0.99) == 0.0
