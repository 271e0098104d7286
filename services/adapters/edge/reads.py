"""What may be read of one shard. Runs in the store process only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import qdrant_edge as edge

from services.adapters.edge import engine, wire


def count(shard: edge.EdgeShard, request: wire.Count) -> int:
    return shard.count(edge.CountRequest(exact=True, filter=engine.optional_filter(request.filter)))


def retrieve(shard: edge.EdgeShard, request: wire.Retrieve) -> list[wire.Record]:
    """In the order of the ids; unknown ones are left out."""
    records = shard.retrieve(list(request.ids), request.with_payload, request.with_vectors)
    by_id = {engine.plain_id(found.id): found for found in records}
    return [engine.record(by_id[point_id]) for point_id in request.ids if point_id in by_id]


def known_ids(shard: edge.EdgeShard, ids: list[wire.PointId]) -> set[wire.PointId]:
    return {engine.plain_id(record.id) for record in shard.retrieve(list(ids), False, False)}


def matching_ids(shard: edge.EdgeShard, condition: wire.Filter) -> list[wire.PointId]:
    chosen = engine.filter_(condition)
    matching = shard.count(edge.CountRequest(exact=True, filter=chosen))
    if not matching:
        return []
    page = edge.ScrollRequest(limit=matching, filter=chosen, with_payload=False, with_vector=False)
    return [engine.plain_id(record.id) for record in shard.scroll(page)[0]]


def scroll(shard: edge.EdgeShard, request: wire.Scroll) -> wire.Page:
    order = request.order_by
    records, next_offset = shard.scroll(
        edge.ScrollRequest(
            offset=request.offset,
            limit=request.limit,
            filter=engine.optional_filter(request.filter),
            with_payload=request.with_payload,
            with_vector=request.with_vectors,
            order_by=None if order is None else engine.order_by(order),
        )
    )
    following = None if next_offset is None else engine.plain_id(next_offset)
    return wire.Page([engine.record(record) for record in records], following)


def facet(shard: edge.EdgeShard, request: wire.Facet) -> list[wire.FacetHit]:
    chosen = engine.optional_filter(request.filter)
    counting = edge.FacetRequest(request.key, limit=request.limit, exact=True, filter=chosen)
    return [wire.FacetHit(hit.value, hit.count) for hit in shard.facet(counting)]


# A batch of queries over one shard. Runs in the store process only.
#
# The engine scores queries next to each other together when they rank by the same vector, so these are put
# next
# to each other. What a point holds is read, and sent, once, however many queries found it.


Contents = tuple[wire.PayloadChoice, wire.VectorChoice]


def query_batch(shard: edge.EdgeShard, request: wire.QueryBatch) -> wire.Rankings:
    records = _Records(shard)
    rankings = [
        [wire.Scored(place, point.score) for place, point in
         zip(records.places((query.with_payload, query.with_vectors), points), points, strict=True)]
        for query, points in zip(request.queries, _points_of(shard, request.queries), strict=True)
    ]  # fmt: skip
    return wire.Rankings(records.read(), rankings)


def _points_of(shard: edge.EdgeShard, queries: Sequence[wire.Query]) -> list[list[edge.ScoredPoint]]:
    """Without payload and vectors, in the order of the queries."""
    order = sorted(range(len(queries)), key=lambda at: queries[at].using)
    batch = edge.QueryBatchRequest([engine.query(queries[at]) for at in order])
    by_place = dict(zip(order, shard.query_batch(batch), strict=True))
    return [by_place[at] for at in range(len(queries))]


class _Records:
    """Which points are wanted with which of their contents; each such pair has its place."""

    def __init__(self, shard: edge.EdgeShard) -> None:
        self._shard = shard
        self._contents: list[Contents] = []
        self._places: dict[tuple[int, wire.PointId], int] = {}

    def places(self, contents: Contents, points: Iterable[edge.ScoredPoint]) -> list[int]:
        if contents not in self._contents:
            self._contents.append(contents)
        number = self._contents.index(contents)
        return [
            self._places.setdefault((number, engine.plain_id(point.id)), len(self._places))
            for point in points
        ]

    def read(self) -> list[wire.Record]:
        """By their places."""
        read: dict[tuple[int, wire.PointId], wire.Record] = {}
        for number, (payload, vectors) in enumerate(self._contents):
            ids = [point_id for asked, point_id in self._places if asked == number]
            if payload is False and vectors is False:
                read |= {(number, point_id): wire.Record(point_id) for point_id in ids}
                continue
            for found in self._shard.retrieve(list(ids), payload, vectors):
                record = engine.record(found)
                read[number, record.id] = record
        return [read[place] for place in self._places]
