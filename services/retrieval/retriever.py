"""Candidates for a question: dense and sparse lists of every query form in one round trip, fused; a second
round trip loads the best of them."""

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
from core.relevance.meaning import load_question_means, without_common
from core.relevance.query import Query, QueryForm, reciprocal_rank_fusion
from core.text import is_for_reader
from services.knowledge.chunks import CHUNK_FIELDS, SIGNS, is_chinese, read_chunk
from services.store.dialect import Condition, Filter, QueryRequest, Record, ScoredPoint, VectorStore
from services.store.points import any_of, equals, has_id, in_range, of_sample, sparse_vector

DENSE = "dense"
SPARSE = "sparse"
LIST_DEPTH = 1.5  # times the candidates kept: a chunk lower in several lists can beat one of a single list
MAX_FOREIGN = 6  # at most so many of the candidates are reserved for the nearest in another language
SLOTS_PER_FOREIGN = 3  # one reserved candidate for this many
MAX_TRANSLATED = 3  # top passages whose translation into the question's language is searched for
TRANSLATION_COSINE = 0.87  # 7 of 10 chunks of the guide have a translation as near, hardly any another chunk
DEPTH_FACTOR = 8  # how many times deeper the lists are searched, once, if copies of the same texts fill them


def searchable(scope: SearchScope, limits: KnowledgeFilter = NO_LIMITS) -> Filter:
    """Return the filter of a search: ready chunks of the scope, within the question's limits."""
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
    """Return (form, kind) of each list: every form has a dense list, and a sparse one if it has words."""
    return [
        (number, kind)
        for number, form in enumerate(query.forms)
        for kind in (DENSE, SPARSE)
        if kind == DENSE or form.sparse.indices
    ]


def _request(form: QueryForm, kind: str, point_filter: Filter, limit: int) -> QueryRequest:
    """Build a request for ids and scores only: most of the lists is discarded."""
    return QueryRequest(
        query=list(form.dense) if kind == DENSE else sparse_vector(form.sparse),
        using=kind,
        filter=point_filter,
        limit=limit,
        with_payload=False,
    )


@dataclass(frozen=True, slots=True)
class _Ranking:
    """One list as the store returned it, best first, with its query form, kind and weight in the fusion."""

    form: int
    kind: str
    weight: float
    points: Sequence[ScoredPoint]


@dataclass(slots=True)
class _Entry:
    """One chunk in all lists: by form, its score and rank in each kind of list."""

    dense: dict[int, tuple[float, int]] = field(default_factory=dict)
    sparse: dict[int, tuple[float, int]] = field(default_factory=dict)

    def note(self, ranking: _Ranking, score: float, rank: int) -> None:
        (self.dense if ranking.kind == DENSE else self.sparse)[ranking.form] = score, rank

    def matches(self, cosines: Sequence[float | None]) -> tuple[FormMatch, ...]:
        """Return the matches form by form; `cosines`, the chunk's to every form, fill in where it is in no
        dense list."""
        return tuple(
            FormMatch(*self.dense.get(number, (cosine, None)), *self.sparse.get(number, (0.0, None)))
            for number, cosine in enumerate(cosines)
        )


