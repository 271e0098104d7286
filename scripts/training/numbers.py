"""Measures of a ranking, of a decision and of a probability."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.relevance.features import Matrix


def ndcg(labels: Matrix, gold: int, top_n: int = 10) -> float:
    discounts = 1 / np.log2(np.arange(2, top_n + 2))
    gained = float(labels[:top_n] @ discounts[: min(top_n, len(labels))])
    return gained / float(discounts[: min(gold, top_n)].sum())


def auroc(positive: Sequence[float], negative: Sequence[float]) -> float:
    better, worse = np.array(positive)[:, None], np.array(negative)[None, :]
    return float((better > worse).mean() + 0.5 * (better == worse).mean())


def calibration_error(chances: Matrix, labels: Matrix, bins: int = 10) -> float:
    """Expected calibration error over equal-width bins."""
    at = np.minimum((chances * bins).astype(int), bins - 1)
    gaps = [abs(chances[at == b].sum() - labels[at == b].sum()) for b in range(bins)]
    return float(sum(gaps) / len(chances))
