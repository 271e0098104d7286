"""Candidates are judged: any LlamaIndex postprocessor in, probabilities and key passages out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import httpx
import structlog
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from config.settings import RetrievalSettings
from core.errors import UnavailableError
from core.knowledge import Candidate
from core.query import Query
from services.calibrated_reranker import CalibratedReranker

log = structlog.get_logger(__name__)

# What a reranker of another house raises when its model, its file or its server fails.
RERANKER_ERRORS = (UnavailableError, OSError, RuntimeError, ValueError, TypeError, KeyError, httpx.HTTPError)


class RerankService:
    """`reranker` None keeps the fused order. `embedding_name` chooses the calibrated coefficients."""

    def __init__(
        self,
        reranker: BaseNodePostprocessor | None,
        settings: RetrievalSettings,
        embedding_name: str = "multilingual-e5-small",
    ) -> None:
        self._settings = settings
        self._foreign: BaseNodePostprocessor | None = None
        if isinstance(reranker, CalibratedReranker):
            self._calibrated = reranker
        else:
            self._calibrated, self._foreign = CalibratedReranker(embedding_name), reranker
        self._keeps_order = reranker is None

    async def rerank(self, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Candidates with probability and key passage, best first; never more than came in.

        A reranker that fails is logged, and the fused order stands with the calibrated probabilities.
        """
        limited = list(candidates[: self._settings.reranker_input_top_n])
        if not limited:
            return []
        # a few milliseconds of arithmetic: cheaper here than handed to a thread
        judged = self._calibrated.judge(query, limited)
        if self._keeps_order:
            return judged
        if self._foreign is None:
            return _best_first(judged)
        try:
            return await self._ask(self._foreign, query, judged)
        except RERANKER_ERRORS as error:
            log.warning(
                "reranker_failed",
                reranker=type(self._foreign).__name__,
                error=type(error).__name__,
                candidates=len(judged),
            )
            return judged

    async def _ask(
        self, reranker: BaseNodePostprocessor, query: Query, judged: list[Candidate]
    ) -> list[Candidate]:
        """Each candidate's best probability over the forms, a joined form's by its weight.

        `apostprocess_nodes` of a blocking reranker runs in a thread.
        """
        best: dict[str, float] = {}
        for form in query.forms:
            nodes = [_node(candidate) for candidate in judged]
            scored = await reranker.apostprocess_nodes(nodes, query_bundle=QueryBundle(form.text))
            for chunk_id, chance in _probabilities(scored):
                best[chunk_id] = max(best.get(chunk_id, 0.0), chance * form.weight)
        kept = [candidate for candidate in judged if candidate.chunk.chunk_id in best]
        return _best_first(
            [replace(candidate, probability=best[candidate.chunk.chunk_id]) for candidate in kept]
        )


def probability(score: float) -> float:
    """The sigmoid of a model's raw score, without overflow; a score that is no number counts as 0."""
    if math.isnan(score):
        return 0.0
    if score >= 0:
        return 1.0 / (1.0 + math.exp(-score))
    grown = math.exp(score)
    return grown / (1.0 + grown)


def _probabilities(nodes: Sequence[NodeWithScore]) -> list[tuple[str, float]]:
    """Scores outside 0…1 are raw scores, and then all of them are; no score at all counts as 0."""
    scores = [0.0 if node.score is None or math.isnan(node.score) else float(node.score) for node in nodes]
    raw = any(not 0.0 <= score <= 1.0 for score in scores)
    chances = [probability(score) if raw else score for score in scores]
    return [(node.node.node_id, chance) for node, chance in zip(nodes, chances, strict=True)]


def _best_first(candidates: list[Candidate]) -> list[Candidate]:
    """Equal probabilities keep the fused order."""
    return sorted(candidates, key=lambda candidate: -candidate.probability)


def _node(candidate: Candidate) -> NodeWithScore:
    chunk = candidate.chunk
    node = TextNode(
        id_=chunk.chunk_id,
        text=chunk.indexed_text,
        metadata={
            "file_name": chunk.file_name,
            "heading": chunk.heading,
            "dense": candidate.dense,
            "sparse": candidate.sparse,
            "dense_rank": candidate.dense_rank,
            "sparse_rank": candidate.sparse_rank,
        },
    )
    node.excluded_embed_metadata_keys = node.excluded_llm_metadata_keys = list(node.metadata)
    return NodeWithScore(node=node, score=candidate.fused)
