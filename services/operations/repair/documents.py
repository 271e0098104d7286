"""Documents marked ready that are not searchable, or only in part: left by deletions that were cut off in
versions that did not yet note deletions."""

from __future__ import annotations

from dataclasses import replace

from config.settings import StoreSettings
from core.knowledge import Document, DocumentStatus
from services.knowledge.chunks import ChunkStore
from services.knowledge.documents import DocumentStore
from services.knowledge.upload import version_of
from services.store.clock import utc_now_us
from services.store.dialect import Filter, VectorStore
from services.store.points import equals, scroll_all

LOST = "Part of the document's text is no longer stored; add it again."
_MAX_DOCUMENTS = 100_000


class UnsearchedDocuments:
    """Every method raises StoreUnavailableError."""

    def __init__(self, store: VectorStore, names: StoreSettings) -> None:
        self._store, self._names = store, names
        self._documents = DocumentStore(store, names, utc_now_us)
        self._chunks = ChunkStore(store, names)

    async def find(self) -> tuple[str, ...]:
        """Return their ids; none in a store without documents."""
        names = self._names
        for name in (names.document_collection, names.knowledge_collection):
            if not await self._store.collection_exists(name):
                return ()
        facet = await self._store.facet(
            names.knowledge_collection,
            "document_id",
            Filter(must=[equals("ready", True)]),
            _MAX_DOCUMENTS,
            exact=True,
        )
        searched = {str(hit.value): hit.count for hit in facet.hits}
        ready = Filter(must=[equals("status", DocumentStatus.READY.value)])
        fields = ["chunk_count", "incoming"]
        unsearched = []
        async for record in scroll_all(self._store, names.document_collection, ready, with_payload=fields):
            payload = record.payload or {}
            # while a new version is being ingested, counts may differ, and the server's start repairs it
            if not payload.get("incoming") and searched.get(str(record.id), 0) < payload.get(
                "chunk_count", 0
            ):
                unsearched.append(str(record.id))
        return tuple(unsearched)

    async def repair(self, document_ids: tuple[str, ...]) -> int:
        """Make wholly stored documents searchable again, mark the others failed. Returns how many of both."""
        repaired = 0
        for document_id in document_ids:
            stored = await self._documents.load(document_id)
            if stored is not None and stored.is_ready and stored.is_settled:
                await self._repair(stored.document)
                repaired += 1
        return repaired

    async def _repair(self, document: Document) -> None:
        document_id, version = document.document_id, version_of(document.revision)
        if await self._chunks.count(document_id, version) == document.chunk_count:
            await self._chunks.publish(document_id, version)
            return
        await self._chunks.remove_all(document_id)
        failed = replace(document, status=DocumentStatus.FAILED, chunk_count=0, error=LOST)
        await self._documents.save(failed)
