"""Documents' chunks in the store: written by version, published all at once, read by page, erased; and which
of them a question searches: beside the owner's own documents, the sample is searched only when asked for."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from time import monotonic
from typing import Any

import structlog
from pydantic import TypeAdapter

from config.settings import StoreSettings
from core.dates import first_day
from core.errors import BadRequestError, StoreUnavailableError
from core.knowledge import SHARED_OWNER, Chunk, Document, KnowledgeFilter, SearchScope
from core.relevance.features import LANGUAGE_CHARS
from core.relevance.query import Query, follow_up_weight
from core.text import canonical_uuid, fold_width, holds_chinese
from services.knowledge.documents import DocumentStore
from services.knowledge.upload import version_of
from services.store.dialect import Filter, Point, SparseVector, VectorStore
from services.store.points import (
    ascending,
    by_ids,
    equals,
    has_id,
    in_range,
    is_empty,
    matching,
    scroll_all,
    scroll_pages,
)

log = structlog.get_logger()
_CHUNK = TypeAdapter(Chunk)
_DELETE_ATTEMPTS = 3
# The fields `Chunk.indexed_text` is made of, and those a payload must have.
_TEXT_FIELDS = ["chunk_id", "document_id", "file_name", "text", "position", "heading", "date", "title"]
SIGNS = "token_signs"  # and vectors of parts; longer than the chunk itself, so read for candidates only
CHUNK_FIELDS = [field.name for field in fields(Chunk)]
FRESH_S = 10.0  # how long a search scope is valid if other workers add and remove documents, too
_PRODUCT = re.compile(r"wenmai|[问問][脉脈]", re.IGNORECASE)


def chunk_payload(
    chunk: Chunk, owner: str, created_us: int, *, ready: bool = False, signs: str = ""
) -> dict[str, Any]:
    """Return a chunk's payload, one point of the knowledge collection (point id = chunk_id).

    `ready` becomes true once the whole document is indexed; only ready chunks are searched. `created_us` is
    in UTC microseconds; `day` is the first day of its date as a number, 20260131, or 0; `chinese` is its
    language. `signs` are those of its tokens and parts, if the embedding model provides them.
    """
    more = {
        "owner": owner,
        "created_us": created_us,
        "ready": ready,
        "day": first_day(chunk.date),
        "chinese": is_chinese(chunk.heading, chunk.text),
    }
    return {**asdict(chunk), "tags": list(chunk.tags), **more, **({SIGNS: signs} if signs else {})}


def is_chinese(heading: str, text: str) -> bool:
    """Whether the chunk is Chinese; so is code or a table of names under a Chinese heading."""
    return holds_chinese(heading) or holds_chinese(f"{heading} {text}"[:LANGUAGE_CHARS])


def read_chunk(payload: Mapping[str, Any] | None) -> Chunk:
    """Parse a payload; fields added by later versions are ignored, missing ones take their defaults."""
    return _CHUNK.validate_python(payload or {})


@dataclass(frozen=True, slots=True)
class ChunkPage:
    """Chunks in document order. `next_cursor` is None on the last page."""

    chunks: tuple[Chunk, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class ChunkVectors:
    """`sparse` is None if the text has no words at all; `signs` are those of its tokens, "" for none."""

    dense: list[float]
    sparse: SparseVector | None
    signs: str = ""


class ChunkStore:
    """`version` identifies one content of a document. Every method raises StoreUnavailableError if the store
    does not answer."""

    def __init__(self, store: VectorStore, settings: StoreSettings) -> None:
        self._store = store
        self._chunks = settings.knowledge_collection

    async def add(self, points: Sequence[Point]) -> None:
        await self._store.upsert(self._chunks, points=list(points))

    async def publish(self, document_id: str, version: str) -> None:
        """Make the version's chunks searchable."""
        await self._set_ready(_version(document_id, version), ready=True)

    async def withdraw(self, document_id: str, version: str) -> None:
        """Make the version's chunks unsearchable."""
        await self._set_ready(_version(document_id, version), ready=False)

    async def describe(self, document: Document) -> None:
        """Copy the document's metadata from its record to its searchable chunks."""
        date = document.date or ""
        payload = {
            "owner": document.owner,
            "file_name": document.file_name,
            "tags": list(document.tags),
            "source": document.source,
            "date": date,
            "day": first_day(date),
        }
        await self._store.set_payload(self._chunks, payload=payload, points=_current(document))

    async def count_ready(self, document_id: str, version: str) -> int:
        must = [*(_version(document_id, version).must or ()), equals("ready", True)]
        return await self._count(Filter(must=must))

    async def count(self, document_id: str, version: str) -> int:
        return await self._count(_version(document_id, version))

    async def has(self, document_id: str, chunk_id: str) -> bool:
        """Whether the document has this chunk; the id may be any text."""
        if canonical_uuid(chunk_id) is None:
            return False
        return bool(await self._count(Filter(must=[has_id([chunk_id]), equals("document_id", document_id)])))

    async def remove_all(self, document_id: str) -> None:
        """Raises StoreUnavailableError if chunks remain afterwards, as do the next three methods."""
        await self._remove(Filter(must=[equals("document_id", document_id)]))

    async def remove_version(self, document_id: str, version: str) -> None:
        await self._remove(_version(document_id, version))

    async def remove_others(self, document_id: str, version: str) -> None:
        """Remove all chunks but this version's; those of earlier releases have no version."""
        of_it, current = equals("document_id", document_id), equals("version", version)
        await self._remove(Filter(must=[of_it], must_not=[current]))

    async def remove_from(self, document_id: str, version: str, position: int) -> None:
        """Remove the version's chunks from this position on."""
        of_version = _version(document_id, version)
        beyond = in_range("position", gte=position)
        await self._remove(Filter(must=[of_version, beyond]))

    async def texts(self, document_id: str) -> AsyncIterator[tuple[str, str]]:
        """Yield the point id and indexed text of every chunk of the document, in all versions."""
        point_filter = Filter(must=[equals("document_id", document_id)])
        async for record in scroll_all(self._store, self._chunks, point_filter, with_payload=_TEXT_FIELDS):
            yield str(record.id), read_chunk(record.payload).indexed_text

    async def fill_languages(self) -> None:
        """Set the language of chunks of earlier releases, which did not record it."""
        unknown, fields = Filter(must=[is_empty("chinese")]), ["heading", "text"]
        async for page in scroll_pages(self._store, self._chunks, unknown, with_payload=fields):
            by_language: dict[bool, list[str]] = {}
            for record in page:
                texts = (str((record.payload or {}).get(field, "")) for field in fields)
                by_language.setdefault(is_chinese(*texts), []).append(str(record.id))
            for chinese, ids in by_language.items():
                await self._store.set_payload(self._chunks, payload={"chinese": chinese}, points=by_ids(ids))

    async def vectors(self, ids: Sequence[str]) -> dict[str, ChunkVectors]:
        """Return vectors by point id; missing points and points without vectors are left out."""
        records = await self._store.retrieve(self._chunks, ids=ids, with_payload=[SIGNS], with_vectors=True)
        vectors: dict[str, ChunkVectors] = {}
        for record in records:
            vector = record.vector if isinstance(record.vector, dict) else {}
            dense, sparse = vector.get("dense"), vector.get("sparse")
            if isinstance(dense, list) and dense:
                words = sparse if isinstance(sparse, SparseVector) else None
                signs = str((record.payload or {}).get(SIGNS, ""))
                vectors[str(record.id)] = ChunkVectors(dense, words, signs)  # type: ignore[arg-type]
        return vectors

    async def page(self, document: Document, limit: int, cursor: str | None) -> ChunkPage:
        """Return a page of the document's searchable chunks. Raises BadRequestError naming `cursor`."""
        start = _read_position(cursor)
        if start >= document.chunk_count:
            return ChunkPage((), None)
        records, _ = await self._store.scroll(
            self._chunks,
            scroll_filter=_current(document),
            limit=limit,
            order_by=ascending("position", start),
            with_payload=CHUNK_FIELDS,
        )
        chunks = tuple(read_chunk(record.payload) for record in records)
        end = chunks[-1].position + 1 if chunks else document.chunk_count
        return ChunkPage(chunks, str(end) if end < document.chunk_count else None)

    async def _set_ready(self, point_filter: Filter, *, ready: bool) -> None:
        selector = matching(point_filter)
        await self._store.set_payload(self._chunks, payload={"ready": ready}, points=selector)

    async def _count(self, point_filter: Filter) -> int:
        return (await self._store.count(self._chunks, count_filter=point_filter)).count

    async def _remove(self, point_filter: Filter) -> None:
        for _ in range(_DELETE_ATTEMPTS):
            await self._store.delete(self._chunks, points_selector=matching(point_filter))
            if not await self._count(point_filter):
                return
        raise StoreUnavailableError("The document's chunks could not all be erased; try again.")


