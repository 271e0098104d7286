"""Weighted reciprocal rank fusion."""

from __future__ import annotations

import math
from collections.abc import Sequence


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[str]], weights: Sequence[float] | None = None, k: int = 60
) -> list[tuple[str, float]]:
    """Merge rankings of chunk ids (best first); each adds weight / (k + rank), ranks from 1.

    No weights means 1 for every ranking; a ranking of weight 0 adds nothing, not even its ids.
    Returns (chunk id, score), best first; ties keep first-seen order. No rankings give [].
    An id twice in one ranking counts where it stands first. Raises ValueError if k < 1, a weight is
    negative, or there are not as many weights as rankings.
    Source: Cormack, Clarke, Buettcher, SIGIR 2009 (their k = 60).
    """
    trusted = [1.0] * len(rankings) if weights is None else list(weights)
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    if len(trusted) != len(rankings) or any(not weight >= 0 for weight in trusted):
        raise ValueError("each ranking needs one weight of at least 0")
    shares: dict[str, list[float]] = {}
    for ranking, weight in zip(rankings, trusted, strict=True):
        if weight > 0:
            for rank, chunk_id in enumerate(dict.fromkeys(ranking), start=1):
                shares.setdefault(chunk_id, []).append(weight / (k + rank))
    # the exact sum: rounding in the order of the lists would part what is tied
    scores = [(chunk_id, math.fsum(added)) for chunk_id, added in shares.items()]
    return sorted(scores, key=lambda scored: -scored[1])
