"""The queries of reranker tests, and a scripted reranker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from core.knowledge import Candidate
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import encode_query
from services.retrieval.foreign_rerankers import PairReranker, RerankerUnavailableError
from tests.support.guide import chunk_of


class ScriptedPairs(PairReranker):
    """Scores by question; an unknown one gives 0.5 for every text. Records the calls."""

    name = "scripted"

    def __init__(
        self,
        rows: Mapping[str, list[float | None]] | None = None,
        wait_s: float = 0.0,
        fails: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        self._rows = rows or {}
        self.wait_s = wait_s
        self.fails = fails
        self._retry_after_s = retry_after_s
        self.calls: list[list[str]] = []

    async def judge_pairs(self, questions: Sequence[str], texts: Sequence[str]) -> list[list[float | None]]:
        self.calls.append(list(questions))
        await asyncio.sleep(self.wait_s)
        if self.fails:
            raise RerankerUnavailableError("gone", retry_after_s=self._retry_after_s)
        return [self._rows.get(question, [0.5] * len(texts)) for question in questions]


def ask(*texts: str, weight: float = 1.0) -> Query:
    forms = [QueryForm(text, [], encode_query(text), weight if at else 1.0) for at, text in enumerate(texts)]
    return Query(texts[0], tuple(forms))


def candidates(*names: str) -> list[Candidate]:
    """In this fused order; all their cosines are equal, so that the words decide."""
    return [
        Candidate(chunk_of(name), 0.88, 3.0, at + 1, at + 1, 1 / (61 + at)) for at, name in enumerate(names)
    ]
