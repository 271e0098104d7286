"""Points and queries of the client dialect, turned into wire messages."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any
from uuid import UUID

import msgspec
from pydantic_core import to_jsonable_python
from qdrant_client import models

from services.adapters.edge import wire
from services.store.dialect import StoreRequestError, UnsupportedByStoreError

# Filters and point selectors of the client dialect, turned into wire messages.


class Target(msgspec.Struct, frozen=True):
    """The points an update is for: exactly one of the two is set."""

    ids: list[wire.PointId] | None = None
    filter: wire.Filter | None = None


def unsupported(what: object) -> UnsupportedByStoreError:
    name = what if isinstance(what, str) else type(what).__name__
    return UnsupportedByStoreError(f"the embedded store does not know {name}")


def point_id(value: object) -> wire.PointId:
    """The id as the engine gives it back: an int, or a UUID in lower case with hyphens."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    try:
        return str(UUID(str(value)))
    except ValueError:
        raise StoreRequestError(f"{value!r} is no point id: neither a UUID nor an unsigned integer") from None


def point_ids(values: Sequence[object]) -> list[wire.PointId]:
    return [point_id(value) for value in values]


def target(selector: object) -> Target:
    """Ids, PointIdsList, Filter or FilterSelector. No ids at all are refused, as a server refuses them."""
    match selector:
        case models.Filter():
            return Target(filter=to_filter(selector))
        case models.FilterSelector():
            return Target(filter=to_filter(selector.filter))
        case models.PointIdsList():
            return target(selector.points)
        case list() | tuple():
            if not selector:
                raise StoreRequestError("Empty update request")
            return Target(ids=point_ids(selector))
        case _:
            raise unsupported(selector)


def optional_filter(condition: models.Filter | None) -> wire.Filter | None:
    return None if condition is None else to_filter(condition)


def to_filter(condition: models.Filter) -> wire.Filter:
    least = condition.min_should
    return wire.Filter(
        must=_conditions(condition.must),
        should=_conditions(condition.should),
        must_not=_conditions(condition.must_not),
        min_should=None if least is None else _conditions(least.conditions),
        min_count=0 if least is None else least.min_count,
    )


def _conditions(conditions: Any) -> list[wire.Condition] | None:
    """The dialect takes one condition where it takes a list."""
    if conditions is None:
        return None
    if not isinstance(conditions, list):
        conditions = [conditions]
    return [_condition(condition) for condition in conditions]


def _condition(condition: object) -> wire.Condition:
    try:
        translate = _CONDITIONS[type(condition)]
    except KeyError:
        raise unsupported(condition) from None
    return translate(condition)


def _field(condition: models.FieldCondition) -> wire.Condition:
    """A field condition asks exactly one thing of its key."""
    asked = [name for name in type(condition).model_fields if getattr(condition, name) is not None]
    asked.remove("key")
    if len(asked) != 1:
        raise StoreRequestError(f"a condition on {condition.key!r} asks {len(asked)} things instead of one")
    if asked[0] not in _FIELDS:
        raise unsupported(f"FieldCondition({asked[0]}=…)")
    return _FIELDS[asked[0]](condition)


def _match(condition: models.FieldCondition) -> wire.Condition:
    match condition.match:
        case models.MatchValue(value=value):
            return wire.MatchValue(condition.key, value)
        case models.MatchAny(any=values):
            return wire.MatchAny(condition.key, list(values))
        case models.MatchExcept(except_=values):
            return wire.MatchExcept(condition.key, list(values))
        case models.MatchText(text=text):
            return wire.MatchText(condition.key, text)
        case unknown:
            raise unsupported(unknown)


def _range(condition: models.FieldCondition) -> wire.Condition:
    bounds = condition.range
    if isinstance(bounds, models.Range):
        return wire.InRange(condition.key, bounds.gt, bounds.gte, bounds.lt, bounds.lte)
    assert isinstance(bounds, models.DatetimeRange)
    return wire.InTime(
        condition.key, _text(bounds.gt), _text(bounds.gte), _text(bounds.lt), _text(bounds.lte)
    )


