"""Candidates for a question: the dense and the sparse list of every form in one round trip, then fused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from qdrant_client import models

from config.settings import RetrievalSettings
from core.fusion import reciprocal_rank_fusion
from core.knowledge import Candidate
from core.query import Query, QueryForm
from services.knowledge.chunk_payload import ChunkPayload
from services.store import VectorStore

DENSE = "dense"
SPARSE = "sparse"


@dataclass(frozen=True, slots=True)
class _Ranking:
    """One list as the store returned it, best first, and how far it is trusted."""

    kind: str
    weight: float
    points: list[models.ScoredPoint]


@dataclass(slots=True)
class _Found:
    """What all lists together say of one chunk: its best score and rank of each kind."""

    point: models.ScoredPoint
    scores: dict[str, float] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    cosine: float | None = None

    def note(self, kind: str, score: float, rank: int) -> None:
        self.scores[kind] = max(self.scores.get(kind, -math.inf), score)
        self.ranks[kind] = min(self.ranks.get(kind, rank), rank)


class Retriever:
    def __init__(self, store: VectorStore, collection: str, settings: RetrievalSettings) -> None:
        self._store = store
        self._collection = collection
        self._settings = settings

    async def search(
        self, query: Query, owners: Sequence[str], document_ids: Sequence[str] = ()
    ) -> list[Candidate]:
        """Fused candidates, best first, at most RERANKER_INPUT_TOP_N; only of `owners`' ready documents.

        No owners find nothing; no `document_ids` means all documents. Raises StoreUnavailableError.
        """
        if not owners:
            return []
        wanted = _searchable(owners, document_ids)
        requests, kinds = self._requests(query, wanted)
        responses = await self._store.query_batch_points(self._collection, requests)
        rankings = [
            _Ranking(kind, weight, response.points)
            for (kind, weight), response in zip(kinds, responses, strict=True)
        ]
        return self._fuse(query, rankings)

    def _requests(
        self, query: Query, wanted: models.Filter
    ) -> tuple[list[models.QueryRequest], list[tuple[str, float]]]:
        requests, kinds = [], []
        for form in query.forms:
            for kind, trust in ((DENSE, self._settings.dense_weight), (SPARSE, self._settings.sparse_weight)):
                if kind == SPARSE and not form.sparse.indices:
                    continue
                requests.append(self._request(query, form, kind, wanted))
                kinds.append((kind, form.weight * trust))
        return requests, kinds

    def _request(
        self, query: Query, form: QueryForm, kind: str, wanted: models.Filter
    ) -> models.QueryRequest:
        sparse = models.SparseVector(indices=form.sparse.indices, values=form.sparse.values)
        return models.QueryRequest(
            query=form.dense if kind == DENSE else sparse,
            using=kind,
            filter=wanted,
            limit=self._settings.reranker_input_top_n,
            with_payload=True,
            # the score of one list says nothing of the other forms, nor of what words alone have found
            with_vector=[DENSE] if kind == SPARSE or len(query.forms) > 1 else False,
        )

    def _fuse(self, query: Query, rankings: list[_Ranking]) -> list[Candidate]:
        found: dict[str, _Found] = {}
        for ranking in rankings:
            for rank, point in enumerate(ranking.points, start=1):
                entry = found.setdefault(str(point.id), _Found(point))
                entry.note(ranking.kind, point.score, rank)
                if entry.cosine is None:
                    _note_cosine(entry, point, query)
        fused = reciprocal_rank_fusion(
            [[str(point.id) for point in ranking.points] for ranking in rankings],
            [ranking.weight for ranking in rankings],
            self._settings.rrf_k,
        )
        return [_candidate(found[key], score) for key, score in fused[: self._settings.reranker_input_top_n]]


def _searchable(owners: Sequence[str], document_ids: Sequence[str]) -> models.Filter:
    must: list[models.Condition] = [
        models.FieldCondition(key="ready", match=models.MatchValue(value=True)),
        models.FieldCondition(key="owner", match=models.MatchAny(any=list(owners))),
    ]
    if document_ids:
        must.append(models.FieldCondition(key="document_id", match=models.MatchAny(any=list(document_ids))))
    return models.Filter(must=must)


def _note_cosine(entry: _Found, point: models.ScoredPoint, query: Query) -> None:
    """The chunk's cosine to all forms, by their weights, from the vector it came with (unit length).

    A chunk that is near only to what was asked before must not look as near as one that answers now.
    """
    vector = point.vector.get(DENSE) if isinstance(point.vector, dict) else None
    if vector is None:
        return
    cosines = np.asarray([form.dense for form in query.forms]) @ np.asarray(vector, dtype=float)
    entry.cosine = float(np.average(cosines, weights=[form.weight for form in query.forms]))


def _candidate(found: _Found, fused: float) -> Candidate:
    return Candidate(
        chunk=ChunkPayload.model_validate(found.point.payload or {}).to_chunk(),
        dense=found.scores.get(DENSE) if found.cosine is None else found.cosine,
        sparse=found.scores.get(SPARSE),
        dense_rank=found.ranks.get(DENSE),
        sparse_rank=found.ranks.get(SPARSE),
        fused=fused,
    )
