"""Candidates for a question: the dense and the sparse list of every form in one round trip, then fused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray
from qdrant_client.http.models import QueryResponse

from config.settings import RetrievalSettings
from core.knowledge import (
    NO_LIMITS,
    SHARED_OWNER,
    Candidate,
    FormMatch,
    KnowledgeFilter,
    SearchScope,
    days,
)
from core.relevance.query import Query, QueryForm, reciprocal_rank_fusion
from services.knowledge.chunks import CHUNK_FIELDS, SIGNS, read_chunk
from services.store.dialect import Condition, Filter, QueryRequest, ScoredPoint, VectorStore
from services.store.filters import any_of, equals, in_range, of_sample, sparse_vector

DENSE = "dense"
SPARSE = "sparse"
LIST_DEPTH = 1.5  # of what goes on: a chunk that several lists have further down can pass those of one list
DEEPER = 8  # times as far down the lists, once, where copies of the same texts have taken the places


def searchable(scope: SearchScope, limits: KnowledgeFilter = NO_LIMITS) -> Filter:
    """Which chunks a search may find: ready ones of the scope, within the limits of the question."""
    lists = {"tags": limits.tags, "document_id": limits.document_ids, "source": limits.sources}
    must: list[Condition] = [equals("ready", True), any_of("owner", scope.owners)]
    must += [any_of(field, values) for field, values in lists.items() if values]
    bounds = days(limits)
    if bounds is not None:
        must.append(in_range("day", gte=bounds[0], lte=bounds[1]))
    hides_sample = scope.without_sample and SHARED_OWNER in scope.owners
    return Filter(must=must, must_not=[of_sample(SHARED_OWNER)] if hides_sample else None)


def _lists_of(query: Query) -> list[tuple[int, str]]:
    """(form, kind): each form has a dense list, and a sparse one where it has words."""
    return [
        (number, kind)
        for number, form in enumerate(query.forms)
        for kind in (DENSE, SPARSE)
        if kind == DENSE or form.sparse.indices
    ]


def _request(
    form: QueryForm, kind: str, point_filter: Filter, limit: int, payload: bool = False, vector: bool = False
) -> QueryRequest:
    return QueryRequest(
        query=list(form.dense) if kind == DENSE else sparse_vector(form.sparse),
        using=kind,
        filter=point_filter,
        limit=limit,
        with_payload=CHUNK_FIELDS if payload else False,
        with_vector=[DENSE] if vector else False,
    )


@dataclass(frozen=True, slots=True)
class _Ranking:
    """One list as the store returned it, best first: for which form of the question, and how far trusted."""

    form: int
    kind: str
    weight: float
    points: list[ScoredPoint]


@dataclass(slots=True)
class _Entry:
    """What all lists together say of one chunk: by form, its score and rank in each kind of list."""

    point: ScoredPoint
    dense: dict[int, tuple[float, int]] = field(default_factory=dict)
    sparse: dict[int, tuple[float, int]] = field(default_factory=dict)
    vector: Sequence[float] | None = None

    def note(self, ranking: _Ranking, point: ScoredPoint, rank: int) -> None:
        (self.dense if ranking.kind == DENSE else self.sparse)[ranking.form] = point.score, rank
        if self.vector is None and isinstance(point.vector, dict):
            self.vector = cast(Sequence[float] | None, point.vector.get(DENSE))

    def matches(self, forms: NDArray[np.float64]) -> tuple[FormMatch, ...]:
        """Form by form. A list scores only its own form, and the list by words none: the chunk's cosine to
        the others is taken from the vector it came with (unit length)."""
        cosines = [None] * len(forms) if self.vector is None else (forms @ np.asarray(self.vector)).tolist()
        return tuple(
            FormMatch(*self.dense.get(number, (cosine, None)), *self.sparse.get(number, (0.0, None)))
            for number, cosine in enumerate(cosines)
        )


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
        self,
        query: Query,
        owners: Sequence[str],
        limits: KnowledgeFilter = NO_LIMITS,
        *,
        without_sample: bool = False,
    ) -> list[Candidate]:
        """Fused candidates, best first, at most RERANKER_INPUT_TOP_N; only of `owners`' ready documents, and
        none of the guide that came with Wenmai where it is to be left out.

        Of chunks that say the same, as copies of a file do, the best is taken. No owners find nothing.
        Raises StoreUnavailableError.
        """
        if not owners:
            return []
        point_filter = searchable(SearchScope(tuple(owners), without_sample), limits)
        depth = math.ceil(self._settings.reranker_input_top_n * LIST_DEPTH)
        candidates, crowded = await self._look(query, point_filter, depth)
        if crowded:
            candidates, _ = await self._look(query, point_filter, DEEPER * depth)
        return await self._with_signs(candidates) if query.tokens else candidates

    async def _with_signs(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Read of those alone that go on: in every list they would be most of the answer."""
        ids = [candidate.chunk.chunk_id for candidate in candidates]
        records = await self._store.retrieve(self._collection, ids=ids, with_payload=[SIGNS]) if ids else []
        signs = {str(record.id): str((record.payload or {}).get(SIGNS, "")) for record in records}
        return [replace(each, signs=signs.get(each.chunk.chunk_id, "")) for each in candidates]

    async def _look(self, query: Query, point_filter: Filter, depth: int) -> tuple[list[Candidate], bool]:
        """Also whether copies took places that others, further down the lists, could have had."""
        lists = _lists_of(query)
        # the score of one list says nothing of the other forms, nor of what words alone have found
        requests = [
            _request(
                query.forms[form], kind, point_filter, depth, True, kind == SPARSE or len(query.forms) > 1
            )
            for form, kind in lists
        ]
        responses = await self._store.query_batch_points(self._collection, requests)
        trusts = {DENSE: self._fusion.dense_weight, SPARSE: self._fusion.sparse_weight}
        rankings = [
            _Ranking(form, kind, query.forms[form].weight * trusts[kind], response.points)
            for (form, kind), response in zip(lists, responses, strict=True)
        ]
        candidates, copies = self._fuse(query, rankings)
        short = copies > 0 and len(candidates) < self._settings.reranker_input_top_n
        return candidates, short and any(len(ranking.points) >= depth for ranking in rankings)

    def _fuse(self, query: Query, rankings: list[_Ranking]) -> tuple[list[Candidate], int]:
        """The candidates, and how many copies of them were left out on the way."""
        entries: dict[str, _Entry] = {}
        for ranking in rankings:
            for rank, point in enumerate(ranking.points, start=1):
                if _says_anything(point):
                    entries.setdefault(str(point.id), _Entry(point)).note(ranking, point, rank)
        fused = reciprocal_rank_fusion(
            [[str(point.id) for point in ranking.points if str(point.id) in entries] for ranking in rankings],
            [ranking.weight for ranking in rankings],
            self._fusion.k,
        )
        forms = np.asarray([form.dense for form in query.forms], dtype=float)
        most = self._settings.reranker_input_top_n
        firsts: dict[tuple[str, ...], Candidate] = {}
        copies = 0
        for key, score in fused:
            words = _words_of(entries[key].point)
            if words in firsts:
                copies += 1
            elif len(firsts) < most:
                firsts[words] = _candidate(entries[key], forms, score)
        return list(firsts.values()), copies


