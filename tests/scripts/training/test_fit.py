from dataclasses import replace

import numpy as np
import pytest

from core.relevance.features import FEATURES, QUESTION_FEATURES, TOKEN_FEATURES
from core.relevance.probability import Linear, probabilities
from scripts.evaluation.figures import calibration_error
from scripts.training.fit import fit, fit_tokens
from tests.scripts.training.synthetic import (
    CANDIDATES,
    COVERAGE,
    FOREIGN,
    NEAR,
    OVERLAP,
    TOP_DENSE,
    asked,
    drawn,
    logistic,
    refused,
)


def slopes(model: Linear) -> dict[str, float]:
    """Return the weights per unit of the feature."""
    return {feature.name: feature.coefficient / feature.scale for feature in model.features}


def test_the_features_that_make_a_candidate_right_are_learnt() -> None:
    """Discriminates: a sign, a mean or a scale lost on the way; a ridge that keeps everything at zero."""
    names = ["near", "coverage", "length"]
    rows = asked(np.random.default_rng(1), 200)
    for one in rows:
        one.rows[:, NEAR] = 0.4 + one.rows[:, NEAR] / 10
    learnt = fit(rows, names, ["overlap"], "x")
    assert slopes(learnt.candidate) == {
        "near": pytest.approx(20, abs=1.5),
        "coverage": pytest.approx(-1, abs=0.15),
        "length": pytest.approx(0, abs=0.1),
    }


def test_every_question_feature_is_scaled_by_its_spread_among_conversations() -> None:
    """Discriminates: the spread over all sets, in which reading comprehension tests are far from
    conversations."""
    rng = np.random.default_rng(2)
    talked = asked(rng)
    read = asked(rng, 300)
    for one in talked:
        one.question[TOP_DENSE] = 0.8 + one.question[TOP_DENSE] / 50
    results = fit(
        [*talked, *(replace(one, part="drcd") for one in read)],
        ["near"], ["top_dense", "overlap"], "x",
    ).question  # fmt: skip
    signs = {feature.name: feature for feature in results.features}
    assert signs["top_dense"].coefficient == signs["overlap"].coefficient > 0
    assert signs["top_dense"].mean == pytest.approx(0.8, abs=0.01)
    assert signs["top_dense"].scale == pytest.approx(1 / 50, abs=0.005)
    assert results.intercept == 0.0


def test_what_words_lack_in_another_language_is_compensated() -> None:
    """Discriminates: no weight for `foreign`, with which every foreign question looks strange."""
    rng = np.random.default_rng(3)
    rows = []
    for number in range(400):
        one = drawn(rng, number) if number % 2 else refused(rng, number, kind="strange")
        far = float(number % 4 < 2)
        one.question[FOREIGN] = far
        one.question[OVERLAP] += (3 if number % 2 else -3) - 8 * far
        rows.append(one)
    results = fit(rows, ["near"], ["overlap", "foreign"], "x").question
    scores = results.of(np.vstack([one.question for one in rows]), QUESTION_FEATURES)
    answered = np.array([one.kind == "answerable" for one in rows])
    abroad = np.array([one.question[FOREIGN] > 0 for one in rows])
    level = (scores[answered & ~abroad].mean() + scores[~answered & ~abroad].mean()) / 2
    assert ((scores >= level) == answered)[~abroad].mean() > 0.95
    assert ((scores >= level) == answered)[abroad].mean() > 0.95


def test_probabilities_match_the_observed_frequencies() -> None:
    """Discriminates: leaving `best` or `behind_best` out of what is fitted together; an intercept that is
    shifted afterwards. Right candidates weigh a quarter more than their frequency, hence not less."""
    rng = np.random.default_rng(4)
    learnt = fit(asked(rng), ["near", "coverage"], ["overlap"], "x")
    fresh = asked(rng)
    chances = np.concatenate([probabilities(one.rows, one.question, learnt) for one in fresh])
    labels = np.concatenate([one.labels for one in fresh])
    assert calibration_error(chances, labels) < 0.05


def test_a_question_without_an_answer_lowers_all_its_candidates() -> None:
    """Discriminates: the question's model left out of the whole."""
    rows = asked(np.random.default_rng(5), separation=3.0)
    learnt = fit(rows, ["near", "coverage"], ["overlap"], "x")
    assert learnt.together.question > 0
    same = rows[0].rows
    high, low = np.zeros(len(QUESTION_FEATURES)), np.zeros(len(QUESTION_FEATURES))
    high[OVERLAP] = 3.0
    assert (probabilities(same, high, learnt) > probabilities(same, low, learnt)).all()


def test_perfectly_separable_data_still_gives_probabilities() -> None:
    """Discriminates: Newton's steps without bound on linearly separable data."""
    rows = asked(np.random.default_rng(8), 40, separation=100.0)
    for number, one in enumerate(rows):
        right = (np.arange(CANDIDATES) == number % CANDIDATES) & (one.kind == "answerable")
        one.rows[:, NEAR] = one.labels[:] = right
    learnt = fit(rows, ["near", "coverage"], ["overlap"], "x")
    for one in rows:
        chances = probabilities(one.rows, one.question, learnt)
        assert ((chances >= 0) & (chances <= 1)).all()
        assert not one.is_right or chances.argmax() == one.labels.argmax()


def test_a_feature_that_never_varied_has_no_effect_and_breaks_nothing() -> None:
    """Discriminates: a scale that is rounded to 0."""
    rows = asked(np.random.default_rng(9), 60)
    for one in rows:
        one.rows[:, COVERAGE] = 1.0
    learnt = fit(rows, ["near", "coverage"], ["overlap"], "x")
    strange = np.zeros((3, len(FEATURES)))
    assert np.isfinite(learnt.candidate.of(strange, FEATURES)).all()
    assert np.isfinite(probabilities(strange, np.zeros(len(QUESTION_FEATURES)), learnt)).all()


def test_the_contribution_of_tokens_beyond_the_other_features_is_learnt() -> None:
    """Discriminates: the score of the other features left out; questions without tokens among the rest."""
    rng = np.random.default_rng(7)
    rows = []
    for number in range(300):
        one = drawn(rng, number)
        tokens = rng.normal(size=(CANDIDATES, len(TOKEN_FEATURES)))
        chances = logistic(one.rows[:, NEAR] + 3 * tokens[:, 0] - 3)
        labels = (rng.random(CANDIDATES) < chances).astype(float)
        rows.append(replace(one, labels=labels, tokens=tokens, gold=int(labels.sum())))
    learnt = fit([*rows, *asked(rng)], ["near"], ["overlap"], "x")
    added = fit_tokens([*rows, *asked(rng)], learnt)
    known = slopes(added.candidate)
    assert known["tokens"] == pytest.approx(3, abs=0.4)
    assert known["score"] > 0.3 > abs(known["tokens_lead"])
    both = replace(learnt, tokens=added)
    judged = np.concatenate([probabilities(one.rows, one.question, both, one.tokens) for one in rows])
    assert calibration_error(judged, np.concatenate([one.labels for one in rows])) < 0.05
