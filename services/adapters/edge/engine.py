"""Between the wire and the engine's own types, both ways. Runs in the store process only."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

import qdrant_edge as edge

from services.adapters.edge import wire

_DISTANCES = {name: getattr(edge.Distance, name) for name in ("Cosine", "Dot", "Euclid", "Manhattan")}
_LEAST_HALVED = 64  # numbers
_FEW = 16
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
            name: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf if idf else None)
            for name, idf in spec.sparse_idf.items()
        }
        or None,
    )


def _vector_params(dense: wire.DenseSpec) -> edge.EdgeVectorParams:
    """In 16 bits a number a long vector takes half the room and is scanned twice as fast.

    Its cosines differ by less than 0.00001. Collections made in 32 bits stay so until they are compacted.
    """
    small = dense.distance == "Cosine" and dense.size >= _LEAST_HALVED
    datatype = edge.VectorStorageDatatype.Turbo16 if small else None
    return edge.EdgeVectorParams(dense.size, _DISTANCES[dense.distance], datatype=datatype)


def index_schema(spec: wire.IndexSpec) -> Any:
    if spec.kind == "keyword":
        return edge.KeywordIndexParams(is_tenant=spec.is_tenant)
    if spec.kind == "integer":
        return edge.IntegerIndexParams(lookup=spec.lookup, range=spec.range)
    return _INDEX_KINDS[spec.kind]


def floats(raw: bytes) -> list[float]:
    values = array("f")
    values.frombytes(raw)
    return values.tolist()


def _vector(vector: wire.Vector) -> Any:
    if isinstance(vector, bytes):
        return floats(vector)
    indices = array("I")
    indices.frombytes(vector.indices)
    return edge.SparseVector(indices.tolist(), floats(vector.values))


def points(batch: Iterable[wire.Point]) -> list[edge.Point]:
    return [edge.Point(p.id, _vectors_in(p.vectors), p.payload) for p in batch]


def point_vectors(batch: Iterable[wire.Point]) -> list[edge.PointVectors]:
    return [edge.PointVectors(p.id, _vectors_in(p.vectors)) for p in batch]


def _vectors_in(vectors: wire.Vectors) -> dict[str, Any]:
    return {name: _vector(vector) for name, vector in vectors.items()}


def _range(c: wire.InRange) -> Any:
    return edge.FieldCondition(c.key, range=edge.RangeFloat(gt=c.gt, gte=c.gte, lt=c.lt, lte=c.lte))


class _Boolean:
    """A truth value that the engine does not take for a number.

    qdrant-edge-py 0.9.0 reads Python's True as the integer 1, which no stored `true` equals; its binding
    recognises the boolean of one library only, and by name.
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
    """A few values one by one: for every point that is scanned, the engine asks for a list 50 ns longer."""
    if 0 < len(c.values) <= _FEW:
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


def order_by(order: wire.OrderBy) -> edge.OrderBy:
    direction = edge.Direction.Desc if order.descending else edge.Direction.Asc
    return edge.OrderBy(order.key, direction, order.start_from)


def query(request: wire.Query) -> edge.QueryRequest:
    """What the points hold is left out: it is read afterwards."""
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


def record(stored: edge.Record) -> wire.Record:
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
