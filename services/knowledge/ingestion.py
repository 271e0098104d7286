"""A document's pieces → searchable chunks: embedded and stored batch by batch, published all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from qdrant_client import models

from core.errors import WenmaiError
from core.failpoints import failpoint
from core.knowledge import Chunk, Document, DocumentStatus
from core.sparse import encode_document
from services.clock import Clock
from services.embedding import EmbeddingService
from services.knowledge.chunk_payload import ChunkPayload
from services.knowledge.document_store import DocumentStore
from services.knowledge.pieces import Pieces
from services.knowledge.upload import chunk_id_of

BATCH_CHUNKS = 8
TOUCH_EVERY_US = 30_000_000
VERSION_CHARS = 16  # of the content's hash


@dataclass(frozen=True, slots=True)
class Ingestion:
    """One document on its way in; the work of one job."""

    documents: DocumentStore
    embedding: EmbeddingService
    clock: Clock
    document: Document
    pieces: Pieces

    async def run(self, report: Callable[[int], None]) -> None:
        """No chunk is found before all are stored. Raises UnavailableError kinds."""
        touched_us = self.clock()
        done = 0
        for batch in _batches(_chunks(self.document, self.pieces)):
            await self.documents.add_chunks(await self._points(batch))
            failpoint("ingest.batch")
            done += len(batch)
            report(done)
            if self.clock() - touched_us >= TOUCH_EVERY_US:
                await self.documents.touch(self.document.document_id)
                touched_us = self.clock()
        await self.documents.publish(self.document.document_id)
        failpoint("ingest.published")
        await self.documents.save(replace(self.document, status=DocumentStatus.READY, chunk_count=done))

    async def undo(self, error: WenmaiError) -> None:
        await mark_failed(self.documents, self.document, str(error))

    async def _points(self, chunks: Sequence[Chunk]) -> list[models.PointStruct]:
        texts = [chunk.indexed_text for chunk in chunks]
        dense = await self.embedding.embed_passages(texts)
        sparse = await asyncio.to_thread(_sparse_vectors, texts)
        return [self._point(*parts) for parts in zip(chunks, dense, sparse, strict=True)]

    def _point(
        self, chunk: Chunk, dense: list[float], sparse: models.SparseVector | None
    ) -> models.PointStruct:
        document = self.document
        payload = ChunkPayload.from_chunk(chunk, document.owner, document.created_us, document.tags)
        vector: dict[str, list[float] | models.SparseVector] = {"dense": dense}
        if sparse is not None:
            vector["sparse"] = sparse
        return models.PointStruct(
            id=chunk.chunk_id,
            vector=vector,
            payload=payload.model_dump(mode="json"),
        )


async def mark_failed(documents: DocumentStore, document: Document, why: str) -> None:
    """The chunks go first: a failed document has none."""
    await documents.remove_chunks(document.document_id)
    await documents.save(replace(document, status=DocumentStatus.FAILED, chunk_count=0, error=why))


def _chunks(document: Document, pieces: Pieces) -> Iterator[Chunk]:
    for position, piece in enumerate(pieces):
        yield Chunk(
            chunk_id=chunk_id_of(document.document_id, position),
            document_id=document.document_id,
            file_name=document.file_name,
            text=piece.text,
            position=position,
            heading=piece.heading,
            page=piece.page,
            char_start=piece.char_start,
            char_end=piece.char_end,
            date=document.date or "",
            version=document.content_hash[:VERSION_CHARS],
        )


def _batches(chunks: Iterator[Chunk]) -> Iterator[list[Chunk]]:
    batch: list[Chunk] = []
    for chunk in chunks:
        batch.append(chunk)
        if len(batch) == BATCH_CHUNKS:
            yield batch
            batch = []
    if batch:
        yield batch


def _sparse_vectors(texts: Sequence[str]) -> list[models.SparseVector | None]:
    """None where a text has no words at all."""
    encoded = [encode_document(text) for text in texts]
    return [models.SparseVector(indices=e.indices, values=e.values) if e.indices else None for e in encoded]