def _says_anything(point: ScoredPoint) -> bool:
    """!!! ??? is near to any question that is near to nothing."""
    return any(map(str.isalnum, str((point.payload or {}).get("text", ""))))


def _words_of(point: ScoredPoint) -> tuple[str, ...]:
    """What is searched of the chunk: copies have all of it in common. Another heading or date is no copy."""
    payload = point.payload or {}
    return tuple(str(payload.get(field, "")) for field in ("heading", "date", "text"))


def _candidate(entry: _Entry, forms: NDArray[np.float64], fused: float) -> Candidate:
    """`dense` is the question's as it was asked; of the rest the best of all forms."""
    matches = entry.matches(forms)
    return Candidate(
        chunk=read_chunk(entry.point.payload),
        dense=matches[0].dense,
        sparse=max((score for score, _ in entry.sparse.values()), default=None),
        dense_rank=min((rank for _, rank in entry.dense.values()), default=None),
        sparse_rank=min((rank for _, rank in entry.sparse.values()), default=None),
        fused=fused,
        matches=matches,
    )


# Where the chunks of one document stand in each list of a search of everything.

LOOKED_THROUGH = 1_000  # how far down a list a chunk's rank is looked for
OF_THE_DOCUMENT = 20  # its best chunks, of each list


@dataclass(frozen=True, slots=True)
class ListPlace:
    """A chunk in one list, the best of those of its kind (`dense`, `sparse`) where there are several.

    `rank` counts from 1; None: beyond the LOOKED_THROUGH first. `last_score` is that of the last chunk that
    the list hands on; None: the list is not full, so everything it holds is handed on.
    """

    kind: str
    score: float
    rank: int | None
    last_score: float | None
    handed_on: bool


