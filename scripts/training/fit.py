"""Fitting: weighted logistic regression by Newton's method, with a small ridge on standardised features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from core.relevance.features import FEATURES, NO_LEVELS, QUESTION_FEATURES, Levels, Matrix
from core.relevance.probability import (
    SCORED,
    TOPPED,
    Coefficients,
    Feature,
    Linear,
    Together,
    TokenCoefficients,
    scored,
    topped,
)
from scripts.training.judged import Judged

RIDGE = 10.0
NEWTON_STEPS = 60
CONVERGED = 1e-6
MAX_STEP = 2.0  # of any coefficient: further away, the local curvature no longer holds
# No set counts for more than this many questions.
MAX_PART_QUESTIONS = 250
# Not all answering passages are labelled, and a wrong refusal is worse than one passage too many.
RIGHT_WEIGHT = 1.25
KIND_WEIGHT = {"answerable": 1.0, "unanswerable": 3.0, "absent": 0.5, "strange": 1.0}
# Conversations and people's own folders are what users will ask about, but they are few; the reading
# comprehension sets are large and easy.
CONVERSATIONS = ("mtrag", "mtragun")
FOLDER_WEIGHT = 3.0
OTHER_WEIGHT = 0.15
FOREIGN = ("foreign", "foreign_top_lead")
# Weight of the best candidate's lead over its neighbours in deciding whether there is an answer.
BEST_SHARE = 0.25
TOP_SHARE = 1 / 7  # weight of the nearest candidate's tokens in that decision: the same as the other six


def fit(
    judged: Sequence[Judged],
    names: Sequence[str],
    question_names: Sequence[str],
    embedding: str,
    levels: Levels = NO_LEVELS,
) -> Coefficients:
    """Fit how candidates compare, whether there is an answer at all, and then both together."""
    candidate = _fit_candidate(judged, names)
    question = _fit_question(judged, question_names)
    together = _fit_together(judged, [scores(one, candidate, question) for one in judged])
    return Coefficients(embedding, candidate, question, together, levels)


def fit_tokens(
    judged: Sequence[Judged], learnt: Coefficients, levels: Levels = NO_LEVELS
) -> TokenCoefficients:
    """Fit what tokens add to the coefficients learnt without them, on questions whose tokens are known."""
    known = [one for one in judged if one.tokens is not None]
    plain = {id(one): scores(one, learnt.candidate, learnt.question) for one in known}
    stacked = {id(one): scored(plain[id(one)][0], one.known_tokens) for one in known}
    candidate = _fit_rows(known, [stacked[id(one)] for one in known], SCORED)
    tops = np.array([one.known_tokens[:, 0].max() for one in known if one.part in CONVERSATIONS] or [0.0])
    question = Linear(
        0.0,
        (
            _feature(TOPPED[0], 1 - TOP_SHARE, 0.0, 1.0),
            _feature(TOPPED[1], TOP_SHARE, tops.mean(), max(tops.std(), 1e-4)),
        ),
    )
    both = []
    for one in known:
        whole = topped(np.array([plain[id(one)][1]]), one.known_tokens)
        both.append((candidate.of(stacked[id(one)], SCORED), float(question.of(whole, TOPPED)[0])))
    return TokenCoefficients(levels, candidate, question, _fit_together(known, both))


def scores(one: Judged, candidate: Linear, question: Linear) -> tuple[Matrix, float]:
    return candidate.of(one.rows, FEATURES), float(question.of(one.question[None, :], QUESTION_FEATURES)[0])


def _fit_candidate(judged: Sequence[Judged], names: Sequence[str]) -> Linear:
    """Fit what separates an answer from its neighbours, on questions whose answer was retrieved."""
    columns = [FEATURES.index(name) for name in names]
    return _fit_rows(judged, [one.rows[:, columns] for one in judged], names)


def _fit_rows(judged: Sequence[Judged], every: Sequence[Matrix], names: Sequence[str]) -> Linear:
    """Fit on every question's rows, which are its candidates."""
    answered = [one for one in judged if one.is_right]
    rows = np.vstack([own for one, own in zip(judged, every, strict=True) if one.is_right])
    labels = np.concatenate([one.labels for one in answered])
    share = _shares(answered)
    weights = np.concatenate(
        [share[at] * np.where(one.labels > 0, RIGHT_WEIGHT, 1.0) for at, one in enumerate(answered)]
    )
    return _logistic(rows, labels, weights, names)


