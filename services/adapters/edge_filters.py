"""Filters and point selectors of the client dialect, turned into wire messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any
from uuid import UUID

import msgspec
from qdrant_client import models

from services.adapters import edge_parts as parts
from services.store import StoreRequestError, UnsupportedByStoreError


class Target(msgspec.Struct, frozen=True):
    """The points an update is for: exactly one of the two is set."""

    ids: list[parts.PointId] | None = None
    filter: parts.Filter | None = None


def unsupported(what: object) -> UnsupportedByStoreError:
    name = what if isinstance(what, str) else type(what).__name__
    return UnsupportedByStoreError(f"the embedded store does not know {name}")


def point_id(value: object) -> parts.PointId:
    """The id as the engine gives it back: an int, or a UUID in lower case with hyphens."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    try:
        return str(UUID(str(value)))
    except ValueError:
        raise StoreRequestError(f"{value!r} is no point id: neither a UUID nor an unsigned integer") from None


def point_ids(values: Sequence[object]) -> list[parts.PointId]:
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


def optional_filter(condition: models.Filter | None) -> parts.Filter | None:
    return None if condition is None else to_filter(condition)


def to_filter(condition: models.Filter) -> parts.Filter:
    least = condition.min_should
    return parts.Filter(
        must=_conditions(condition.must),
        should=_conditions(condition.should),
        must_not=_conditions(condition.must_not),
        min_should=None if least is None else _conditions(least.conditions),
        min_count=0 if least is None else least.min_count,
    )


def _conditions(conditions: Any) -> list[parts.Condition] | None:
    """The dialect takes one condition where it takes a list."""
    if conditions is None:
        return None
    if not isinstance(conditions, list):
        conditions = [conditions]
    return [_condition(condition) for condition in conditions]


def _condition(condition: object) -> parts.Condition:
    try:
        translate = _CONDITIONS[type(condition)]
    except KeyError:
        raise unsupported(condition) from None
    return translate(condition)


def _field(condition: models.FieldCondition) -> parts.Condition:
    """A field condition asks exactly one thing of its key."""
    asked = [name for name in type(condition).model_fields if getattr(condition, name) is not None]
    asked.remove("key")
    if len(asked) != 1:
        raise StoreRequestError(f"a condition on {condition.key!r} asks {len(asked)} things instead of one")
    if asked[0] not in _FIELDS:
        raise unsupported(f"FieldCondition({asked[0]}=…)")
    return _FIELDS[asked[0]](condition)


def _match(condition: models.FieldCondition) -> parts.Condition:
    match condition.match:
        case models.MatchValue(value=value):
            return parts.MatchValue(condition.key, value)
        case models.MatchAny(any=values):
            return parts.MatchAny(condition.key, list(values))
        case models.MatchExcept(except_=values):
            return parts.MatchExcept(condition.key, list(values))
        case models.MatchText(text=text):
            return parts.MatchText(condition.key, text)
        case unknown:
            raise unsupported(unknown)


def _range(condition: models.FieldCondition) -> parts.Condition:
    bounds = condition.range
    if isinstance(bounds, models.Range):
        return parts.InRange(condition.key, bounds.gt, bounds.gte, bounds.lt, bounds.lte)
    assert isinstance(bounds, models.DatetimeRange)
    return parts.InTime(
        condition.key, _text(bounds.gt), _text(bounds.gte), _text(bounds.lt), _text(bounds.lte)
    )


def _text(moment: datetime | date | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _values_count(condition: models.FieldCondition) -> parts.Condition:
    bounds = condition.values_count
    assert bounds is not None
    return parts.HasCount(condition.key, bounds.gt, bounds.gte, bounds.lt, bounds.lte)


def _is(flag: bool, condition: parts.Condition) -> parts.Condition:
    return condition if flag else parts.Filter(must_not=[condition])


_FIELDS: dict[str, Callable[[models.FieldCondition], parts.Condition]] = {
    "match": _match,
    "range": _range,
    "values_count": _values_count,
    "is_empty": lambda c: _is(bool(c.is_empty), parts.IsEmpty(c.key)),
    "is_null": lambda c: _is(bool(c.is_null), parts.IsNull(c.key)),
}

_CONDITIONS: dict[type, Callable[[Any], parts.Condition]] = {
    models.FieldCondition: _field,
    models.IsEmptyCondition: lambda c: parts.IsEmpty(c.is_empty.key),
    models.IsNullCondition: lambda c: parts.IsNull(c.is_null.key),
    models.HasIdCondition: lambda c: parts.HasId(point_ids(c.has_id)),
    models.HasVectorCondition: lambda c: parts.HasVector(c.has_vector),
    models.NestedCondition: lambda c: parts.Nested(c.nested.key, to_filter(c.nested.filter)),
    models.Filter: to_filter,
}
