"""What may be read of one shard. Runs in the store process only."""

from __future__ import annotations

import qdrant_edge as edge

from services.adapters import edge_engine as engine
from services.adapters import edge_parts as parts
from services.adapters import edge_wire as wire


def count(shard: edge.EdgeShard, request: wire.Count) -> int:
    return shard.count(edge.CountRequest(exact=True, filter=engine.optional_filter(request.filter)))


def retrieve(shard: edge.EdgeShard, request: wire.Retrieve) -> list[wire.Found]:
    """In the order of the ids; unknown ones are left out."""
    records = shard.retrieve(
        list(request.ids), engine.payload_choice(request.with_payload), request.with_vectors
    )
    by_id = {engine.plain_id(found.id): found for found in records}
    return [engine.record(by_id[point_id]) for point_id in request.ids if point_id in by_id]


def known_ids(shard: edge.EdgeShard, ids: list[parts.PointId]) -> set[parts.PointId]:
    return {engine.plain_id(record.id) for record in shard.retrieve(list(ids), False, False)}


def matching_ids(shard: edge.EdgeShard, condition: parts.Filter) -> list[parts.PointId]:
    chosen = engine.filter_(condition)
    wanted = shard.count(edge.CountRequest(exact=True, filter=chosen))
    if not wanted:
        return []
    page = edge.ScrollRequest(limit=wanted, filter=chosen, with_payload=False, with_vector=False)
    return [engine.plain_id(record.id) for record in shard.scroll(page)[0]]


def scroll(shard: edge.EdgeShard, request: wire.Scroll) -> wire.Page:
    order = request.order_by
    records, next_offset = shard.scroll(
        edge.ScrollRequest(
            offset=request.offset,
            limit=request.limit,
            filter=engine.optional_filter(request.filter),
            with_payload=engine.payload_choice(request.with_payload),
            with_vector=request.with_vectors,
            order_by=None if order is None else engine.order_by(order),
        )
    )
    following = None if next_offset is None else engine.plain_id(next_offset)
    return wire.Page([engine.record(found) for found in records], following)


def facet(shard: edge.EdgeShard, request: wire.Facet) -> list[wire.FacetHit]:
    chosen = engine.optional_filter(request.filter)
    wanted = edge.FacetRequest(request.key, limit=request.limit, exact=True, filter=chosen)
    return [wire.FacetHit(hit.value, hit.count) for hit in shard.facet(wanted)]
