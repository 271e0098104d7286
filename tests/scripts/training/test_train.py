import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.relevance.features import ABSOLUTE_FEATURES, FEATURES, QUESTION_FEATURES, Matrix
from core.relevance.probability import Coefficients, Feature, Linear, Together, probabilities
from scripts.training.judged import Judged
from scripts.training.numbers import auroc
from scripts.training.train import learn, write
from tests.scripts.training.synthetic import COVERAGE, NEAR, asked, drawn, judged


def test_each_questions_probabilities_come_from_a_model_that_never_saw_its_group() -> None:
    """Discriminates: probabilities of the model that is shipped; trials by question in place of by group.

    Right in one group is what has `length`, which says nothing anywhere else.
    """
    rng = np.random.default_rng(6)
    rows = asked(rng, 60)
    length = FEATURES.index("length")
    for one in rows:
        one.rows[:, length] = 0.0
    for _ in range(40):
        one = replace(drawn(rng, 0), group="secret")
        one.rows[:, NEAR], one.rows[:, COVERAGE] = 0.0, 0.0
        one.rows[:, length] = 8 * one.labels
        rows.append(one)
    learnt, unseen = learn(rows, "some-model")
    guessed = [(one, chances) for one, chances in zip(rows, unseen, strict=True) if one.group == "secret"]
    judged = [(one, probabilities(one.rows, one.question, learnt)) for one, _ in guessed]
    assert _separated(judged) > 0.95
    assert _separated(guessed) == pytest.approx(0.5, abs=0.1)


def _separated(results: Sequence[tuple[Judged, Matrix]]) -> float:
    chances = np.concatenate([each for _, each in results])
    labels = np.concatenate([one.labels for one, _ in results])
    return auroc(chances[labels == 1].tolist(), chances[labels == 0].tolist())


def test_an_unknown_embeddings_coefficients_use_no_absolute_cosine() -> None:
    rows = asked(np.random.default_rng(7), 30)
    used = {
        name: {feature.name for model in (results.candidate, results.question) for feature in model.features}
        for name in ("any", "some-model")
        for results, _ in [learn(rows, name)]
    }
    assert set(FEATURES) <= used["some-model"]
    assert set(FEATURES) - set(ABSOLUTE_FEATURES) <= used["any"] <= {*FEATURES, *QUESTION_FEATURES}
    assert not used["any"] & set(ABSOLUTE_FEATURES)


def test_what_is_written_is_what_is_read_again(tmp_path: Path) -> None:
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
    assert Linear(read["intercept"], tuple(Feature(**each) for each in read["features"])) == model
    assert set(content["figures_held_out"]) == {"drcd", "mtrag"}
    assert content["figures_held_out"]["mtrag"]["questions"] == 2
    assert (
        content["figures_held_out"]["drcd"]["ndcg10"] == 1.0
    )  # what people's small collections do is beside
    assert sum(each["candidates"] for each in content["reliability_held_out"]) == 8
