"""Documents' records in the store: written, listed by page, looked up by id, external id or source."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from config.settings import StoreSettings
from core.citing.citations import KnownDocuments
from core.knowledge import Document, DocumentFilter, DocumentStatus
from core.text import canonical_uuid
from services.store.clock import Clock
from services.store.dialect import Condition, Filter, Point, Record, VectorStore
from services.store.points import (
    any_of,
    by_ids,
    equals,
    has_id,
    in_range,
    is_empty,
    newest_first,
    of_sample,
    read_cursor,
    retrieve_all,
    scroll_all,
)

_DOCUMENT = TypeAdapter(Document)
_TIES = 16  # documents that may share one microsecond at the edge of a page
_TAGS_COUNTED = 2_000  # more than are shown, so that ties are broken by name
_KNOWN_FIELDS = ["owner", "status", "content_hash"]
_SAMPLE = of_sample()
DELETING = "The document was being deleted when the server stopped; delete it again."
_INCOMING, _UPDATED = "incoming", "updated_us"


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """Newest first. `next_cursor` is None on the last page."""

    documents: tuple[Document, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class TagCount:
    """How many documents carry a tag."""

    tag: str
    documents: int


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """`updated_us` is the last heartbeat of its ingestion; `incoming` is the revision that is
    replacing the searchable one, or has just replaced it; "" if there is none."""

    document: Document
    updated_us: int
    incoming: str = ""

    @property
    def is_ready(self) -> bool:
        return self.document.status is DocumentStatus.READY

    @property
    def is_settled(self) -> bool:
        """Whether no ingestion is running, nor was interrupted when the server stopped."""
        return self.document.status is not DocumentStatus.INGESTING and not self.incoming


EVERY = DocumentFilter()


class DocumentStore:
    """Every method raises StoreUnavailableError if the store does not answer."""

    def __init__(self, store: VectorStore, settings: StoreSettings, clock: Clock) -> None:
        self._store = store
        self._documents = settings.document_collection
        self._clock = clock
        self.changes = 0
        """The number of records written or removed through this object."""

    async def save(self, document: Document, incoming: str = "") -> None:
        payload = document_payload(document, self._clock())
        if incoming:
            payload[_INCOMING] = incoming
        point = Point(id=document.document_id, vector={}, payload=payload)
        await self._store.upsert(self._documents, points=[point])
        self.changes += 1

    async def load(self, document_id: str) -> StoredDocument | None:
        records = await self._store.retrieve(self._documents, ids=[document_id], with_payload=True)
        return _stored(records[0]) if records else None

    async def settle(self, document_id: str) -> None:
        """Clear `incoming`: nothing is replacing the document any more."""
        await self._store.delete_payload(self._documents, keys=[_INCOMING], points=_one(document_id))

    async def touch(self, document_ids: Sequence[str]) -> None:
        """Record a heartbeat, so that no other worker considers the ingestions dead."""
        those = Filter(must=[has_id(document_ids)])
        await self._store.set_payload(self._documents, payload={"updated_us": self._clock()}, points=those)

    async def note_modified(self, document_id: str, modified_us: int) -> None:
        """Record that its file has a new modification time but the same content."""
        await self._store.set_payload(
            self._documents, payload={"modified_us": modified_us}, points=_one(document_id)
        )

    async def known(self, document_ids: Sequence[str], owners: Sequence[str]) -> KnownDocuments:
        """Return the documents of these owners that have not failed; the ids may be any text."""
        ids = (each for each in document_ids if canonical_uuid(each) == each)
        hashes: dict[str, str] = {}
        async for record in retrieve_all(self._store, self._documents, ids, _KNOWN_FIELDS):
            payload = record.payload or {}
            if payload.get("owner") in owners and payload.get("status") != DocumentStatus.FAILED:
                hashes[str(record.id)] = str(payload.get("content_hash", ""))
        return KnownDocuments(hashes)

    async def note_deletion(self, document_id: str) -> None:
        """Mark the record before its chunks are removed: it must not say ready without them."""
        deleting = {"status": DocumentStatus.FAILED.value, "chunk_count": 0, "error": DELETING}
        await self._store.set_payload(self._documents, payload=deleting, points=_one(document_id))

    async def forget(self, document_id: str) -> None:
        """Remove the document's own record; its chunks must be removed first."""
        await self._store.delete(self._documents, points_selector=by_ids([document_id]))
        self.changes += 1

    async def page(
        self,
        owners: Sequence[str],
        limit: int,
        cursor: str | None = None,
        narrowed: DocumentFilter = EVERY,
    ) -> DocumentPage:
        """Newest first. Raises BadRequestError naming `cursor`."""
        after = read_cursor(cursor) if cursor else None
        records, _ = await self._store.scroll(
            self._documents,
            scroll_filter=_document_filter(owners, None if after is None else -after[0], narrowed),
            limit=limit + 1 + _TIES,
            order_by=newest_first("created_us"),
            with_payload=True,
        )
        documents = sorted((_stored(record).document for record in records), key=_newest_first)
        rest = [document for document in documents if after is None or _newest_first(document) > after]
        more = len(rest) > limit
        cursor = f"{rest[limit - 1].created_us}.{rest[limit - 1].document_id}" if more else None
        return DocumentPage(tuple(rest[:limit]), cursor)

    async def tags(self, owners: Sequence[str], most: int) -> list[TagCount]:
        """Return the `most` tags with the most documents, each counted once; ties are sorted by name."""
        facet_filter = _document_filter(owners, None, EVERY)
        facet = await self._store.facet(
            self._documents, "tags", facet_filter=facet_filter, limit=_TAGS_COUNTED, exact=True
        )
        counts = [TagCount(str(hit.value), hit.count) for hit in facet.hits if hit.count]  # 0: tag removed
        return sorted(counts, key=lambda each: (-each.documents, each.tag))[:most]

    async def unsettled(self) -> AsyncIterator[StoredDocument]:
        """Yield documents being ingested or interrupted by a stop of the server. All owners, in no order."""
        ingesting = equals("status", DocumentStatus.INGESTING.value)
        replaced = Filter(must_not=[is_empty(_INCOMING)])
        async for stored in self._all(Filter(should=[ingesting, replaced])):
            yield stored

    async def of_source(self, source: str) -> AsyncIterator[Document]:
        """Yield the documents of this source, whatever their state, in no order."""
        async for stored in self._all(Filter(must=[equals("source", source)])):
            yield stored.document

    async def sample_ids(self) -> list[str]:
        """Return the ids of the bundled guide (`Document.is_sample`), whatever their state, in no order."""
        records = scroll_all(self._store, self._documents, _SAMPLE, with_payload=False)
        return [str(record.id) async for record in records]

    async def has_sample(self) -> bool:
        return await self._any(_SAMPLE)

    async def has_ready(self, owners: Sequence[str]) -> bool:
        """Whether the owners have a ready document other than the sample."""
        ready = [any_of("owner", owners), equals("status", DocumentStatus.READY.value)]
        return await self._any(Filter(must=ready, must_not=[_SAMPLE]))

    async def _any(self, point_filter: Filter) -> bool:
        records, _ = await self._store.scroll(
            self._documents, scroll_filter=point_filter, limit=1, with_payload=False
        )
        return bool(records)

    async def named(self, external_id: str) -> list[Document]:
        """Return the documents of any owner with this external id."""
        point_filter = Filter(must=[equals("external_id", external_id)])
        return [stored.document async for stored in self._all(point_filter)]

    async def _all(self, point_filter: Filter) -> AsyncIterator[StoredDocument]:
        async for record in scroll_all(self._store, self._documents, point_filter):
            yield _stored(record)


