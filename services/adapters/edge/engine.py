"""Converts between the wire and the engine's types, both ways, and reads from a shard. Runs in the store
process only."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

import qdrant_edge as edge

from services.adapters.edge import wire
from services.adapters.edge.journal import checksum

_DISTANCES = {name: getattr(edge.Distance, name) for name in ("Cosine", "Dot", "Euclid", "Manhattan")}
_MIN_HALVED_SIZE = 64  # dimensions
_MAX_SINGLE_MATCHES = 16
_PAGE = 1_000
_INDEX_KINDS = {
    "keyword": edge.PayloadSchemaType.Keyword,
    "integer": edge.PayloadSchemaType.Integer,
    "float": edge.PayloadSchemaType.Float,
    "geo": edge.PayloadSchemaType.Geo,
    "text": edge.PayloadSchemaType.Text,
    "bool": edge.PayloadSchemaType.Bool,
    "datetime": edge.PayloadSchemaType.Datetime,
    "uuid": edge.PayloadSchemaType.Uuid,
}


# ---- to the engine ------------------------------------------------------------------------------


def shard_config(spec: wire.CollectionSpec) -> edge.EdgeConfig:
    return edge.EdgeConfig(
        vectors={name: _vector_params(dense) for name, dense in spec.dense.items()} or None,
        sparse_vectors={
            name: edge.EdgeSparseVectorParams(
                full_scan_threshold=spec.sparse_scan.get(name), modifier=edge.Modifier.Idf if idf else None
            )
            for name, idf in spec.sparse_idf.items()
        }
        or None,
    )


def _vector_params(dense: wire.DenseSpec) -> edge.EdgeVectorParams:
    """With 16 bits per number a long vector takes half the space and is scanned twice as fast.

    Cosines change by less than 0.00001. Collections created with 32 bits keep them until they are compacted.
    """
    small = dense.distance == "Cosine" and dense.size >= _MIN_HALVED_SIZE
    datatype = edge.VectorStorageDatatype.Turbo16 if small else None
    return edge.EdgeVectorParams(dense.size, _DISTANCES[dense.distance], datatype=datatype)


def index_schema(spec: wire.IndexSpec) -> Any:
    if spec.kind == "keyword":
        return edge.KeywordIndexParams(is_tenant=spec.is_tenant)
    if spec.kind == "integer":
        return edge.IntegerIndexParams(lookup=spec.lookup, range=spec.range)
    return _INDEX_KINDS[spec.kind]


def floats(raw: bytes) -> list[float]:
    return array("f", raw).tolist()


def _vector(vector: wire.Vector) -> Any:
    if isinstance(vector, bytes):
        return floats(vector)
    return edge.SparseVector(array("I", vector.indices).tolist(), floats(vector.values))


def points(batch: Iterable[wire.Point]) -> list[edge.Point]:
    return [edge.Point(p.id, _vectors_in(p.vectors), p.payload) for p in batch]


def point_vectors(batch: Iterable[wire.Point]) -> list[edge.PointVectors]:
    return [edge.PointVectors(p.id, _vectors_in(p.vectors)) for p in batch]


def _vectors_in(vectors: wire.Vectors) -> dict[str, Any]:
    return {name: _vector(vector) for name, vector in vectors.items()}


def _range(c: wire.InRange) -> Any:
    return edge.FieldCondition(c.key, range=edge.RangeFloat(gt=c.gt, gte=c.gte, lt=c.lt, lte=c.lte))


class _Boolean:
    """A boolean that the engine does not mistake for a number.

    qdrant-edge-py 0.9.0 reads Python's True as the integer 1, which equals no stored `true`; its binding
    recognises only numpy's boolean, by its name.
    """

    def __init__(self, value: bool) -> None:
        self._value = value

    def __bool__(self) -> bool:
        return self._value


_Boolean.__name__, _Boolean.__module__ = "bool_", "numpy"


def _match_value(c: wire.MatchValue) -> Any:
    value: Any = _Boolean(c.value) if isinstance(c.value, bool) else c.value
    return edge.FieldCondition(c.key, match=edge.MatchValue(value))


def _match_any(c: wire.MatchAny) -> Any:
    """Match a few values one by one: testing a list takes the engine 50 ns more per scanned point."""
    if 0 < len(c.values) <= _MAX_SINGLE_MATCHES:
        each = [edge.FieldCondition(c.key, match=edge.MatchValue(value)) for value in c.values]
        return each[0] if len(each) == 1 else edge.Filter(should=[*each])
    return edge.FieldCondition(c.key, match=edge.MatchAny(c.values))  # type: ignore[arg-type]  # mixed lists


_CONDITIONS: dict[type[wire.Message], Callable[[Any], Any]] = {
    wire.MatchValue: _match_value,
    wire.MatchAny: _match_any,
    wire.InRange: _range,
    wire.IsEmpty: lambda c: edge.IsEmptyCondition(c.key),
    wire.HasId: lambda c: edge.HasIdCondition(set(c.ids)),
    wire.HasVector: lambda c: edge.HasVectorCondition(c.name),
    wire.Filter: lambda c: filter_(c),
}


def filter_(condition: wire.Filter) -> edge.Filter:
    return edge.Filter(
        must=_conditions(condition.must),
        should=_conditions(condition.should),
        must_not=_conditions(condition.must_not),
    )


def optional_filter(condition: wire.Filter | None) -> edge.Filter | None:
    return None if condition is None else filter_(condition)


def _conditions(conditions: list[wire.Condition] | None) -> list[Any] | None:
    return None if conditions is None else [_CONDITIONS[type(c)](c) for c in conditions]


def to_order(order: wire.OrderBy) -> edge.OrderBy:
    direction = edge.Direction.Desc if order.descending else edge.Direction.Asc
    return edge.OrderBy(order.key, direction, order.start_from)


def to_query(request: wire.Query) -> edge.QueryRequest:
    """Query without payloads and vectors, which are read afterwards."""
    return edge.QueryRequest(
        limit=request.limit,
        query=edge.Query.Nearest(_vector(request.vector), using=request.using),
        with_vector=False,
        with_payload=False,
        filter=optional_filter(request.filter),
    )


# ---- from the engine ----------------------------------------------------------------------------


def plain_id(point_id: Any) -> wire.PointId:
    return str(point_id) if isinstance(point_id, UUID) else point_id


def to_record(stored: edge.Record) -> wire.Record:
    return wire.Record(plain_id(stored.id), stored.payload, _vectors_out(stored.vector))


def _vectors_out(vectors: Any) -> wire.Vectors | None:
    return None if vectors is None else {name: _vector_out(vector) for name, vector in vectors.items()}


def _vector_out(vector: Any) -> wire.Vector:
    if isinstance(vector, edge.SparseVector):
        return wire.SparseValues(array("I", vector.indices).tobytes(), array("f", vector.values).tobytes())
    return array("f", vector).tobytes()


def index_state(index: edge.PayloadIndexInfo) -> wire.IndexState:
    kind = next(name for name, value in _INDEX_KINDS.items() if value == index.data_type)
    options = ("is_tenant", "lookup", "range")
    chosen = {option: getattr(index.params, option, None) for option in options}
    return wire.IndexState(wire.IndexSpec(kind, **chosen), index.points)


# ---- reads --------------------------------------------------------------------------------------


def count(shard: edge.EdgeShard, request: wire.Count) -> int:
    return shard.count(edge.CountRequest(exact=True, filter=optional_filter(request.filter)))


def retrieve(shard: edge.EdgeShard, request: wire.Retrieve) -> list[wire.Record]:
    """Read points in the order of the ids; unknown ones are left out."""
    records = shard.retrieve(list(request.ids), request.with_payload, request.with_vectors)
    by_id = {plain_id(found.id): found for found in records}
    return [to_record(by_id[point_id]) for point_id in request.ids if point_id in by_id]


def known_ids(shard: edge.EdgeShard, ids: list[wire.PointId]) -> set[wire.PointId]:
    return {plain_id(record.id) for record in shard.retrieve(list(ids), False, False)}


def matching_ids(shard: edge.EdgeShard, condition: wire.Filter) -> list[wire.PointId]:
    chosen = filter_(condition)
    matching = shard.count(edge.CountRequest(exact=True, filter=chosen))
    if not matching:
        return []
    page = edge.ScrollRequest(limit=matching, filter=chosen, with_payload=False, with_vector=False)
    return [plain_id(record.id) for record in shard.scroll(page)[0]]


def pages(
    shard: edge.EdgeShard, *, with_payload: bool = True, with_vectors: bool = False
) -> Iterator[list[wire.Record]]:
    """All points, in id order."""
    offset = None
    while True:
        page = edge.ScrollRequest(
            offset=offset, limit=_PAGE, with_payload=with_payload, with_vector=with_vectors
        )
        records, offset = shard.scroll(page)
        yield [to_record(record) for record in records]
        if offset is None:
            return


def ids(shard: edge.EdgeShard) -> set[wire.PointId]:
    return {record.id for page in pages(shard, with_payload=False) for record in page}


def checksums(shard: edge.EdgeShard) -> dict[wire.PointId, int]:
    return {record.id: checksum(record.payload) for page in pages(shard) for record in page}


def scroll(shard: edge.EdgeShard, request: wire.Scroll) -> wire.Page:
    order = request.order_by
    records, next_offset = shard.scroll(
        edge.ScrollRequest(
            offset=request.offset,
            limit=request.limit,
            filter=optional_filter(request.filter),
            with_payload=request.with_payload,
            with_vector=request.with_vectors,
            order_by=None if order is None else to_order(order),
        )
    )
    following = None if next_offset is None else plain_id(next_offset)
    return wire.Page([to_record(record) for record in records], following)


def facet(shard: edge.EdgeShard, request: wire.Facet) -> list[wire.FacetHit]:
    chosen = optional_filter(request.filter)
    counting = edge.FacetRequest(request.key, limit=request.limit, exact=True, filter=chosen)
    return [wire.FacetHit(hit.value, hit.count) for hit in shard.facet(counting)]


# A batch of queries over one shard: the engine scores adjacent queries together if they use the same vector,
# so they are sorted by it. A point's contents are read and sent once, however many queries return it.


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
    """The points of each query, in the order of the queries, without payload and vectors."""
    order = sorted(range(len(queries)), key=lambda at: queries[at].using)
    batch = edge.QueryBatchRequest([to_query(queries[at]) for at in order])
    by_place = dict(zip(order, shard.query_batch(batch), strict=True))
    return [by_place[at] for at in range(len(queries))]


class _Records:
    """Collects which points are needed with which contents; each such pair gets a place in the result."""

    def __init__(self, shard: edge.EdgeShard) -> None:
        self._shard = shard
        self._contents: list[Contents] = []
        self._places: dict[tuple[int, wire.PointId], int] = {}

    def places(self, contents: Contents, points: Iterable[edge.ScoredPoint]) -> list[int]:
        if contents not in self._contents:
            self._contents.append(contents)
        number = self._contents.index(contents)
        return [self._places.setdefault((number, plain_id(point.id)), len(self._places)) for point in points]

    def read(self) -> list[wire.Record]:
        """The records, in the order of their places."""
        read: dict[tuple[int, wire.PointId], wire.Record] = {}
        for number, (payload, vectors) in enumerate(self._contents):
            ids = [point_id for asked, point_id in self._places if asked == number]
            if payload is False and vectors is False:
                read |= {(number, point_id): wire.Record(point_id) for point_id in ids}
                continue
            for found in self._shard.retrieve(list(ids), payload, vectors):
                record = to_record(found)
                read[number, record.id] = record
        return [read[place] for place in self._places]


# ---- payload indexes ----------------------------------------------------------------------------


def indexes(shard: edge.EdgeShard) -> dict[str, wire.IndexSpec]:
    return {name: index_state(index).spec for name, index in shard.info().payload_schema.items()}


def is_indexed(
    shard: edge.EdgeShard, field: str, spec: wire.IndexSpec, records: Iterable[wire.Record]
) -> bool:
    """Whether a filter on `field` finds these points by the values in their payloads."""
    points: dict[tuple[Any, ...], list[wire.PointId]] = {}
    for record in records:
        values = _values(record, field)
        if all(type(value) is _INDEXED.get(spec.kind) for value in values):
            points.setdefault(values, []).append(record.id)
    groups: list[wire.Condition] = [
        wire.Filter(must=[wire.HasId(ids), *_holds(field, spec, values)]) for values, ids in points.items()
    ]
    found = count(shard, wire.Count("", filter=wire.Filter(should=groups))) if groups else 0
    return found == sum(map(len, points.values()))


def rebuild_index(shard: edge.EdgeShard, field: str, spec: wire.IndexSpec) -> None:
    """Rebuild an index from the payloads; takes some 20 microseconds per point."""
    shard.update(edge.UpdateOperation.delete_field_index(field))
    shard.update(edge.UpdateOperation.create_field_index(field, index_schema(spec)))
    shard.flush()


_INDEXED: dict[str, type] = {"keyword": str, "integer": int, "bool": bool}


def _values(record: wire.Record, field: str) -> tuple[Any, ...]:
    stored = (record.payload or {}).get(field)
    values = tuple(dict.fromkeys(stored)) if isinstance(stored, list) else (stored,)
    return values if values != (None,) else ()


def _holds(field: str, spec: wire.IndexSpec, values: tuple[Any, ...]) -> Iterator[wire.Condition]:
    if not values:
        yield wire.IsEmpty(field)
        return
    yield wire.Filter(must_not=[wire.IsEmpty(field)])
    in_range = spec.kind == "integer" and spec.lookup is False
    for value in values:
        yield wire.InRange(field, gte=value, lte=value) if in_range else wire.MatchValue(field, value)
