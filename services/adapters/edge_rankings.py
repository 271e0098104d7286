"""A batch of queries over one shard. Runs in the store process only.

The engine scores queries next to each other together when they rank by the same vector, so these are put next
to each other. What a point holds is read, and sent, once, however many queries found it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import qdrant_edge as edge

from services.adapters import edge_engine as engine
from services.adapters import edge_parts as parts
from services.adapters import edge_wire as wire

Contents = tuple[parts.PayloadChoice, parts.VectorChoice]


def query_batch(shard: edge.EdgeShard, request: wire.QueryBatch) -> wire.Rankings:
    records = _Records(shard)
    rankings = [
        [wire.Scored(place, point.score, point.order_value, point.version) for place, point in
         zip(records.places((query.with_payload, query.with_vectors), points), points, strict=True)]
        for query, points in zip(request.queries, _found(shard, request.queries), strict=True)
    ]  # fmt: skip
    return wire.Rankings(records.read(), rankings)


def _found(shard: edge.EdgeShard, queries: Sequence[parts.Query]) -> list[list[edge.ScoredPoint]]:
    """Without payload and vectors, in the order of the queries."""
    order = sorted(range(len(queries)), key=lambda at: _vector_name(queries[at]))
    batch = edge.QueryBatchRequest([engine.query(queries[at]) for at in order])
    found = dict(zip(order, shard.query_batch(batch), strict=True))
    return [found[at] for at in range(len(queries))]


def _vector_name(query: parts.Query) -> str:
    return query.ranking.using if isinstance(query.ranking, parts.Nearest) else ""


class _Records:
    """Which points are wanted with which of their contents; each such pair has its place."""

    def __init__(self, shard: edge.EdgeShard) -> None:
        self._shard = shard
        self._contents: list[Contents] = []
        self._places: dict[tuple[int, parts.PointId], int] = {}

    def places(self, contents: Contents, points: Iterable[edge.ScoredPoint]) -> list[int]:
        if contents not in self._contents:
            self._contents.append(contents)
        number = self._contents.index(contents)
        return [
            self._places.setdefault((number, engine.plain_id(point.id)), len(self._places))
            for point in points
        ]

    def read(self) -> list[wire.Found]:
        """By their places."""
        read: dict[tuple[int, parts.PointId], wire.Found] = {}
        for number, (payload, vectors) in enumerate(self._contents):
            ids = [point_id for asked, point_id in self._places if asked == number]
            if payload is False and vectors is False:
                read |= {(number, point_id): wire.Found(point_id) for point_id in ids}
                continue
            for found in self._shard.retrieve(list(ids), engine.payload_choice(payload), vectors):
                record = engine.record(found)
                read[number, record.id] = record
        return [read[place] for place in self._places]