def _fit_question(judged: Sequence[Judged], names: Sequence[str]) -> Linear:
    """Weigh features equally, scaled by their spread among conversations: few refusals cannot teach better
    weights that generalise to other collections (Dawes 1979). Foreign-language texts are compensated for."""
    known = [one.question for one in judged if one.part in CONVERSATIONS]
    rows = np.vstack(known or [one.question for one in judged])
    mean, scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-4)
    used = [QUESTION_FEATURES.index(name) for name in names if name not in FOREIGN]
    same = [_feature(QUESTION_FEATURES[at], 1 / len(used), mean[at], scale[at]) for at in used]
    return Linear(0.0, (*same, *_fit_foreign(judged, Linear(0.0, tuple(same)), names)))


def _fit_foreign(judged: Sequence[Judged], plain: Linear, names: Sequence[str]) -> list[Feature]:
    """Fit the correction that makes the score of a question whose nearest texts are in another language
    comparable, from what separates answerable from strange questions there and in the same language."""
    labelled = [one for one in judged if one.kind == "strange" or one.is_right]
    rows = np.vstack([one.question for one in labelled])
    score = plain.of(rows, QUESTION_FEATURES)
    labels = np.array([float(one.kind == "answerable") for one in labelled])
    foreign = rows[:, QUESTION_FEATURES.index("foreign")] > 1 / 2
    used = [name for name in FOREIGN if name in names]
    columns = rows[:, [QUESTION_FEATURES.index(name) for name in used]]
    if any(len(set(labels[side])) < 2 for side in (foreign, ~foreign)):
        return []
    constant = np.ones((len(labelled), 1))
    at_home, slope = _balanced_logistic(np.column_stack([constant, score])[~foreign], labels[~foreign])
    offset = (at_home + slope * score)[foreign]
    learnt = _balanced_logistic(columns[foreign], labels[foreign], offset)
    return [_feature(name, c / slope, 0.0, 1.0) for name, c in zip(used, learnt, strict=True)]


def _balanced_logistic(design: Matrix, labels: Matrix, offset: Matrix | float = 0.0) -> Matrix:
    """Logistic regression with both classes weighted equally."""
    weights = np.where(labels > 0, 1 / labels.mean(), 1 / (1 - labels.mean()))
    return newton(design, labels, weights, np.full(design.shape[1], 0.01), offset)


def _feature(name: str, coefficient: float, mean: float, scale: float) -> Feature:
    return Feature(name, *(round(float(number), 5) for number in (coefficient, mean, scale)))


def _fit_together(judged: Sequence[Judged], both: Sequence[tuple[Matrix, float]]) -> Together:
    """`both` has each question's candidate scores and its own score."""
    rows = [
        np.column_stack([own - own.max(), np.full(len(own), whole + BEST_SHARE * own.max())])
        for own, whole in both
    ]
    weights = [
        np.where(one.labels > 0, RIGHT_WEIGHT, 1.0) * share * KIND_WEIGHT[one.kind]
        for share, one in zip(_shares(judged), judged, strict=True)
    ]
    design = np.column_stack([np.ones(sum(map(len, rows))), np.vstack(rows)])
    labels = np.concatenate([one.labels for one in judged])
    intercept, behind, height = newton(design, labels, np.concatenate(weights), np.zeros(3))
    numbers = (intercept, behind, BEST_SHARE * height, height)
    return Together(*(round(float(value), 5) for value in numbers))


def _shares(judged: Sequence[Judged]) -> Matrix:
    """Return each question's weight, so that no part counts for more than its share."""
    counts = Counter(one.part for one in judged)
    return np.array([min(1.0, MAX_PART_QUESTIONS / counts[one.part]) * _weight(one) for one in judged])


def _weight(one: Judged) -> float:
    if one.is_of_folder:
        return FOLDER_WEIGHT
    return 1.0 if one.part in CONVERSATIONS else OTHER_WEIGHT


def _logistic(rows: Matrix, labels: Matrix, weights: Matrix, names: Sequence[str]) -> Linear:
    mean, scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-4)
    design = np.column_stack([np.ones(len(rows)), (rows - mean) / scale])
    learnt = newton(design, labels, weights, np.array([0.0] + [RIDGE] * len(names)))
    features = tuple(map(_feature, names, learnt[1:], mean, scale))
    return Linear(round(float(learnt[0]), 5), features)


def newton(
    design: Matrix, labels: Matrix, weights: Matrix, penalty: Matrix, offset: Matrix | float = 0.0
) -> Matrix:
    learnt = np.zeros(design.shape[1])
    for _ in range(NEWTON_STEPS):
        chances = 1 / (1 + np.exp(-np.clip(design @ learnt + offset, -30, 30)))
        slope = design.T @ (weights * (chances - labels)) + penalty * learnt
        curve = (design * (weights * chances * (1 - chances))[:, None]).T @ design + np.diag(penalty + 1e-9)
        step = np.linalg.solve(curve, slope)
        longest = float(np.abs(step).max())
        learnt -= step * min(1.0, MAX_STEP / max(longest, 1e-9))
        if longest < CONVERGED:
            break
    return learnt
