"""The question in the forms it is searched with: as asked, and joined with what was asked before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date

from core.dates import dates_in
from core.relevance.query import Query, QueryForm, embedded_part, joined_wordings
from core.relevance.sparse import encode_query
from services.models.embedding import EmbeddingService

MAX_PREVIOUS = 5


class QueryBuilder:
    """Makes a Query without any model call but the embedding, which happens once for all forms."""

    def __init__(self, embedding: EmbeddingService, today: Callable[[], date] = date.today) -> None:
        self._embedding = embedding
        self._today = today

    async def build(
        self,
        question: str,
        previous_questions: Sequence[str],
        *,
        last_answer: str = "",
        date: str = "",
    ) -> Query:
        """`previous_questions` oldest first; at most the last five are used.

        `date` is the day, month or year (ISO 8601) the question asks about, where the caller knows it.
        Raises EmbeddingUnavailableError.
        """
        before = [text.strip() for text in previous_questions if text.strip()][-MAX_PREVIOUS:]
        wordings = [
            (" ".join([*self._years(text, date), text]), weight)
            for text, weight in [(question, 1.0), *joined_wordings(question, before)]
        ]
        vectors = await self._embedding.embed_queries([embedded_part(text) for text, _ in wordings])
        forms = tuple(
            QueryForm(text, vector, encode_query(text), weight)
            for (text, weight), vector in zip(wordings, vectors, strict=True)
        )
        return Query(question, forms, tuple(before), last_answer)

    def _years(self, question: str, year: str) -> list[str]:
        """The year or month it asks about, as documents have it, unless it says so itself (去年 does not)."""
        named = [year]
        if not year:  # a day (明天) is rarely what a document is about
            named = [each for each in dates_in(question, self._today()) if len(each) <= len("2026-01")]
        return [each for each in named if each[:4] not in question]