def _text(moment: datetime | date | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _values_count(condition: models.FieldCondition) -> wire.Condition:
    bounds = condition.values_count
    assert bounds is not None
    return wire.HasCount(condition.key, bounds.gt, bounds.gte, bounds.lt, bounds.lte)


def _is(flag: bool, condition: wire.Condition) -> wire.Condition:
    return condition if flag else wire.Filter(must_not=[condition])


_FIELDS: dict[str, Callable[[models.FieldCondition], wire.Condition]] = {
    "match": _match,
    "range": _range,
    "values_count": _values_count,
    "is_empty": lambda c: _is(bool(c.is_empty), wire.IsEmpty(c.key)),
    "is_null": lambda c: _is(bool(c.is_null), wire.IsNull(c.key)),
}

_CONDITIONS: dict[type, Callable[[Any], wire.Condition]] = {
    models.FieldCondition: _field,
    models.IsEmptyCondition: lambda c: wire.IsEmpty(c.is_empty.key),
    models.IsNullCondition: lambda c: wire.IsNull(c.is_null.key),
    models.HasIdCondition: lambda c: wire.HasId(point_ids(c.has_id)),
    models.HasVectorCondition: lambda c: wire.HasVector(c.has_vector),
    models.NestedCondition: lambda c: wire.Nested(c.nested.key, to_filter(c.nested.filter)),
    models.Filter: to_filter,
}


# What a server takes when a fusion names no constant.
DEFAULT_RRF_K = 2
DEFAULT_LIMIT = 10


def point(struct: models.PointStruct) -> wire.Point:
    payload = None if struct.payload is None else to_jsonable_python(struct.payload)
    return wire.Point(point_id(struct.id), _vectors(struct.vector), payload)


def point_vectors(struct: models.PointVectors) -> wire.Point:
    return wire.Point(point_id(struct.id), _vectors(struct.vector))


def _vectors(vectors: object) -> wire.Vectors:
    if not isinstance(vectors, dict):
        raise unsupported("an unnamed vector")
    return {name: _vector(vector) for name, vector in vectors.items()}


def _vector(vector: object) -> wire.Vector:
    if isinstance(vector, models.SparseVector):
        if len(vector.indices) != len(vector.values):
            raise StoreRequestError("a sparse vector has as many values as indices")
        return wire.SparseValues(array("I", vector.indices).tobytes(), _float32(vector.values))
    if isinstance(vector, list) and not (vector and isinstance(vector[0], list)):
        return _float32(vector)
    raise unsupported(f"a vector of type {type(vector).__name__}")


def _float32(values: list[float]) -> bytes:
    return array("f", values).tobytes()


def payload_choice(choice: object) -> wire.PayloadChoice:
    match choice:
        case None:
            return False
        case bool():
            return choice
        case list() | tuple():
            return wire.PayloadKeys(list(choice))
        case models.PayloadSelectorInclude():
            return wire.PayloadKeys(choice.include)
        case models.PayloadSelectorExclude():
            return wire.PayloadKeys(choice.exclude, exclude=True)
        case _:
            raise unsupported(choice)


def vector_choice(choice: object) -> wire.VectorChoice:
    match choice:
        case None:
            return False
        case bool():
            return choice
        case list() | tuple():
            return list(choice)
        case _:
            raise unsupported(choice)


def order_by(order: str | models.OrderBy | None) -> wire.OrderBy | None:
    if order is None:
        return None
    if isinstance(order, str):
        return wire.OrderBy(order)
    start = order.start_from
    from_ = start if start is None or isinstance(start, int | float | str) else start.isoformat()
    return wire.OrderBy(order.key, order.direction == models.Direction.DESC, from_)


def query(request: models.QueryRequest) -> wire.Query:
    if request.lookup_from is not None:
        raise unsupported("lookup_from")
    return wire.Query(
        limit=_positive_limit(request.limit),
        offset=request.offset or 0,
        ranking=_ranking(request.query, request.using),
        filter=optional_filter(request.filter),
        score_threshold=request.score_threshold,
        prefetches=_prefetches(request.prefetch),
        with_payload=payload_choice(request.with_payload),
        with_vectors=vector_choice(request.with_vector),
        exact=bool(request.params and request.params.exact),
        idf_corpus=_idf_corpus(request.params and request.params.idf),
    )


def _idf_corpus(idf: object) -> wire.Filter | None:
    """None is the whole collection."""
    return to_filter(idf.corpus) if isinstance(idf, models.IdfCorpusParams) else None


def _positive_limit(limit: int | None) -> int:
    if limit is not None and limit < 1:
        raise StoreRequestError(f"limit value {limit} is invalid. Must be 1 or larger.")
    return DEFAULT_LIMIT if limit is None else limit


def _prefetches(prefetch: Any) -> list[wire.Prefetch]:
    if prefetch is None:
        return []
    given: Sequence[models.Prefetch] = [prefetch] if isinstance(prefetch, models.Prefetch) else prefetch
    if any(inner.lookup_from is not None for inner in given):
        raise unsupported("lookup_from")
    return [
        wire.Prefetch(
            limit=_positive_limit(inner.limit),
            ranking=_ranking(inner.query, inner.using),
            filter=optional_filter(inner.filter),
            score_threshold=inner.score_threshold,
            prefetches=_prefetches(inner.prefetch),
        )
        for inner in given
    ]


def _ranking(asked: object, using: str | None) -> wire.Ranking | None:
    match asked:
        case None:
            return None
        case models.NearestQuery(mmr=None):
            return _ranking(asked.nearest, using)
        case models.FusionQuery(fusion=models.Fusion.RRF):
            return wire.Rrf(DEFAULT_RRF_K)
        case models.FusionQuery(fusion=models.Fusion.DBSF):
            return wire.Dbsf()
        case models.RrfQuery():
            return wire.Rrf(asked.rrf.k or DEFAULT_RRF_K, asked.rrf.weights)
        case models.OrderByQuery():
            return order_by(asked.order_by)
        case list() | models.SparseVector():
            return wire.Nearest(_vector(asked), _named(using))
        case _:
            raise unsupported(f"a query of type {type(asked).__name__}")


def _named(using: str | None) -> str:
    if not using:
        raise unsupported("a query without the name of its vector")
    return using
