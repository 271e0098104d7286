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
    if spec.kind == "uuid":
        return edge.UuidIndexParams(is_tenant=spec.is_tenant)
    if spec.kind == "integer":
        return edge.IntegerIndexParams(lookup=spec.lookup, range=spec.range, is_principal=spec.is_principal)
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


def _time(c: wire.InTime) -> Any:
    return edge.FieldCondition(c.key, range=edge.RangeDateTime(gt=c.gt, gte=c.gte, lt=c.lt, lte=c.lte))


def _count(c: wire.HasCount) -> Any:
    return edge.FieldCondition(c.key, values_count=edge.ValuesCount(gt=c.gt, gte=c.gte, lt=c.lt, lte=c.lte))


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


def _match_except(c: wire.MatchExcept) -> Any:
    return edge.FieldCondition(c.key, match=edge.MatchExcept(c.values))  # type: ignore[arg-type]


_CONDITIONS: dict[type[wire.Message], Callable[[Any], Any]] = {
    wire.MatchValue: _match_value,
    wire.MatchAny: _match_any,
    wire.MatchExcept: _match_except,
    wire.MatchText: lambda c: edge.FieldCondition(c.key, match=edge.MatchText(c.text)),
    wire.InRange: _range,
    wire.InTime: _time,
    wire.HasCount: _count,
    wire.IsEmpty: lambda c: edge.IsEmptyCondition(c.key),
    wire.IsNull: lambda c: edge.IsNullCondition(c.key),
    wire.HasId: lambda c: edge.HasIdCondition(set(c.ids)),
    wire.HasVector: lambda c: edge.HasVectorCondition(c.name),
    wire.Nested: lambda c: edge.NestedCondition(c.key, filter_(c.filter)),
    wire.Filter: lambda c: filter_(c),
}


def filter_(condition: wire.Filter) -> edge.Filter:
    least = condition.min_should
    return edge.Filter(
        must=_conditions(condition.must),
        should=_conditions(condition.should),
        must_not=_conditions(condition.must_not),
        min_should=None if least is None else edge.MinShould(_conditions(least) or [], condition.min_count),
    )


def optional_filter(condition: wire.Filter | None) -> edge.Filter | None:
    return None if condition is None else filter_(condition)


def _conditions(conditions: list[wire.Condition] | None) -> list[Any] | None:
    return None if conditions is None else [_CONDITIONS[type(c)](c) for c in conditions]


def order_by(order: wire.OrderBy) -> edge.OrderBy:
    direction = edge.Direction.Desc if order.descending else edge.Direction.Asc
    return edge.OrderBy(order.key, direction, order.start_from)


def _ranking(ranking: wire.Ranking | None) -> Any:
    match ranking:
        case None:
            return None
        case wire.Nearest():
            return edge.Query.Nearest(_vector(ranking.vector), using=ranking.using)
        case wire.Rrf():
            return edge.Fusion.Rrf(ranking.k, ranking.weights)
        case wire.Dbsf():
            return edge.Fusion.Dbsf()
        case wire.OrderBy():
            return order_by(ranking)


def _prefetch(prefetch: wire.Prefetch) -> edge.Prefetch:
    return edge.Prefetch(
        limit=prefetch.limit,
        query=_ranking(prefetch.ranking),
        prefetches=[_prefetch(inner) for inner in prefetch.prefetches],
        filter=optional_filter(prefetch.filter),
        score_threshold=prefetch.score_threshold,
    )


def query(request: wire.Query) -> edge.QueryRequest:
    """What the points hold is left out: it is read afterwards."""
    return edge.QueryRequest(
        limit=request.limit,
        offset=request.offset,
        query=_ranking(request.ranking),
        prefetches=[_prefetch(prefetch) for prefetch in request.prefetches],
        with_vector=False,
        with_payload=False,
        filter=optional_filter(request.filter),
        score_threshold=request.score_threshold,
        params=_search_params(request),
    )


def _search_params(request: wire.Query) -> edge.SearchParams | None:
    if request.idf_corpus is not None:
        idf = edge.IdfParams(filter_(request.idf_corpus))
        return edge.SearchParams(exact=request.exact, idf=idf)
    return edge.SearchParams(exact=True) if request.exact else None


def payload_choice(choice: wire.PayloadChoice) -> Any:
    if isinstance(choice, bool):
        return choice
    return edge.PayloadSelector.Exclude(choice.keys) if choice.exclude else choice.keys


# ---- from the engine ----------------------------------------------------------------------------


def plain_id(point_id: Any) -> wire.PointId:
    return str(point_id) if isinstance(point_id, UUID) else point_id


def record(found: edge.Record) -> wire.Found:
    return wire.Found(
        plain_id(found.id), found.payload, _vectors_out(found.vector), order_value=found.order_value
    )


def _vectors_out(vectors: Any) -> wire.Vectors | None:
    return None if vectors is None else {name: _vector_out(vector) for name, vector in vectors.items()}


def _vector_out(vector: Any) -> wire.Vector:
    if isinstance(vector, edge.SparseVector):
        return wire.SparseValues(array("I", vector.indices).tobytes(), array("f", vector.values).tobytes())
    return array("f", vector).tobytes()


def index_state(index: edge.PayloadIndexInfo) -> wire.IndexState:
    kind = next(name for name, value in _INDEX_KINDS.items() if value == index.data_type)
    options = ("is_tenant", "lookup", "range", "is_principal")
    chosen = {option: getattr(index.params, option, None) for option in options}
    return wire.IndexState(wire.IndexSpec(kind, **chosen), index.points)
