"""The points of a collection: selected by conditions on stored payloads and by ids, and read page by page
(all matches), in batches (long lists of ids), or field by field (stored records)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import structlog
from pydantic import BaseModel, TypeAdapter, ValidationError
from qdrant_client.http.models import models

from core.errors import BadRequestError
from core.knowledge import SHARED_OWNER
from core.relevance.sparse import SparseTerms, encode_document
from services.store.dialect import Condition, Filter, PointSelector, Record, SparseVector, VectorStore

log = structlog.get_logger()

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

PAGE = 256
"""Points per request: a page with payloads stays below a megabyte, and other requests run in between."""
IDS_AT_ONCE = 500
"""Ids per request: each one named in a filter costs the store 5 µs or more."""


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


def of_sample() -> Filter:
    """Matches documents or chunks of the guide that comes with Wenmai: shared, and from no followed folder
    (`source`, a field that early versions did not write)."""
    return Filter(must=[equals("owner", SHARED_OWNER)], should=[equals("source", ""), is_empty("source")])


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


def sparse_vectors(texts: Iterable[str]) -> list[SparseVector | None]:
    """Return one vector per text; None for a text without words."""
    encoded = map(encode_document, texts)
    return [sparse_vector(terms) if terms.indices else None for terms in encoded]


async def scroll_pages(
    store: VectorStore,
    collection: str,
    point_filter: Filter | None = None,
    *,
    size: int = PAGE,
    with_payload: Any = True,
    with_vectors: Any = False,
) -> AsyncIterator[list[Record]]:
    """Yield non-empty pages of up to `size` points in id order; points written meanwhile may be missed."""
    offset: Any = None
    while True:
        records, offset = await store.scroll(
            collection,
            scroll_filter=point_filter,
            limit=size,
            offset=offset,
            with_payload=with_payload,
            with_vectors=with_vectors,
        )
        if records:
            yield records
        if offset is None:
            return


async def scroll_all(
    store: VectorStore,
    collection: str,
    point_filter: Filter | None = None,
    *,
    size: int = PAGE,
    with_payload: Any = True,
    with_vectors: Any = False,
) -> AsyncIterator[Record]:
    """The points of `scroll_pages`, one by one."""
    pages = scroll_pages(
        store, collection, point_filter, size=size, with_payload=with_payload, with_vectors=with_vectors
    )
    async for page in pages:
        for record in page:
            yield record


def read_cursor(cursor: str) -> tuple[int, str]:
    """Parse `microseconds.id`, the last item of a newest-first page, into its sort key.

    Raises BadRequestError naming `cursor`.
    """
    last_us, _, name = cursor.partition(".")
    if not (last_us.isascii() and last_us.isdigit() and len(last_us) <= 18 and name):
        raise BadRequestError("cursor: not one that this server returned.")
    return -int(last_us), name


def batches(items: Sequence[T], size: int = IDS_AT_ONCE) -> Iterator[list[T]]:
    """Consecutive batches of `size` items; the last one may be shorter."""
    return (list(items[start : start + size]) for start in range(0, len(items), size))


def read_leniently(form: type[M], stored: Mapping[str, Any], point_id: str) -> M:
    """Parse `stored`; unreadable fields take their defaults. Raises ValidationError if a field without a
    default is missing or unreadable."""
    try:
        return form.model_validate(stored)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        unreadable = {str(each["loc"][0]) for each in errors}
        readable = {name: value for name, value in stored.items() if name not in unreadable}
        read = form.model_validate(readable)
    log.warning("fields_unreadable", point_id=point_id, number=len(unreadable), fields=sorted(unreadable))
    return read


def read_or_none(form: TypeAdapter[T], stored: object, event: str, **known: str) -> T | None:
    """Parse `stored`; if unreadable, return None and log `event` with `known`, but none of the content."""
    try:
        return form.validate_python(stored)
    except ValidationError as error:
        log.warning(event, errors=error.error_count(), **known)
        return None


async def retrieve_all(
    store: VectorStore, collection: str, ids: Iterable[Any], with_payload: Any, *, size: int = IDS_AT_ONCE
) -> AsyncIterator[Record]:
    """Yield the existing points among these ids, read lazily in batches of `size`."""
    for page in batches(list(ids), size):
        for record in await store.retrieve(collection, page, with_payload=with_payload):
            yield record


async def existing_points(store: VectorStore, collection: str, ids: Sequence[Any]) -> set[str]:
    """Return the ids among `ids` that exist in the collection."""
    return {str(each.id) async for each in retrieve_all(store, collection, ids, False)}
