"""Conditions on stored payloads, selectors of points and sparse vectors: one function for each that Wenmai
speaks."""

from __future__ import annotations

from collections.abc import Iterable

from qdrant_client.http.models import models

from core.relevance.sparse import SparseTerms
from services.store.dialect import Condition, Filter, PointSelector, SparseVector


def equals(field: str, value: str | int | bool) -> models.FieldCondition:
    return models.FieldCondition(key=field, match=models.MatchValue(value=value))


def any_of(field: str, values: Iterable[str]) -> models.FieldCondition:
    """The field, or an item of its list, is one of `values`; without values nothing matches."""
    return models.FieldCondition(key=field, match=models.MatchAny(any=list(values)))


def in_range(
    field: str,
    *,
    gt: float | None = None,
    gte: float | None = None,
    lt: float | None = None,
    lte: float | None = None,
) -> models.FieldCondition:
    return models.FieldCondition(key=field, range=models.Range(gt=gt, gte=gte, lt=lt, lte=lte))


def is_empty(field: str) -> models.IsEmptyCondition:
    """The field is absent, null, or an empty list."""
    return models.IsEmptyCondition(is_empty=models.PayloadField(key=field))


def of_sample(shared_owner: str) -> Filter:
    """Documents, or chunks, of the guide that came with Wenmai: shared, and of no followed folder. Those of
    early versions have no field for it."""
    return Filter(must=[equals("owner", shared_owner)], should=[equals("source", ""), is_empty("source")])


def has_id(point_ids: Iterable[models.ExtendedPointId]) -> models.HasIdCondition:
    return models.HasIdCondition(has_id=list(point_ids))


def has_vector(name: str) -> models.HasVectorCondition:
    return models.HasVectorCondition(has_vector=name)


def in_session(session_id: str, owner: str) -> list[Condition]:
    return [equals("session_id", session_id), equals("owner", owner)]


def newest_first(field: str) -> models.OrderBy:
    return models.OrderBy(key=field, direction=models.Direction.DESC)


def ascending(field: str, start_from: int | None = None) -> models.OrderBy:
    return models.OrderBy(key=field, direction=models.Direction.ASC, start_from=start_from)


def by_ids(point_ids: Iterable[models.ExtendedPointId]) -> PointSelector:
    return models.PointIdsList(points=list(point_ids))


def matching(point_filter: Filter) -> PointSelector:
    return models.FilterSelector(filter=point_filter)


def sparse_vector(terms: SparseTerms) -> SparseVector:
    return SparseVector(indices=terms.indices, values=terms.values)
