import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.relevance.features import ABSOLUTE_FEATURES, FEATURES, QUESTION_FEATURES, Matrix
from core.relevance.probability import Coefficients, Feature, Linear, Together, probabilities
from scripts.evaluation.figures import auroc, calibration_error, ndcg
from scripts.training.judged import Judged
from scripts.training.train import Bin, figures, learn, reliability, write
from tests.scripts.training.synthetic import COVERAGE, NEAR, asked, drawn, judged


def test_each_questions_probabilities_come_from_a_model_that_never_saw_its_set() -> None:
    """Discriminates: probabilities of the model that is shipped; a set's small collections taken for others.

    What is right in one set is determined by `length`, which means nothing anywhere else.
    """
    rng = np.random.default_rng(6)
    rows = asked(rng, 60)
    length = FEATURES.index("length")
    for one in rows:
        one.rows[:, length] = 0.0
    for number in range(40):
        one = drawn(rng, 0, "drcd small" if number % 2 else "drcd")
        one.rows[:, NEAR], one.rows[:, COVERAGE] = 0.0, 0.0
        one.rows[:, length] = 8 * one.labels
        rows.append(one)
    learnt, unseen = learn(rows, "some-model")
    guessed = [(one, chances) for one, chances in zip(rows, unseen, strict=True) if one.family == "drcd"]
    judged = [(one, probabilities(one.rows, one.question, learnt)) for one, _ in guessed]
    assert _separated(judged) > 0.95
    assert _separated(guessed) == pytest.approx(0.5, abs=0.1)


def _separated(results: Sequence[tuple[Judged, Matrix]]) -> float:
    chances = np.concatenate([each for _, each in results])
    labels = np.concatenate([one.labels for one, _ in results])
    return auroc(chances[labels == 1].tolist(), chances[labels == 0].tolist())


def test_an_unknown_embeddings_coefficients_use_no_absolute_cosine() -> None:
    rng = np.random.default_rng(7)
    rows = [*asked(rng, 30), *(replace(one, part="drcd") for one in asked(rng, 30))]
    used = {
        name: {feature.name for model in (results.candidate, results.question) for feature in model.features}
        for name in ("any", "some-model")
        for results, _ in [learn(rows, name)]
    }
    assert set(FEATURES) <= used["some-model"]
    assert set(FEATURES) - set(ABSOLUTE_FEATURES) <= used["any"] <= {*FEATURES, *QUESTION_FEATURES}
    assert not used["any"] & set(ABSOLUTE_FEATURES)


def test_a_written_model_is_read_back_unchanged(tmp_path: Path) -> None:
    model = Linear(0.25, (Feature("near", 1.5, 0.1, 0.2),))
    coefficients = Coefficients("owner/model", model, model, Together(0.1, 0.2, 0.3, 0.4))
    rows = [judged([1, 0]), judged([0, 0], "mtrag absent", "absent"), judged([0, 1], "drcd")]
    rows.append(judged([1, 0], "drcd small"))
    chances = [np.array(each) for each in ([0.9, 0.1], [0.1, 0.1], [0.4, 0.6], [0.1, 0.2])]
    write(tmp_path, coefficients, rows, chances)
    content = json.loads((tmp_path / "owner_model.json").read_text(encoding="utf-8"))
    assert content["embedding"] == "owner/model"
    assert content["trained_on"] == ["drcd", "mtrag"]
    assert Together(**content["together"]) == coefficients.together
    read = content["candidate"]
    assert (read["intercept"], [Feature(**each) for each in read["features"]]) == (0.25, [*model.features])
    assert set(content["figures_held_out"]) == {"drcd", "mtrag"}
    assert content["figures_held_out"]["mtrag"]["questions"] == 2
    assert (
        content["figures_held_out"]["drcd"]["ndcg10"] == 1.0
    )  # independent of the results on people's small collections
    assert sum(each["candidates"] for each in content["reliability_held_out"]) == 8


def test_metrics_by_hand() -> None:
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


def test_a_document_counts_once_at_the_rank_of_its_first_chunk() -> None:
    """Discriminates: nDCG of chunks, which counts a document of many chunks for all of them."""
    twice = replace(judged([0, 0, 1, 1]), documents=("a", "a", "b", "b"))
    results = figures([twice], [np.array([0.9, 0.8, 0.7, 0.1])], 0.2)
    assert results.ndcg10 == results.ndcg10_fused == round(1 / np.log2(3), 3)


def test_left_out_answers_represent_unanswerable_questions_if_a_set_has_none() -> None:
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
