"""Learning to recognize small talk, from texts whose vectors show it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from core.relevance.talk import FEATURES, Talk
from scripts.training.talk import DOCUMENTS, Examples, figures, fit_kinds, fit_talk, phrases, write

NAMES = [DOCUMENTS, *Talk]
DIMENSION = len(NAMES)
BY_PHRASE = {Talk.TODAY, Talk.PRIVATE, Talk.INTRODUCTION}  # recognized by rules alone


def drawn(number: int) -> Examples:
    """`number` texts of each kind, around a vector per kind; the first questions are a set's."""
    rng = np.random.default_rng(3)
    kinds = np.array([kind for kind in NAMES for _ in range(number)])
    places = np.eye(DIMENSION)[[NAMES.index(kind) for kind in kinds]]
    vectors = 0.1 * places + rng.normal(0, 0.01, (len(kinds), DIMENSION))
    texts = [f"{kind} {at}" for at, kind in enumerate(kinds)]
    return Examples(
        texts, kinds, np.arange(len(kinds)) >= number // 2, vectors, np.zeros((len(kinds), len(FEATURES)))
    )


def test_small_talk_and_its_kinds_are_learnt() -> None:
    """Discriminates: a sign, a mean or a scale lost on the way to weights of the raw features."""
    examples = drawn(40)
    rows = np.hstack([examples.vectors, examples.features])
    scores = fit_talk(examples).of(rows)
    is_talk = examples.kinds != DOCUMENTS
    assert scores[is_talk].min() > scores[~is_talk].max()
    lines = fit_kinds(examples)
    best = np.column_stack([line.of(examples.vectors) for line in lines.values()]).argmax(axis=1)
    assert (np.array([*lines])[best] == examples.kinds)[is_talk].mean() > 0.98


def test_a_kind_without_examples_is_not_learnt() -> None:
    """Discriminates: weights from a share of zero, which are not numbers."""
    examples = drawn(20)
    lines = fit_kinds(examples.only(~np.isin(examples.kinds, list(BY_PHRASE))))
    assert set(lines) == set(Talk) - BY_PHRASE


def test_metrics_use_texts_that_were_not_learnt_from() -> None:
    held = figures(drawn(40))
    assert held["talk_known"] > 0.9
    assert held["own_questions_taken"] < 0.1


def test_a_written_model_can_be_read_back(tmp_path: Path) -> None:
    """Discriminates: a kind whose integers lose what separates it from the others."""
    examples = drawn(20)
    write(tmp_path / "talk-x.json", "x", fit_talk(examples), fit_kinds(examples), {})
    content = json.loads((tmp_path / "talk-x.json").read_text(encoding="utf-8"))
    assert set(content["kinds"]) == set(Talk)
    assert all(max(map(abs, kind["vector"])) <= 99 for kind in content["kinds"].values())


def test_the_phrases_are_of_known_kinds_without_duplicates() -> None:
    written = list(phrases())
    assert {kind for _, kind in written} == set(NAMES) - BY_PHRASE
    texts = [text for text, _ in written]
    repeated = {text for text in texts if texts.count(text) > 1}
    assert repeated == set()
