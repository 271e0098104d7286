"""Retrieval alone: every candidate with its rank and score at each stage, and the stage that dropped it."""

from __future__ import annotations

from dataclasses import dataclass

from api.pipeline import Pipeline
from core.errors import EmptyQuestionError
from core.knowledge import Candidate
from core.relevance import apply_threshold
from core.text import preprocess_question


@dataclass(frozen=True, slots=True)
class Judged:
    """`dropped_by` is None for what would be shown to the model, else `threshold` or `top_n`."""

    candidate: Candidate
    dropped_by: str | None


class SearchHandler:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def search(
        self, question: str, owner: str, top_n: int, document_id: str | None = None
    ) -> list[Judged]:
        """Best first. Raises EmptyQuestionError, StoreUnavailableError, EmbeddingUnavailableError."""
        asked = preprocess_question(question)
        if not asked:
            raise EmptyQuestionError("question: must not be empty.")
        pipeline = self._pipeline
        query = await pipeline.queries.build(asked, [])
        documents = [document_id] if document_id else []
        found = await pipeline.retriever.search(query, pipeline.owners(owner), documents)
        ranked = await pipeline.reranking.rerank(query, found)
        kept = {id(candidate) for candidate in apply_threshold(ranked, pipeline.threshold, top_n)}
        return [Judged(candidate, self._reason(candidate, kept)) for candidate in ranked]

    def _reason(self, candidate: Candidate, kept: set[int]) -> str | None:
        if id(candidate) in kept:
            return None
        return "top_n" if candidate.probability >= self._pipeline.threshold else "threshold"
