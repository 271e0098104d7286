"""The figures a relevance model is judged by, on questions it was not fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.relevance.features import Matrix
from scripts.training.judged import Judged
from scripts.training.numbers import auroc, calibration_error, ndcg

BINS = 10


@dataclass(frozen=True, slots=True)
class Bin:
    """Of the candidates with a probability from `at` on: what was promised, what was right, and how many."""

    at: float
    promised: float
    right: float
    candidates: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one set. Refusal looks at the best candidate's probability; it is None without such questions."""

    questions: int
    ndcg10_fused: float
    ndcg10: float
    calibration_error: float
    refusal_auroc: float | None
    balanced_accuracy: float | None
    answerable_kept: float | None
    strange_refused: float | None


def figures(judged: Sequence[Judged], chances: Sequence[Matrix], threshold: float) -> Figures:
    """Questions whose answers were left out count as unanswerable only where the set has no others."""
    best = np.array([chance.max() for chance in chances])
    kinds = np.array([one.kind for one in judged])
    refused = kinds == ("unanswerable" if (kinds == "unanswerable").any() else "absent")
    asked = kinds == "answerable"
    ranked = [(one, chance) for one, chance in zip(judged, chances, strict=True) if one.kind == "answerable"]
    every, labels = np.concatenate(chances), np.concatenate([one.labels for one in judged])
    both = bool(refused.any() and asked.any())
    accepted = float((best[asked] >= threshold).mean()) if asked.any() else 0.0
    strange = kinds == "strange"
    return Figures(
        questions=len(judged),
        ndcg10_fused=_rounded(np.mean([_ndcg(one, np.zeros(len(chance))) for one, chance in ranked])),
        ndcg10=_rounded(np.mean([_ndcg(one, chance) for one, chance in ranked])),
        calibration_error=_rounded(calibration_error(every, labels)),
        refusal_auroc=_rounded(auroc(best[asked].tolist(), best[refused].tolist())) if both else None,
        balanced_accuracy=_rounded((accepted + (best[refused] < threshold).mean()) / 2) if both else None,
        answerable_kept=_rounded(accepted) if asked.any() else None,
        strange_refused=_rounded((best[strange] < threshold).mean()) if strange.any() else None,
    )


def _ndcg(one: Judged, chances: Matrix) -> float:
    """Of documents, each where its first chunk stands; equal chances keep the fused order."""
    right = {one.documents[at]: one.labels[at] for at in np.argsort(-chances, kind="stable")}
    return ndcg(np.array(list(right.values())), one.gold)


def _rounded(value: float | np.floating[Any]) -> float:
    return round(float(value), 3)


def reliability(judged: Sequence[Judged], chances: Sequence[Matrix]) -> list[Bin]:
    """The reliability diagram, as numbers."""
    every, labels = np.concatenate(chances), np.concatenate([one.labels for one in judged])
    at = np.minimum((every * BINS).astype(int), BINS - 1)
    return [
        Bin(
            b / BINS,
            round(float(every[at == b].mean()), 3),
            round(float(labels[at == b].mean()), 3),
            int((at == b).sum()),
        )
        for b in range(BINS)
        if (at == b).any()
    ]