@dataclass(frozen=True, slots=True)
class _Lists:
    """One form searched in one way: everything (ids only, with scores), and the document alone."""

    kind: str
    everything: list[ScoredPoint]
    document: list[ScoredPoint]

    def places(self, handed_on: int) -> Mapping[str, ListPlace]:
        """By chunk id."""
        ranks = {str(point.id): rank for rank, point in enumerate(self.everything, start=1)}
        full = len(self.everything) >= handed_on
        last = self.everything[handed_on - 1].score if full else None
        placed = ((str(point.id), point.score) for point in self.document)
        return {
            chunk_id: ListPlace(self.kind, score, rank, last, rank is not None and rank <= handed_on)
            for chunk_id, score in placed
            for rank in (ranks.get(chunk_id),)
        }


class ListPlaces:
    """`handed_on` is how many chunks each list hands on to fusion."""

    def __init__(self, store: VectorStore, collection: str, handed_on: int) -> None:
        self._store = store
        self._collection = collection
        self._handed_on = handed_on

    async def of(
        self,
        query: Query,
        owners: Sequence[str],
        document_id: str,
        limits: KnowledgeFilter = NO_LIMITS,
        scope: SearchScope | None = None,
    ) -> Mapping[str, tuple[ListPlace, ...]]:
        """By chunk id of the document, its place in the lists of each kind; a chunk that is in none is left
        out. The lists are those of a search of `scope` (None: all of the owners') within `limits`, the
        document's chunks those of all of it. All in one round trip. Raises StoreUnavailableError."""
        searches = [(kind, form) for at, kind in _lists_of(query) if (form := query.forms[at]).weight > 0]
        everywhere = searchable(scope or SearchScope(tuple(owners)), limits)
        alone = searchable(SearchScope(tuple(owners)), KnowledgeFilter(document_ids=(document_id,)))
        requests = [
            _request(form, kind, where, limit)
            for kind, form in searches
            for where, limit in ((everywhere, max(LOOKED_THROUGH, self._handed_on)), (alone, OF_THE_DOCUMENT))
        ]
        answers: list[QueryResponse] = await self._store.query_batch_points(self._collection, requests)
        lists = [
            _Lists(kind, answers[2 * at].points, answers[2 * at + 1].points)
            for at, (kind, _) in enumerate(searches)
        ]
        return _best([ranking.places(self._handed_on) for ranking in lists])


def _best(of_lists: Sequence[Mapping[str, ListPlace]]) -> Mapping[str, tuple[ListPlace, ...]]:
    best: dict[str, dict[str, ListPlace]] = {}
    for places in of_lists:
        for chunk_id, place in places.items():
            known = best.setdefault(chunk_id, {})
            if place.kind not in known or _order(place) < _order(known[place.kind]):
                known[place.kind] = place
    return {chunk_id: tuple(places.values()) for chunk_id, places in best.items()}


def _order(place: ListPlace) -> tuple[int, float]:
    return (LOOKED_THROUGH + 1 if place.rank is None else place.rank, -place.score)
