"""Where the chunks of one document stand in each list of a search of everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qdrant_client.http.models import QueryResponse

from core.knowledge import NO_LIMITS, KnowledgeFilter
from core.relevance.query import Query, QueryForm
from services.retrieval.searchable import searchable
from services.store.dialect import Filter, QueryRequest, ScoredPoint, SparseVector, VectorStore

DENSE = "dense"
SPARSE = "sparse"
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
    ) -> Mapping[str, tuple[ListPlace, ...]]:
        """By chunk id of the document, its place in the lists of each kind; a chunk that is in none is left
        out. The lists are those of a search within `limits`, the document's chunks those of all of it. All
        in one round trip. Raises StoreUnavailableError."""
        searches = [
            (kind, form)
            for form in query.forms
            for kind in (DENSE, SPARSE)
            if form.weight > 0 and (kind == DENSE or form.sparse.indices)
        ]
        everywhere = searchable(owners, limits)
        alone = searchable(owners, KnowledgeFilter(document_ids=(document_id,)))
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


def _request(form: QueryForm, kind: str, where: Filter, limit: int) -> QueryRequest:
    words = SparseVector(indices=form.sparse.indices, values=form.sparse.values)
    return QueryRequest(
        query=form.dense if kind == DENSE else words,
        using=kind,
        filter=where,
        limit=limit,
        with_payload=False,
    )
