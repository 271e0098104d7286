from dataclasses import replace

import numpy as np
import pytest

from scripts.training.figures import Bin, figures, reliability
from scripts.training.numbers import auroc, calibration_error, ndcg
from tests.scripts.training.synthetic import judged


def test_figures_by_hand() -> None:
    rows = [
        judged([0, 1, 0]),
        judged([1, 0, 0]),
        judged([0, 0, 0], kind="unanswerable"),
        judged([0, 0, 0], kind="strange"),
        judged([0, 0, 0], part="mtrag absent", kind="absent"),
    ]
    best = [[0.1, 0.8, 0.1], [0.1, 0.1, 0.1], [0.1, 0.3, 0.1], [0.1, 0.1, 0.1], [0.9, 0.1, 0.1]]
    results = figures(rows, [np.array(each) for each in best], 0.2)
    assert results.questions == 5
    assert results.ndcg10_fused == round((1 / np.log2(3) + 1) / 2, 3)
    assert results.ndcg10 == 1.0  # ties keep the fused order
    assert results.refusal_auroc == 0.5  # .8 > .3 > .1; the absent one does not count where a set has others
    assert results.answerable_kept == 0.5
    assert results.balanced_accuracy == 0.25
    assert results.strange_refused == 1.0


def test_a_document_counts_once_where_its_first_chunk_stands() -> None:
    """Discriminates: nDCG of chunks, which counts a document of many chunks for all of them."""
    twice = replace(judged([0, 0, 1, 1]), documents=("a", "a", "b", "b"))
    results = figures([twice], [np.array([0.9, 0.8, 0.7, 0.1])], 0.2)
    assert results.ndcg10 == results.ndcg10_fused == round(1 / np.log2(3), 3)


def test_left_out_answers_stand_for_unanswerable_questions_where_a_set_has_none() -> None:
    rows = [judged([1, 0]), judged([0, 0], "mtrag absent", "absent")]
    results = figures(rows, [np.array([0.9, 0.1]), np.array([0.1, 0.1])], 0.2)
    assert (results.refusal_auroc, results.balanced_accuracy) == (1.0, 1.0)
    assert figures(rows[:1], [np.array([0.9, 0.1])], 0.2).refusal_auroc is None


def test_the_reliability_diagram_by_hand() -> None:
    rows = [judged([1, 0, 1]), judged([1, 0])]
    bins = reliability(rows, [np.array([0.95, 0.05, 1.0]), np.array([0.05, 0.08])])
    assert bins == [Bin(0.0, 0.06, round(1 / 3, 3), 3), Bin(0.9, 0.975, 1.0, 2)]


def test_measures_by_hand() -> None:
    assert ndcg(np.array([1.0, 0.0, 1.0]), 2) == pytest.approx((1 + 1 / 2) / (1 + 1 / np.log2(3)))
    assert ndcg(np.array([0.0] * 10 + [1.0]), 1) == 0.0
    assert ndcg(np.ones(20), 50) == pytest.approx(1.0)
    assert auroc([0.9, 0.5], [0.5, 0.1]) == pytest.approx((1 + 1 + 0.5 + 1) / 4)
    # two bins: promised .6 of two with one right, promised 1.0 of one that is wrong
    assert calibration_error(np.array([0.62, 0.64, 1.0]), np.array([1.0, 0.0, 0.0])) == pytest.approx(
        (0.26 + 1.0) / 3
    )
