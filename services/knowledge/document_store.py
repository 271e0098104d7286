"""Documents and their chunks in the store: written, published all at once, read by page, erased."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from qdrant_client import models

from config.settings import StoreSettings
from core.citations import KnownDocuments
from core.errors import BadRequestError, StoreUnavailableError
from core.knowledge import Chunk, Document, DocumentStatus
from services.clock import Clock
from services.knowledge.chunk_payload import ChunkPayload
from services.knowledge.document_payload import DocumentPayload
from services.knowledge.upload import chunk_id_of
from services.store import VectorStore

_DELETE_ATTEMPTS = 3
_TIES = 16  # documents that may share one microsecond at the edge of a page
_SCROLL_PAGE = 256
_LOOKED_UP_AT_ONCE = 1_000
_KNOWN_FIELDS = ["owner", "status", "content_hash"]


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """Newest first. `next_cursor` is None on the last page."""

    documents: tuple[Document, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class ChunkPage:
    """In the order of the document. `next_cursor` is None on the last page."""

    chunks: tuple[Chunk, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class StoredDocument:
    document: Document
    updated_us: int


class DocumentStore:
    """Every method raises StoreUnavailableError when the store does not answer."""

    def __init__(self, store: VectorStore, settings: StoreSettings, clock: Clock) -> None:
        self._store = store
        self._documents = settings.document_collection
        self._chunks = settings.knowledge_collection
        self._clock = clock

    async def save(self, document: Document) -> None:
        payload = DocumentPayload.from_document(document, self._clock()).model_dump(mode="json")
        point = models.PointStruct(id=document.document_id, vector={}, payload=payload)
        await self._store.upsert(self._documents, points=[point])

    async def load(self, document_id: str) -> StoredDocument | None:
        records = await self._store.retrieve(self._documents, ids=[document_id], with_payload=True)
        return _stored(records[0]) if records else None

    async def known(self, document_ids: Sequence[str], owners: Sequence[str]) -> KnownDocuments:
        """Those of these owners that can be read; any text may be given for an id."""
        ids = [document_id for document_id in document_ids if _is_id(document_id)]
        found: dict[str, str] = {}
        for start in range(0, len(ids), _LOOKED_UP_AT_ONCE):
            records = await self._store.retrieve(
                self._documents, ids=ids[start : start + _LOOKED_UP_AT_ONCE], with_payload=_KNOWN_FIELDS
            )
            for record in records:
                payload = record.payload or {}
                if payload.get("owner") in owners and payload.get("status") != DocumentStatus.FAILED:
                    found[str(record.id)] = str(payload.get("content_hash", ""))
        return KnownDocuments(found)

    async def forget(self, document_id: str) -> None:
        """Remove the document's own record; its chunks must be gone before."""
        await self._store.delete(self._documents, points_selector=models.PointIdsList(points=[document_id]))

    async def page(self, owners: Sequence[str], limit: int, cursor: str | None) -> DocumentPage:
        """Raises BadRequestError naming `cursor`."""
        after = _read_cursor(cursor) if cursor else None
        records, _ = await self._store.scroll(
            self._documents,
            scroll_filter=_owned(owners, None if after is None else after[0]),
            limit=limit + 1 + _TIES,
            order_by=models.OrderBy(key="created_us", direction=models.Direction.DESC),
            with_payload=True,
        )
        found = sorted((_stored(record).document for record in records), key=_newest_first)
        rest = [document for document in found if after is None or _newest_first(document) > _key(after)]
        more = len(rest) > limit
        cursor = f"{rest[limit - 1].created_us}.{rest[limit - 1].document_id}" if more else None
        return DocumentPage(tuple(rest[:limit]), cursor)

    async def with_status(self, status: DocumentStatus) -> AsyncIterator[StoredDocument]:
        """Of all owners, in no order."""
        offset = None
        while True:
            records, offset = await self._store.scroll(
                self._documents,
                scroll_filter=_where("status", status.value),
                limit=_SCROLL_PAGE,
                offset=offset,
                with_payload=True,
            )
            for record in records:
                yield _stored(record)
            if offset is None:
                return

    async def add_chunks(self, points: Sequence[models.PointStruct]) -> None:
        await self._store.upsert(self._chunks, points=list(points))

    async def publish(self, document_id: str) -> None:
        """From now on the document's chunks are searched."""
        selector = models.FilterSelector(filter=_where("document_id", document_id))
        await self._store.set_payload(self._chunks, payload={"ready": True}, points=selector)

    async def touch(self, document_id: str) -> None:
        """A sign of life, so that no other worker takes the ingestion for dead."""
        await self._store.set_payload(
            self._documents, payload={"updated_us": self._clock()}, points=[document_id]
        )

    async def remove_chunks(self, document_id: str) -> None:
        """Raises StoreUnavailableError when chunks are still there afterwards."""
        wanted = _where("document_id", document_id)
        for _ in range(_DELETE_ATTEMPTS):
            await self._store.delete(self._chunks, points_selector=models.FilterSelector(filter=wanted))
            if not (await self._store.count(self._chunks, count_filter=wanted)).count:
                return
        raise StoreUnavailableError("The document's chunks could not all be erased; try again.")

    async def chunk_page(self, document: Document, limit: int, cursor: str | None) -> ChunkPage:
        """Raises BadRequestError naming `cursor`."""
        start = _read_position(cursor)
        end = min(start + limit, document.chunk_count)
        ids = [chunk_id_of(document.document_id, position) for position in range(start, end)]
        records = await self._store.retrieve(self._chunks, ids=ids, with_payload=True) if ids else []
        payloads = [ChunkPayload.model_validate(record.payload) for record in records]
        chunks = tuple(payload.to_chunk() for payload in sorted(payloads, key=lambda each: each.position))
        return ChunkPage(chunks, str(end) if end < document.chunk_count else None)


def _is_id(text: str) -> bool:
    """Whether the store would take it for an id, in the one spelling that we use."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def _stored(record: models.Record) -> StoredDocument:
    payload = DocumentPayload.model_validate(record.payload)
    return StoredDocument(payload.to_document(), payload.updated_us)


def _where(field: str, value: str) -> models.Filter:
    return models.Filter(must=[models.FieldCondition(key=field, match=models.MatchValue(value=value))])


def _owned(owners: Sequence[str], until_us: int | None) -> models.Filter:
    must: list[models.Condition] = [
        models.FieldCondition(key="owner", match=models.MatchAny(any=list(owners)))
    ]
    if until_us is not None:
        must.append(models.FieldCondition(key="created_us", range=models.Range(lte=until_us)))
    return models.Filter(must=must)


def _newest_first(document: Document) -> tuple[int, str]:
    return -document.created_us, document.document_id


def _key(cursor: tuple[int, str]) -> tuple[int, str]:
    return -cursor[0], cursor[1]


def _read_cursor(cursor: str) -> tuple[int, str]:
    time, _, document_id = cursor.partition(".")
    if not (time.isascii() and time.isdigit() and len(time) <= 18 and document_id):
        raise BadRequestError("cursor: not one that this server gave out.")
    return int(time), document_id


def _read_position(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 9):
        raise BadRequestError("cursor: not one that this server gave out.")
    return int(cursor)
