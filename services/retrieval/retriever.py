"""Candidates for a question: the dense and the sparse list of every form in one round trip, fused, and what
the best of them hold in another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from config.settings import RetrievalSettings
from core.knowledge import (
    COPIED,
    NO_LIMITS,
    SHARED_OWNER,
    Candidate,
    FormMatch,
    KnowledgeFilter,
    SearchScope,
    days,
)
from core.relevance.query import Query, QueryForm, reciprocal_rank_fusion
from services.knowledge.chunks import CHUNK_FIELDS, SIGNS, is_chinese, read_chunk
from services.store.dialect import Condition, Filter, QueryRequest, Record, ScoredPoint, VectorStore
from services.store.points import any_of, equals, has_id, in_range, of_sample, sparse_vector

DENSE = "dense"
SPARSE = "sparse"
LIST_DEPTH = 1.5  # of what goes on: a chunk that several lists have further down can pass those of one list
SEATS_ABROAD = 4  # at most, of what goes on, for the nearest in another language
PLACES_A_SEAT = 5
MOST_TWINS = 3  # passages that what says the same in the question's language is looked for
TWIN_COSINE = 0.87  # seven of ten of the guide's chunks have a translation that near, next to none another
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
    return Filter(must=must, must_not=[of_sample()] if hides_sample else None)


def _in_language(point_filter: Filter, chinese: bool) -> Filter:
    only = equals("chinese", chinese)
    return point_filter.model_copy(update={"must": [*(point_filter.must or ()), only]})


def _lists_of(query: Query) -> list[tuple[int, str]]:
    """(form, kind): each form has a dense list, and a sparse one where it has words."""
    return [
        (number, kind)
        for number, form in enumerate(query.forms)
        for kind in (DENSE, SPARSE)
        if kind == DENSE or form.sparse.indices
    ]


def _request(form: QueryForm, kind: str, point_filter: Filter, limit: int) -> QueryRequest:
    """For ids and scores: most of what the lists hold goes no further."""
    return QueryRequest(
        query=list(form.dense) if kind == DENSE else sparse_vector(form.sparse),
        using=kind,
        filter=point_filter,
        limit=limit,
        with_payload=False,
    )


@dataclass(frozen=True, slots=True)
class _Ranking:
    """One list as the store returned it, best first: for which form of the question, and how far trusted."""

    form: int
    kind: str
    weight: float
    points: Sequence[ScoredPoint]


@dataclass(slots=True)
class _Entry:
    """What all lists together say of one chunk: by form, its score and rank in each kind of list."""

    dense: dict[int, tuple[float, int]] = field(default_factory=dict)
    sparse: dict[int, tuple[float, int]] = field(default_factory=dict)

    def note(self, ranking: _Ranking, score: float, rank: int) -> None:
        (self.dense if ranking.kind == DENSE else self.sparse)[ranking.form] = score, rank

    def matches(self, cosines: Sequence[float | None]) -> tuple[FormMatch, ...]:
        """Form by form. A list scores its own form alone, the list by words none: `cosines` are the chunk's
        to all of them."""
        return tuple(
            FormMatch(*self.dense.get(number, (cosine, None)), *self.sparse.get(number, (0.0, None)))
            for number, cosine in enumerate(cosines)
        )


@dataclass(frozen=True, slots=True)
class _Read:
    """A chunk with what goes on of it, and its cosine to every form of the question."""

    point: ScoredPoint
    cosines: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Fusion:
    """How the lists are fused: weight / (k + rank) for each. On these the calibrated reranker was fitted."""

    k: int = 10
    dense_weight: float = 1.0
    sparse_weight: float = 1.0


FUSION = Fusion()


@dataclass(frozen=True, slots=True)
class Retriever:
    store: VectorStore
    collection: str
    settings: RetrievalSettings
    fusion: Fusion = FUSION

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
        depth = math.ceil(self.settings.reranker_input_top_n * LIST_DEPTH)
        candidates, crowded = await self._look(query, point_filter, depth)
        if crowded:
            candidates, _ = await self._look(query, point_filter, DEEPER * depth)
        return candidates

    async def in_own_language(
        self, query: Query, ranked: Sequence[Candidate], scope: SearchScope, limits: KnowledgeFilter
    ) -> tuple[Candidate, ...]:
        """The translations of the first passages that are in another language take their places, in documents
        that are kept in both: each is the other's nearest. So none is shown in two languages.

        Raises StoreUnavailableError.
        """
        chinese, within = query.is_chinese, searchable(scope, limits)
        abroad = {
            one.chunk.chunk_id: one.chunk
            for one in ranked[:MOST_TWINS]
            if is_chinese(one.chunk.heading, one.chunk.text) != chinese
        }
        if not abroad:
            return tuple(ranked)
        records = await self.store.retrieve(self.collection, [*abroad], with_vectors=[DENSE])
        nearest = await self._nearest({str(each.id): each for each in records}, _in_language(within, chinese))
        back = await self._nearest(nearest, _in_language(within, not chinese))
        twins = {
            at: read_chunk(nearest[at].payload)
            for at, each in back.items()
            if each.score >= TWIN_COSINE and read_chunk(each.payload).text == abroad[at].text
        }
        swapped: dict[str, Candidate] = {}
        for one in ranked:
            chunk = twins.get(one.chunk.chunk_id, one.chunk)
            swapped.setdefault(chunk.chunk_id, replace(one, chunk=chunk))
        return tuple(swapped.values())

    async def _nearest(
        self, points: Mapping[str, Record | ScoredPoint], point_filter: Filter
    ) -> dict[str, ScoredPoint]:
        """By the same keys, what is nearest to each; without those that have no vector, or nothing near."""
        vectors = {key: vector for key, point in points.items() if (vector := _dense_of(point))}
        requests = [
            QueryRequest(
                query=list(each),
                using=DENSE,
                filter=point_filter,
                limit=1,
                with_payload=True,
                with_vector=[DENSE],
            )
            for each in vectors.values()
        ]
        answers = await self.store.query_batch_points(self.collection, requests) if requests else []
        return {key: each for key, answer in zip(vectors, answers, strict=True) for each in answer.points}

    async def _look(self, query: Query, point_filter: Filter, depth: int) -> tuple[list[Candidate], bool]:
        """Also whether copies took places that others, further down the lists, could have had."""
        lists = _lists_of(query)
        requests = [_request(query.forms[form], kind, point_filter, depth) for form, kind in lists]
        # cosines across languages are lower: all of these may stand behind any text in the question's
        abroad_only = _in_language(point_filter, not query.is_chinese)
        requests.append(_request(query.forms[0], DENSE, abroad_only, SEATS_ABROAD))
        *responses, abroad = await self.store.query_batch_points(self.collection, requests)
        trusts = {DENSE: self.fusion.dense_weight, SPARSE: self.fusion.sparse_weight}
        rankings = [
            _Ranking(form, kind, query.forms[form].weight * trusts[kind], response.points)
            for (form, kind), response in zip(lists, responses, strict=True)
        ]
        fused = reciprocal_rank_fusion(
            [[str(point.id) for point in ranking.points] for ranking in rankings],
            [ranking.weight for ranking in rankings],
            self.fusion.k,
        )
        order = self._seated([key for key, _ in fused], [str(point.id) for point in abroad.points])
        firsts, copies = await self._firsts(order, query)
        short = copies > 0 and len(firsts) < self.settings.reranker_input_top_n
        crowded = short and any(len(ranking.points) >= depth for ranking in rankings)
        return _candidates(rankings, dict(fused), firsts), crowded

    def _seated(self, order: Sequence[str], abroad: Sequence[str]) -> list[str]:
        """The fused order, those abroad that would not go on being its last that do."""
        most = self.settings.reranker_input_top_n
        missing = [each for each in abroad[: most // PLACES_A_SEAT] if each not in order[:most]]
        at = min(len(order), most - len(missing))
        return [*order[:at], *missing, *(each for each in order[at:] if each not in missing)]

    async def _firsts(self, ids: Sequence[str], query: Query) -> tuple[list[_Read], int]:
        """Of these, best first, as many as go on, and how many copies of them were left out on the way."""
        most = self.settings.reranker_input_top_n
        firsts: dict[tuple[str, ...], _Read] = {}
        copies = read = dropped = 0
        while len(firsts) < most and read < len(ids):
            page = ids[read : read + most - len(firsts) + dropped]
            by_id = await self._read(page, query)
            for each in (by_id[each] for each in page if each in by_id):
                if not _says_anything(each.point):
                    continue
                copies += _words_of(each.point) in firsts
                if len(firsts) < most:
                    firsts.setdefault(_words_of(each.point), each)
            read += len(page)
            dropped = read - len(firsts)
        return list(firsts.values()), copies

    async def _read(self, ids: Sequence[str], query: Query) -> dict[str, _Read]:
        """Those that there are, by id. The store compares them with every form itself: to fetch their vectors
        and do so here takes half as long again."""
        these = Filter(must=[has_id(ids)])
        fields = [*CHUNK_FIELDS, *([SIGNS] if query.tokens else [])]
        first, *others = [_request(form, DENSE, these, len(ids)) for form in query.forms]
        first = first.model_copy(update={"with_payload": fields})
        answers = await self.store.query_batch_points(self.collection, [first, *others])
        cosines = [{str(each.id): each.score for each in answer.points} for answer in answers]
        return {
            (key := str(point.id)): _Read(point, [of_form.get(key) for of_form in cosines])
            for point in answers[0].points
        }


def _says_anything(point: ScoredPoint) -> bool:
    """!!! ??? is near to any question that is near to nothing."""
    return any(map(str.isalnum, str((point.payload or {}).get("text", ""))))


def _words_of(point: ScoredPoint) -> tuple[str, ...]:
    payload = point.payload or {}
    return tuple(str(payload.get(field, "")) for field in COPIED)


def _candidates(
    rankings: Sequence[_Ranking], fused: Mapping[str, float], firsts: Sequence[_Read]
) -> list[Candidate]:
    entries = {str(each.point.id): _Entry() for each in firsts}
    for ranking in rankings:
        for rank, point in enumerate(ranking.points, start=1):
            if entry := entries.get(str(point.id)):
                entry.note(ranking, point.score, rank)
    return [_candidate(each, entries[key := str(each.point.id)], fused.get(key, 0.0)) for each in firsts]


def _dense_of(record: Record | ScoredPoint) -> Sequence[float] | None:
    vectors = record.vector
    return cast(Sequence[float] | None, vectors.get(DENSE)) if isinstance(vectors, dict) else None


def _candidate(read: _Read, entry: _Entry, fused: float) -> Candidate:
    """`dense` is the question's as it was asked; of the rest the best of all forms."""
    matches, payload = entry.matches(read.cosines), read.point.payload or {}
    return Candidate(
        chunk=read_chunk(payload),
        dense=matches[0].dense,
        sparse=max((score for score, _ in entry.sparse.values()), default=None),
        dense_rank=min((rank for _, rank in entry.dense.values()), default=None),
        sparse_rank=min((rank for _, rank in entry.sparse.values()), default=None),
        fused=fused,
        matches=matches,
        signs=str(payload.get(SIGNS, "")),
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
    everything: Sequence[ScoredPoint]
    document: Sequence[ScoredPoint]

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
        answers = await self._store.query_batch_points(self._collection, requests)
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