def _version(document_id: str, version: str) -> Filter:
    return Filter(must=[equals("document_id", document_id), equals("version", version)])


def _current(document: Document) -> Filter:
    """Match the document's current chunks; those of earlier releases have no version."""
    unnamed = is_empty("version")
    return Filter(
        must=[equals("document_id", document.document_id)],
        should=[equals("version", version_of(document.revision)), unnamed],
    )


def _read_position(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 9):
        raise BadRequestError("cursor: not one that this server returned.")
    return int(cursor)


# Measured on two cores (docs/decisions/0022): with this many, a retrieval takes 30 to 50 ms. The embedded
# store scans every chunk, so the time grows linearly.
MAX_EMBEDDED_CHUNKS = 200_000
ADVICE = "set QDRANT_URL: a Qdrant server searches an index, this store compares every chunk"


class KnowledgeSize:
    """Warns once if the embedded store holds more chunks than it is made for. Asks the store only when
    additions may have exceeded the limit.

    With QDRANT_URL there is no limit. Raises StoreUnavailableError if the store does not answer.
    """

    def __init__(
        self, store: VectorStore, settings: StoreSettings, max_chunks: int = MAX_EMBEDDED_CHUNKS
    ) -> None:
        self._store = store
        self._collection = settings.knowledge_collection
        self.max_chunks = max_chunks
        self._chunks = 0
        self._done = bool(settings.qdrant_url)

    async def measure(self) -> None:
        """Count the chunks; called at start, once the collection exists."""
        if self._done:
            return
        self._chunks = (await self._store.count(self._collection)).count
        if self._chunks > self.max_chunks:
            self._done = True
            log.warning("knowledge_large", chunks=self._chunks, made_for=self.max_chunks, advice=ADVICE)

    async def grew(self, chunks: int) -> None:
        """Add newly stored chunks; some of them may have replaced others."""
        self._chunks += chunks
        if not self._done and self._chunks > self.max_chunks:
            await self.measure()


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The scope as of `changes`, read at `at_s` on the monotonic clock."""

    scope: SearchScope
    changes: int
    at_s: float


class SamplePrecedence:
    """`one_process`: no other process uses the store, so a snapshot is valid until a document changes here;
    otherwise it is refreshed in the background after FRESH_S."""

    def __init__(
        self, documents: DocumentStore, *, one_process: bool, now_s: Callable[[], float] = monotonic
    ) -> None:
        self._documents = documents
        self._fresh_s = math.inf if one_process else FRESH_S
        self._now_s = now_s
        self._snapshots: dict[tuple[str, ...], _Snapshot] = {}
        self._refreshing: dict[tuple[str, ...], asyncio.Task[None]] = {}

    async def scope(self, query: Query, owners: tuple[str, ...], limits: KnowledgeFilter) -> SearchScope:
        """Return the search scope: without the sample if the owners have ready documents, unless the question
        names Wenmai or is limited to documents by id.

        Queries the store only the first time and after a document changed. Raises StoreUnavailableError.
        """
        if limits.document_ids or _names_product(query):
            return SearchScope(owners)
        snapshot = self._snapshots.get(owners)
        if snapshot is None or snapshot.changes != self._documents.changes:
            snapshot = await self._refresh(owners)
        elif self._now_s() - snapshot.at_s > self._fresh_s and owners not in self._refreshing:
            task = asyncio.create_task(self._refresh_quietly(owners))
            self._refreshing[owners] = task
            task.add_done_callback(lambda _: self._refreshing.pop(owners, None))
        return snapshot.scope

    async def close(self) -> None:
        """Cancel running refreshes."""
        tasks = list(self._refreshing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _refresh(self, owners: tuple[str, ...]) -> _Snapshot:
        changes, at_s = self._documents.changes, self._now_s()
        snapshot = self._snapshots[owners] = _Snapshot(await self._stored_scope(owners), changes, at_s)
        return snapshot

    async def _stored_scope(self, owners: tuple[str, ...]) -> SearchScope:
        """If only the sample is shared, dropping the shared owner excludes it for free; a condition on every
        chunk costs the embedded store 7 % of a search."""
        if not (await self._documents.has_sample() and await self._documents.has_ready(owners)):
            return SearchScope(owners)
        others = SHARED_OWNER in owners and await self._documents.has_ready((SHARED_OWNER,))
        searched = owners if others else tuple([owner for owner in owners if owner != SHARED_OWNER])
        return SearchScope(searched, without_sample=True)

    async def _refresh_quietly(self, owners: tuple[str, ...]) -> None:
        try:
            await self._refresh(owners)
        except StoreUnavailableError as error:  # reported by the question that needs the store
            log.debug("sample_unknown", error=str(error))


def _names_product(query: Query) -> bool:
    """Whether the question names Wenmai, itself or through the previous question it depends on."""
    if _PRODUCT.search(fold_width(query.question)):
        return True
    leans = bool(query.previous) and follow_up_weight(query.question) > 0
    return leans and _PRODUCT.search(fold_width(query.previous[-1])) is not None
