"""Candidates for a question: the dense and the sparse list of every form in one round trip, then fused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from qdrant_client import models

from config.settings import RetrievalSettings
from core.fusion import reciprocal_rank_fusion
from core.knowledge import Candidate, FormMatch
from core.query import Query, QueryForm
from services.knowledge.chunk_payload import ChunkPayload
from services.store import VectorStore

DENSE = "dense"
SPARSE = "sparse"
LIST_DEPTH = 1.5  # of what goes on: a chunk that several lists have further down can pass those of one list


@dataclass(frozen=True, slots=True)
class _Ranking:
    """One list as the store returned it, best first: for which form of the question, and how far trusted."""

    form: int
    kind: str
    weight: float
    points: list[models.ScoredPoint]


@dataclass(slots=True)
class _Found:
    """What all lists together say of one chunk, form by form."""

    point: models.ScoredPoint
    matches: list[FormMatch]
    has_vector: bool = False

    def note(self, ranking: _Ranking, score: float, rank: int) -> None:
        match = self.matches[ranking.form]
        self.matches[ranking.form] = (
            replace(match, dense=score, dense_rank=rank)
            if ranking.kind == DENSE
            else replace(match, sparse=score, sparse_rank=rank)
        )


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
            _Ranking(*lists, response.points) for lists, response in zip(kinds, responses, strict=True)
        ]
        return self._fuse(query, rankings)

    def _requests(
        self, query: Query, wanted: models.Filter
    ) -> tuple[list[models.QueryRequest], list[tuple[int, str, float]]]:
        requests, kinds = [], []
        trusts = ((DENSE, self._settings.dense_weight), (SPARSE, self._settings.sparse_weight))
        for number, form in enumerate(query.forms):
            for kind, trust in trusts:
                if kind == SPARSE and not form.sparse.indices:
                    continue
                requests.append(self._request(query, form, kind, wanted))
                kinds.append((number, kind, form.weight * trust))
        return requests, kinds

    def _request(
        self, query: Query, form: QueryForm, kind: str, wanted: models.Filter
    ) -> models.QueryRequest:
        sparse = models.SparseVector(indices=form.sparse.indices, values=form.sparse.values)
        return models.QueryRequest(
            query=form.dense if kind == DENSE else sparse,
            using=kind,
            filter=wanted,
            limit=math.ceil(self._settings.reranker_input_top_n * LIST_DEPTH),
            with_payload=True,
            # the score of one list says nothing of the other forms, nor of what words alone have found
            with_vector=[DENSE] if kind == SPARSE or len(query.forms) > 1 else False,
        )

    def _fuse(self, query: Query, rankings: list[_Ranking]) -> list[Candidate]:
        found: dict[str, _Found] = {}
        unseen = [FormMatch()] * len(query.forms)
        for ranking in rankings:
            for rank, point in enumerate(ranking.points, start=1):
                if not _says_anything(point):
                    continue
                entry = found.setdefault(str(point.id), _Found(point, list(unseen)))
                entry.note(ranking, point.score, rank)
                if not entry.has_vector:
                    _note_cosines(entry, point, query)
        fused = reciprocal_rank_fusion(
            [[str(point.id) for point in ranking.points if str(point.id) in found] for ranking in rankings],
            [ranking.weight for ranking in rankings],
            self._settings.rrf_k,
        )
        return [_candidate(found[key], score) for key, score in fused[: self._settings.reranker_input_top_n]]


def _says_anything(point: models.ScoredPoint) -> bool:
    """!!! ??? is near to any question that is near to nothing."""
    return any(map(str.isalnum, str((point.payload or {}).get("text", ""))))


def _searchable(owners: Sequence[str], document_ids: Sequence[str]) -> models.Filter:
    must: list[models.Condition] = [
        models.FieldCondition(key="ready", match=models.MatchValue(value=True)),
        models.FieldCondition(key="owner", match=models.MatchAny(any=list(owners))),
    ]
    if document_ids:
        must.append(models.FieldCondition(key="document_id", match=models.MatchAny(any=list(document_ids))))
    return models.Filter(must=must)


def _note_cosines(entry: _Found, point: models.ScoredPoint, query: Query) -> None:
    """The chunk's cosine to every form, from the vector it came with (unit length).

    A list tells only of its own form, and the list by words of none.
    """
    vector = point.vector.get(DENSE) if isinstance(point.vector, dict) else None
    if vector is None:
        return
    entry.has_vector = True
    cosines = np.asarray([form.dense for form in query.forms]) @ np.asarray(vector, dtype=float)
    entry.matches = [
        replace(match, dense=float(cosine)) for match, cosine in zip(entry.matches, cosines, strict=True)
    ]


def _candidate(found: _Found, fused: float) -> Candidate:
    """`dense` is the question's as it was asked; of the rest the best of all forms."""
    dense_ranks = [match.dense_rank for match in found.matches if match.dense_rank]
    by_words = [match for match in found.matches if match.sparse_rank]
    return Candidate(
        chunk=ChunkPayload.model_validate(found.point.payload or {}).to_chunk(),
        dense=found.matches[0].dense,
        sparse=max((match.sparse for match in by_words), default=None),
        dense_rank=min(dense_ranks, default=None),
        sparse_rank=min((match.sparse_rank for match in by_words if match.sparse_rank), default=None),
        fused=fused,
        matches=tuple(found.matches),
    )
