"""The same retrieval with an exact search by meaning, and how much of it the store finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from qdrant_client import models

from benchmarks.store.scale_data import Corpus
from core.relevance.query import Query
from services.adapters.edge.client import EdgeClient
from services.adapters.edge.convert import Found, FoundPoint, point_id
from services.retrieval.retriever import DENSE, Retriever


class ExactStore:
    """Answers as the store does, but lists by meaning come from the vectors as they were made (float32)."""

    def __init__(self, client: EdgeClient, corpus: Corpus) -> None:
        self._client = client
        self._corpus = corpus
        self._owners = np.asarray([corpus.owner_of(number) for number in range(corpus.size)])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def query_batch_points(
        self, collection_name: str, requests: Sequence[models.QueryRequest]
    ) -> list[Found]:
        responses = await self._client.query_batch_points(collection_name, requests)
        return [
            await self._exact(collection_name, request) if request.using == DENSE else response
            for request, response in zip(requests, responses, strict=True)
        ]

    async def _exact(self, collection_name: str, request: models.QueryRequest) -> Found:
        allowed = np.isin(self._owners, _owners_asked(request.filter))
        cosines = np.where(allowed, self._corpus.matrix @ np.asarray(request.query, dtype=np.float32), -1)
        best = np.argsort(-cosines)[: request.limit]
        ids = [self._corpus.chunk_id(int(number)) for number in best]
        records = await self._client.retrieve(collection_name, ids, True, [DENSE])
        return Found(
            [
                FoundPoint(point_id(record.id), score, record.payload, record.vector)
                for record, score in zip(records, cosines[best].tolist(), strict=True)
            ]
        )


def _owners_asked(condition: object) -> list[str]:
    assert isinstance(condition, models.Filter)
    for each in condition.must if isinstance(condition.must, list) else []:
        if isinstance(each, models.FieldCondition) and isinstance(each.match, models.MatchAny):
            return [str(value) for value in each.match.any]
    raise ValueError("the question names no owners")


async def recall(ours: Retriever, reference: Retriever, asked: list[Query], owners: list[str]) -> float:
    """The share of the reference's candidates that ours has too, 0…1, averaged over the questions."""
    shares = []
    for query in asked:
        expected = {each.chunk.chunk_id for each in await reference.search(query, owners)}
        results = {each.chunk.chunk_id for each in await ours.search(query, owners)}
        shares.append(len(results & expected) / max(1, len(expected)))
    return float(np.mean(shares))
