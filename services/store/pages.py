"""Every matching point, page by page, and long lists of ids in batches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, TypeVar

from services.store.dialect import Filter, Record, VectorStore

T = TypeVar("T")

PAGE = 256
"""Points a request: a page with payloads stays below a megabyte, and the store answers others in between."""
IDS_AT_ONCE = 500
"""Ids named in one request: naming one in a filter costs the store 5 µs and more."""


async def scroll_pages(
    store: VectorStore,
    collection: str,
    point_filter: Filter | None = None,
    *,
    size: int = PAGE,
    with_payload: Any = True,
    with_vectors: Any = False,
) -> AsyncIterator[list[Record]]:
    """Pages of at most `size` points in id order, none empty; what is written meanwhile may be missed."""
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


def batches(items: Sequence[T], size: int = IDS_AT_ONCE) -> Iterator[list[T]]:
    """In order, each of `size` items, the last one of what is left."""
    return (list(items[start : start + size]) for start in range(0, len(items), size))