def document_payload(document: Document, updated_us: int) -> dict[str, Any]:
    """Return the payload of the document's point in the document collection (point id = document_id);
    `updated_us` is the last heartbeat of its ingestion, in UTC microseconds."""
    return {**_DOCUMENT.dump_python(document, mode="json"), _UPDATED: updated_us}


def _stored(record: Record) -> StoredDocument:
    payload = record.payload or {}
    document = _DOCUMENT.validate_python(payload)
    return StoredDocument(document, int(payload.get(_UPDATED) or 0), str(payload.get(_INCOMING) or ""))


def _one(document_id: str) -> Filter:
    """Match one document by a filter, so that one deleted meanwhile is not an error."""
    return Filter(must=[has_id([document_id])])


def _document_filter(owners: Sequence[str], until_us: int | None, narrowed: DocumentFilter) -> Filter:
    must: list[Condition] = [any_of("owner", owners)]
    if until_us is not None:
        must.append(in_range("created_us", lte=until_us))
    for field, value in (
        ("status", narrowed.status), ("source", narrowed.source), ("tags", narrowed.tag),
    ):  # fmt: skip
        if value is not None:
            must.append(equals(field, str(value)))
    return Filter(must=must)


def _newest_first(document: Document) -> tuple[int, str]:
    return -document.created_us, document.document_id