@dataclass(frozen=True, slots=True)
class _Read:
    """A loaded chunk and its cosine to every query form."""

    point: ScoredPoint
    cosines: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Fusion:
    """How the lists are fused: weight / (k + rank) each. The calibrated reranker was fitted on these."""

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
    embedding: str = ""  # selects the mean of question vectors; unknown ones have none

    async def search(
        self,
        query: Query,
        owners: Sequence[str],
        limits: KnowledgeFilter = NO_LIMITS,
        *,
        without_sample: bool = False,
    ) -> list[Candidate]:
        """Return fused candidates, best first, at most RERANKER_INPUT_TOP_N, from `owners`' ready documents,
        optionally without the bundled guide.

        Of chunks with identical texts, as in copies of a file, the best is kept. Without owners the result is
        empty. Raises StoreUnavailableError.
        """
        if not owners:
            return []
        point_filter = searchable(SearchScope(tuple(owners), without_sample), limits)
        depth = math.ceil(self.settings.reranker_input_top_n * LIST_DEPTH)
        candidates, crowded = await self._search(query, point_filter, depth)
        if crowded:
            candidates, _ = await self._search(query, point_filter, DEPTH_FACTOR * depth)
        return candidates

    async def in_own_language(
        self, query: Query, ranked: Sequence[Candidate], scope: SearchScope, limits: KnowledgeFilter
    ) -> tuple[Candidate, ...]:
        """Replace the first passages that are in another language by their translations, if a document exists
        in both: each must be the other's nearest. So no passage is shown in two languages.

        Raises StoreUnavailableError.
        """
        chinese, within = query.is_chinese, searchable(scope, limits)
        foreign = {
            one.chunk.chunk_id: one.chunk
            for one in ranked[:MAX_TRANSLATED]
            if is_chinese(one.chunk.heading, one.chunk.text) != chinese
            and not is_for_reader(f"{one.chunk.heading} {one.chunk.text}", chinese)
        }
        if not foreign:
            return tuple(ranked)
        records = await self.store.retrieve(self.collection, [*foreign], with_vectors=[DENSE])
        nearest = await self._nearest({str(each.id): each for each in records}, _in_language(within, chinese))
        back = await self._nearest(nearest, _in_language(within, not chinese))
        translations = {
            at: read_chunk(nearest[at].payload)
            for at, each in back.items()
            if each.score >= TRANSLATION_COSINE and read_chunk(each.payload).text == foreign[at].text
        }
        swapped: dict[str, Candidate] = {}
        for one in ranked:
            chunk = translations.get(one.chunk.chunk_id, one.chunk)
            swapped.setdefault(chunk.chunk_id, replace(one, chunk=chunk))
        return tuple(swapped.values())

    async def _nearest(
        self, points: Mapping[str, Record | ScoredPoint], point_filter: Filter
    ) -> dict[str, ScoredPoint]:
        """Return the nearest chunk to each point, by the same keys, without points that have no vector or
        nothing near."""
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

    async def _search(self, query: Query, point_filter: Filter, depth: int) -> tuple[list[Candidate], bool]:
        """Return the candidates, and whether copies displaced other chunks further down the lists."""
        lists = _lists_of(query)
        requests = [_request(query.forms[form], kind, point_filter, depth) for form, kind in lists]
        requests.append(self._across_languages(query, point_filter))
        *responses, foreign = await self.store.query_batch_points(self.collection, requests)
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
        order = self._with_foreign([key for key, _ in fused], [str(point.id) for point in foreign.points])
        firsts, copies = await self._distinct(order, query)
        short = copies > 0 and len(firsts) < self.settings.reranker_input_top_n
        crowded = short and any(len(ranking.points) >= depth for ranking in rankings)
        return _candidates(rankings, dict(fused), firsts), crowded

    def _across_languages(self, query: Query, point_filter: Filter) -> QueryRequest:
        """Search only texts in the other language: their cosines are lower, so that they may all rank below
        any text in the question's language."""
        form, mean = query.forms[0], load_question_means(self.embedding).get(query.is_chinese)
        if mean is not None:
            form = replace(form, dense=without_common(form.dense, mean).tolist())
        return _request(form, DENSE, _in_language(point_filter, not query.is_chinese), MAX_FOREIGN)

    def _with_foreign(self, order: Sequence[str], foreign: Sequence[str]) -> list[str]:
        """Return the fused order, with missing foreign-language chunks as the last candidates kept."""
        most = self.settings.reranker_input_top_n
        missing = [each for each in foreign[: most // SLOTS_PER_FOREIGN] if each not in order[:most]]
        at = min(len(order), most - len(missing))
        return [*order[:at], *missing, *(each for each in order[at:] if each not in missing)]

    async def _distinct(self, ids: Sequence[str], query: Query) -> tuple[list[_Read], int]:
        """Load as many distinct chunks as are kept, best first; also return how many copies were skipped."""
        most = self.settings.reranker_input_top_n
        firsts: dict[tuple[str, ...], _Read] = {}
        copies = read = dropped = 0
        while len(firsts) < most and read < len(ids):
            page = ids[read : read + most - len(firsts) + dropped]
            by_id = await self._read(page, query)
            for each in (by_id[each] for each in page if each in by_id):
                if not _has_words(each.point):
                    continue
                copies += _words_of(each.point) in firsts
                if len(firsts) < most:
                    firsts.setdefault(_words_of(each.point), each)
            read += len(page)
            dropped = read - len(firsts)
        return list(firsts.values()), copies

    async def _read(self, ids: Sequence[str], query: Query) -> dict[str, _Read]:
        """Load existing chunks by id. The store computes the cosines to every form: fetching the vectors to
        do it here takes half as long again."""
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


def _has_words(point: ScoredPoint) -> bool:
    """Whether the chunk has letters or digits: a text like "!!! ???" is near any unusual question."""
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
    """`dense` is the cosine to the question as asked; the other figures are the best of all forms."""
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


# Ranks of one document's chunks in each list of a full search.

MAX_RANK = 1_000  # how far down a list a chunk's rank is determined
DOCUMENT_CHUNKS = 20  # the document's best chunks in each list


@dataclass(frozen=True, slots=True)
class ListPlace:
    """A chunk's place in a list, the best one of its kind (`dense`, `sparse`) if there are several.

    `rank` counts from 1; None: beyond the first MAX_RANK. `last_score` is that of the last chunk the
    list hands on to fusion; None: the list is not full, so everything in it is handed on.
    """

    kind: str
    score: float
    rank: int | None
    last_score: float | None
    handed_on: bool


@dataclass(frozen=True, slots=True)
class _Lists:
    """One form searched one way: in everything (ids and scores only), and in the document alone."""

    kind: str
    everything: Sequence[ScoredPoint]
    document: Sequence[ScoredPoint]

    def places(self, handed_on: int) -> Mapping[str, ListPlace]:
        """Return the places by chunk id."""
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
        """Return the places of the document's chunks in the lists of each kind, by chunk id, without chunks
        that are in no list. The lists are those of a search of `scope` (None: all the owners') within
        `limits`; all chunks of the document are considered. One round trip. Raises StoreUnavailableError."""
        searches = [(kind, form) for at, kind in _lists_of(query) if (form := query.forms[at]).weight > 0]
        everywhere = searchable(scope or SearchScope(tuple(owners)), limits)
        alone = searchable(SearchScope(tuple(owners)), KnowledgeFilter(document_ids=(document_id,)))
        requests = [
            _request(form, kind, where, limit)
            for kind, form in searches
            for where, limit in ((everywhere, max(MAX_RANK, self._handed_on)), (alone, DOCUMENT_CHUNKS))
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
    return (MAX_RANK + 1 if place.rank is None else place.rank, -place.score)
