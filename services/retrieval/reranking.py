"""Candidates are judged: by ours, or by any LlamaIndex postprocessor with ours to take its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog
from llama_index.core.postprocessor.types import BaseNodePostprocessor

from config.settings import RetrievalSettings
from core.knowledge import Candidate
from core.relevance.query import Query
from services.retrieval.calibrated import CalibratedReranker
from services.retrieval.foreign import ForeignReranker, RerankerUnavailableError

log = structlog.get_logger()

CALIBRATED = "calibrated"
NONE = "none"


@dataclass(frozen=True, slots=True)
class Reranked:
    """Candidates with probability and key passage, best first.

    `reranker` is what judged them: `calibrated`, `none` (the fused order stands), `cross-encoder`, `http`, or
    a class's own name. `fell_back`: the configured one could not, so the calibrated one did.
    """

    candidates: tuple[Candidate, ...] = ()
    reranker: str = CALIBRATED
    fell_back: bool = False


class RerankService:
    """`reranker` None keeps the fused order. `embedding_name` chooses the calibrated coefficients."""

    def __init__(
        self,
        reranker: BaseNodePostprocessor | None,
        settings: RetrievalSettings,
        embedding_name: str = "multilingual-e5-small",
    ) -> None:
        self._settings = settings
        self._foreign: ForeignReranker | None = None
        if isinstance(reranker, CalibratedReranker):
            self._calibrated = reranker
        else:
            self._calibrated = CalibratedReranker(embedding_name)
            self._foreign = ForeignReranker(reranker, settings.rerank_timeout_s) if reranker else None
        self._keeps_order = reranker is None

    async def rerank(self, query: Query, candidates: Sequence[Candidate]) -> Reranked:
        """Never more than came in. Raises nothing: a reranker that fails is logged, `fell_back` says so."""
        limited = list(candidates[: self._settings.reranker_input_top_n])
        # a few milliseconds of arithmetic: cheaper here than handed to a thread
        judged = self._calibrated.judge(query, limited)
        if self._keeps_order:
            return Reranked(tuple(judged), NONE)
        if self._foreign is None or not limited:
            return _best_first(judged, self._foreign.name if self._foreign else CALIBRATED)
        try:
            chances = await self._foreign.judge(query, judged)
        except RerankerUnavailableError as error:
            name, reason = self._foreign.name, str(error)
            log.warning("reranker_failed", reranker=name, reason=reason, candidates=len(judged))
            return replace(_best_first(judged, CALIBRATED), fell_back=True)
        return _best_first(_with(judged, chances), self._foreign.name)


def _with(judged: Sequence[Candidate], chances: Sequence[float | None]) -> list[Candidate]:
    """Those that the reranker kept, with its probabilities."""
    return [
        replace(candidate, probability=chance)
        for candidate, chance in zip(judged, chances, strict=True)
        if chance is not None
    ]


def _best_first(candidates: Sequence[Candidate], reranker: str) -> Reranked:
    """Equal probabilities keep the fused order."""
    return Reranked(tuple(sorted(candidates, key=lambda candidate: -candidate.probability)), reranker)
