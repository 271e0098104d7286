"""One version of a document in another's place: at every moment one of them is whole and searched.

The order of the writes is what a crash is mended by: the record names what is `incoming`; its chunks are
stored unsearched; they are published; the record is replaced; the old chunks go; `incoming` goes.
"""

from __future__ import annotations

from dataclasses import replace

from core.errors import WenmaiError
from core.failpoints import failpoint
from core.knowledge import Document, DocumentStatus
from services.knowledge.chunks import ChunkStore
from services.knowledge.documents import DocumentStore, StoredDocument
from services.knowledge.upload import version_of

INTERRUPTED = "The server stopped while the document was read in; add it again."


class Versions:
    """Not for two tasks at once on the same document. Raises StoreUnavailableError."""

    def __init__(self, documents: DocumentStore, chunks: ChunkStore) -> None:
        self._documents = documents
        self._chunks = chunks

    async def accept(self, document: Document, before: StoredDocument | None) -> Document:
        """From now on it is being read in; returns the record as it is then. What is there must be
        settled."""
        if before is not None and before.is_ready:
            await self._documents.save(before.document, incoming=document.content_hash)
            return before.document
        if before is not None:
            await self._chunks.remove_all(document.document_id)  # what a failed attempt may have left
        await self._documents.save(document)
        return document

    async def publish(self, document: Document, chunk_count: int) -> None:
        """Its chunks are stored, all of them. May be done again after it failed half-way."""
        document_id, version = document.document_id, version_of(document.content_hash)
        before = await self._documents.load(document_id)
        replaces = before is not None and before.is_ready
        await self._chunks.publish(document_id, version)
        failpoint("ingest.published")
        ready = replace(
            document, status=DocumentStatus.READY, chunk_count=chunk_count, error=None, refused_hash=""
        )
        await self._documents.save(ready, incoming=document.content_hash if replaces else "")
        failpoint("ingest.replaced")
        if replaces:
            await self._sweep(document_id, version)

    async def fail(self, document: Document, why: WenmaiError) -> None:
        """It could not be read in: what was searched before it still is."""
        refused = "" if why.retryable else document.content_hash  # what passes is worth another try
        before = await self._documents.load(document.document_id)
        if before is None or not before.is_ready:
            await self._chunks.remove_all(document.document_id)
            await self._documents.save(_failed(document, refused, str(why)))
        elif before.document.content_hash != document.content_hash:
            await self._chunks.remove_version(document.document_id, version_of(document.content_hash))
            # with the older time when this may pass: a folder's sync must not take the file for settled
            modified_us = before.document.modified_us if why.retryable else document.modified_us
            await self._documents.save(
                replace(before.document, error=str(why), refused_hash=refused, modified_us=modified_us)
            )

    async def mend(self, stored: StoredDocument) -> None:
        """Nobody reads it in any more: without a trace of what was incoming, unless that is searched."""
        document, incoming = stored.document, version_of(stored.incoming)
        if document.status is DocumentStatus.INGESTING:
            await self._chunks.remove_all(document.document_id)
            await self._documents.save(_failed(document, "", INTERRUPTED))
        elif stored.incoming == document.content_hash:
            await self._sweep(document.document_id, incoming)
        elif stored.incoming:
            await self._chunks.remove_version(document.document_id, incoming)
            await self._documents.settle(document.document_id)

    async def rewind(self, stored: StoredDocument, content_hash: str) -> None:
        """Reading this content in will go on: until then nothing of it is searched."""
        await self._chunks.withdraw(stored.document.document_id, version_of(content_hash))

    async def _sweep(self, document_id: str, version: str) -> None:
        await self._chunks.remove_others(document_id, version)
        failpoint("ingest.removed")
        await self._documents.settle(document_id)


def _failed(document: Document, content_hash: str, why: str) -> Document:
    return replace(
        document, status=DocumentStatus.FAILED, chunk_count=0, content_hash=content_hash, error=why
    )
