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


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A question with what bears on it: earlier questions of its conversation (oldest first), the answer
    to the last of them, and the date it asks about (ISO 8601: a day, a month or a year) if that is known."""

    question: str
    owner: str
    top_n: int = 10
    document_id: str | None = None
    previous_questions: tuple[str, ...] = ()
    last_answer: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class SearchReport:
    """All candidates of a search, best first."""

    candidates: tuple[Judged, ...]


class SearchHandler:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def search(self, request: SearchRequest) -> SearchReport:
        """Raises EmptyQuestionError, StoreUnavailableError, EmbeddingUnavailableError."""
        asked = preprocess_question(request.question)
        if not asked:
            raise EmptyQuestionError("question: must not be empty.")
        pipeline = self._pipeline
        query = await pipeline.queries.build(
            asked, request.previous_questions, last_answer=request.last_answer, date=request.date
        )
        documents = [request.document_id] if request.document_id else []
        found = await pipeline.retriever.search(query, pipeline.owners(request.owner), documents)
        ranked = await pipeline.reranking.rerank(query, found)
        kept = {id(candidate) for candidate in apply_threshold(ranked, pipeline.threshold, request.top_n)}
        return SearchReport(tuple(Judged(one, self._reason(one, kept)) for one in ranked))

    def _reason(self, candidate: Candidate, kept: set[int]) -> str | None:
        if id(candidate) in kept:
            return None
        return "top_n" if candidate.probability >= self._pipeline.threshold else "threshold"
