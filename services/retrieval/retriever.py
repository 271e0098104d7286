"""Candidates for a question: the dense and the sparse list of every form in one round trip, then fused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from config.settings import RetrievalSettings
from core.knowledge import NO_LIMITS, Candidate, FormMatch, KnowledgeFilter
from core.relevance.query import Query, QueryForm, reciprocal_rank_fusion
from services.knowledge.chunks import ChunkPayload
from services.retrieval.searchable import searchable
from services.store.dialect import Filter, QueryRequest, ScoredPoint, SparseVector, VectorStore

DENSE = "dense"
SPARSE = "sparse"
LIST_DEPTH = 1.5  # of what goes on: a chunk that several lists have further down can pass those of one list
DEEPER = 8  # times as far down the lists, once, where copies of the same texts have taken the places


@dataclass(frozen=True, slots=True)
class _Ranking:
    """One list as the store returned it, best first: for which form of the question, and how far trusted."""

    form: int
    kind: str
    weight: float
    points: list[ScoredPoint]


@dataclass(slots=True)
class _Entry:
    """What all lists together say of one chunk, form by form."""

    point: ScoredPoint
    matches: list[FormMatch]
    has_vector: bool = False

    def note(self, ranking: _Ranking, score: float, rank: int) -> None:
        match = self.matches[ranking.form]
        self.matches[ranking.form] = (
            replace(match, dense=score, dense_rank=rank)
            if ranking.kind == DENSE
            else replace(match, sparse=score, sparse_rank=rank)
        )


@dataclass(frozen=True, slots=True)
class _Look:
    """`crowded`: copies took places that others, further down the lists, could have had."""

    candidates: list[Candidate]
    crowded: bool


@dataclass(frozen=True, slots=True)
class Fusion:
    """How the lists are fused: weight / (k + rank) for each. On these the calibrated reranker was fitted."""

    k: int = 10
    dense_weight: float = 1.0
    sparse_weight: float = 1.0


FUSION = Fusion()


class Retriever:
    def __init__(
        self, store: VectorStore, collection: str, settings: RetrievalSettings, fusion: Fusion = FUSION
    ) -> None:
        self._store = store
        self._collection = collection
        self._settings = settings
        self._fusion = fusion

    async def search(
        self, query: Query, owners: Sequence[str], limits: KnowledgeFilter = NO_LIMITS
    ) -> list[Candidate]:
        """Fused candidates, best first, at most RERANKER_INPUT_TOP_N; only of `owners`' ready documents.

        Of chunks that say the same, as copies of a file do, the best is taken. No owners find nothing.
        Raises StoreUnavailableError.
        """
        if not owners:
            return []
        point_filter = searchable(owners, limits)
        depth = math.ceil(self._settings.reranker_input_top_n * LIST_DEPTH)
        look = await self._look(query, point_filter, depth)
        if look.crowded:
            look = await self._look(query, point_filter, DEEPER * depth)
        return look.candidates

    async def _look(self, query: Query, point_filter: Filter, depth: int) -> _Look:
        requests, kinds = self._requests(query, point_filter, depth)
        responses = await self._store.query_batch_points(self._collection, requests)
        rankings = [
            _Ranking(*lists, response.points) for lists, response in zip(kinds, responses, strict=True)
        ]
        candidates, copies = self._fuse(query, rankings)
        short = copies > 0 and len(candidates) < self._settings.reranker_input_top_n
        return _Look(candidates, short and any(len(ranking.points) >= depth for ranking in rankings))

    def _requests(
        self, query: Query, point_filter: Filter, depth: int
    ) -> tuple[list[QueryRequest], list[tuple[int, str, float]]]:
        requests, kinds = [], []
        trusts = ((DENSE, self._fusion.dense_weight), (SPARSE, self._fusion.sparse_weight))
        for number, form in enumerate(query.forms):
            for kind, trust in trusts:
                if kind == SPARSE and not form.sparse.indices:
                    continue
                requests.append(self._request(query, form, kind, point_filter, depth))
                kinds.append((number, kind, form.weight * trust))
        return requests, kinds

    def _request(
        self, query: Query, form: QueryForm, kind: str, point_filter: Filter, depth: int
    ) -> QueryRequest:
        sparse = SparseVector(indices=form.sparse.indices, values=form.sparse.values)
        return QueryRequest(
            query=form.dense if kind == DENSE else sparse,
            using=kind,
            filter=point_filter,
            limit=depth,
            with_payload=True,
            # the score of one list says nothing of the other forms, nor of what words alone have found
            with_vector=[DENSE] if kind == SPARSE or len(query.forms) > 1 else False,
        )

    def _fuse(self, query: Query, rankings: list[_Ranking]) -> tuple[list[Candidate], int]:
        """The candidates, and how many copies of them were left out on the way."""
        entries: dict[str, _Entry] = {}
        forms = np.asarray([form.dense for form in query.forms], dtype=float)
        unseen = [FormMatch()] * len(query.forms)
        for ranking in rankings:
            for rank, point in enumerate(ranking.points, start=1):
                if not _says_anything(point):
                    continue
                entry = entries.setdefault(str(point.id), _Entry(point, list(unseen)))
                entry.note(ranking, point.score, rank)
                if not entry.has_vector:
                    _note_cosines(entry, point, forms)
        fused = reciprocal_rank_fusion(
            [[str(point.id) for point in ranking.points if str(point.id) in entries] for ranking in rankings],
            [ranking.weight for ranking in rankings],
            self._fusion.k,
        )
        most = self._settings.reranker_input_top_n
        firsts: dict[tuple[str, ...], Candidate] = {}
        copies = 0
        for key, score in fused:
            words = _words_of(entries[key].point)
            if words in firsts:
                copies += 1
            elif len(firsts) < most:
                firsts[words] = _candidate(entries[key], score)
        return list(firsts.values()), copies


def _says_anything(point: ScoredPoint) -> bool:
    """!!! ??? is near to any question that is near to nothing."""
    return any(map(str.isalnum, str((point.payload or {}).get("text", ""))))


def _words_of(point: ScoredPoint) -> tuple[str, ...]:
    """What is searched of the chunk: copies have all of it in common. Another heading or date is no copy."""
    payload = point.payload or {}
    return tuple(str(payload.get(field, "")) for field in ("heading", "date", "text"))


def _note_cosines(entry: _Entry, point: ScoredPoint, forms: NDArray[np.float64]) -> None:
    """The chunk's cosine to every form, from the vector it came with (unit length).

    A list scores only its own form, and the list by words none.
    """
    vector = point.vector.get(DENSE) if isinstance(point.vector, dict) else None
    if vector is None:
        return
    entry.has_vector = True
    cosines = forms @ np.asarray(vector, dtype=float)
    entry.matches = [
        replace(match, dense=float(cosine)) for match, cosine in zip(entry.matches, cosines, strict=True)
    ]


def _candidate(entry: _Entry, fused: float) -> Candidate:
    """`dense` is the question's as it was asked; of the rest the best of all forms."""
    dense_ranks = [match.dense_rank for match in entry.matches if match.dense_rank]
    by_words = [match for match in entry.matches if match.sparse_rank]
    return Candidate(
        chunk=ChunkPayload.model_validate(entry.point.payload or {}).to_chunk(),
        dense=entry.matches[0].dense,
        sparse=max((match.sparse for match in by_words), default=None),
        dense_rank=min(dense_ranks, default=None),
        sparse_rank=min((match.sparse_rank for match in by_words if match.sparse_rank), default=None),
        fused=fused,
        matches=tuple(entry.matches),
    )
