"""From a document's pieces to searchable chunks: embedded and stored in batches, then published all at once
in place of the previous version."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

import structlog

from core.citing.units import indexed_parts
from core.errors import StoreUnavailableError, WenmaiError
from core.failpoints import failpoint
from core.knowledge import Chunk, Document, DocumentStatus, JobStage
from services.knowledge.chunks import ChunkStore, ChunkVectors, KnowledgeSize, chunk_payload
from services.knowledge.documents import DocumentStore, StoredDocument
from services.knowledge.jobs.job import Job
from services.knowledge.parsing.pieces import Pieces
from services.knowledge.upload import chunk_id_of, version_of
from services.models.embedding import EmbeddingService
from services.store.dialect import Point, SparseVector
from services.store.points import sparse_vectors

INTERRUPTED = "The server stopped while the document was being read; add it again."


class Versions:
    """Replaces one version of a document by another: at every moment one of them is complete and searchable.

    Crash recovery relies on the order of the writes: the record names what is `incoming`; its chunks are
    stored, not yet searchable; they are published; the record is replaced; the old chunks are removed;
    `incoming` is cleared. Not for two concurrent tasks on one document. Raises StoreUnavailableError.
    """

    def __init__(self, documents: DocumentStore, chunks: ChunkStore) -> None:
        self._documents = documents
        self._chunks = chunks

    async def accept(self, document: Document, before: StoredDocument | None) -> Document:
        """Begin ingesting the document; return its record. Any earlier state must be settled."""
        if before is not None and before.is_ready:
            await self._documents.save(before.document, incoming=document.revision)
            return before.document
        if before is not None:
            await self._chunks.remove_all(document.document_id)  # possibly left by a failed attempt
        await self._documents.save(document)
        return document

    async def publish(self, document: Document, chunk_count: int) -> None:
        """Publish a document whose chunks are all stored. May be repeated after a partial failure."""
        document_id, version = document.document_id, version_of(document.revision)
        before = await self._documents.load(document_id)
        replaces = before is not None and before.is_ready
        await self._chunks.publish(document_id, version)
        searched = await self._chunks.count_ready(document_id, version)
        if searched != chunk_count:
            raise StoreUnavailableError(
                f"Only {searched} of the document's {chunk_count} passages are searched."
            )
        failpoint("ingest.published")
        ready = replace(
            document, status=DocumentStatus.READY, chunk_count=chunk_count, error=None, refused_hash=""
        )
        await self._documents.save(ready, incoming=document.revision if replaces else "")
        failpoint("ingest.replaced")
        if replaces:
            await self._sweep(document_id, version)

    async def fail(self, document: Document, why: WenmaiError) -> None:
        """Record that ingestion failed; what was searchable before stays so."""
        refused = not why.retryable  # a transient error is worth another try
        before = await self._documents.load(document.document_id)
        if before is None or not before.is_ready:
            await self._chunks.remove_all(document.document_id)
            await self._documents.save(_failed(document, document.content_hash if refused else "", str(why)))
        elif before.document.revision != document.revision:
            await self._chunks.remove_version(document.document_id, version_of(document.revision))
            # keep the older time if a retry may succeed: folder sync must not consider the file done
            modified_us = before.document.modified_us if why.retryable else document.modified_us
            await self._documents.save(
                replace(
                    before.document,
                    error=str(why),
                    refused_hash=document.revision if refused else "",
                    modified_us=modified_us,
                )
            )

    async def repair(self, stored: StoredDocument) -> None:
        """Settle an abandoned ingestion: remove the incoming content unless it was published."""
        document, incoming = stored.document, version_of(stored.incoming)
        if document.status is DocumentStatus.INGESTING:
            await self._chunks.remove_all(document.document_id)
            await self._documents.save(_failed(document, "", INTERRUPTED))
        elif stored.incoming == document.revision:
            await self._sweep(document.document_id, incoming)
        elif stored.incoming:
            await self._chunks.remove_version(document.document_id, incoming)
            await self._documents.settle(document.document_id)

    async def rewind(self, document: Document) -> None:
        """Prepare to resume ingesting this revision: until it is complete, none of it is searchable."""
        await self._chunks.withdraw(document.document_id, version_of(document.revision))

    async def _sweep(self, document_id: str, version: str) -> None:
        await self._chunks.remove_others(document_id, version)
        failpoint("ingest.removed")
        await self._documents.settle(document_id)


def _failed(document: Document, content_hash: str, why: str) -> Document:
    return replace(
        document, status=DocumentStatus.FAILED, chunk_count=0, content_hash=content_hash, error=why
    )


@dataclass(frozen=True, slots=True)
class KnownVectors:
    """Reuses the vectors of one document's chunks whose text is already stored. A snapshot of the time of its
    creation; about 70 bytes per chunk."""

    _chunks: ChunkStore
    _points: dict[bytes, str]
    _with_signs: bool

    @classmethod
    async def of(cls, chunks: ChunkStore, document_id: str, *, with_signs: bool) -> KnownVectors:
        """`with_signs`: chunks of earlier releases, stored without token and part signs, are embedded again.

        Raises StoreUnavailableError.
        """
        points = {_digest(text): point_id async for point_id, text in chunks.texts(document_id)}
        return cls(chunks, points, with_signs)

    async def take(self, texts: Sequence[str]) -> list[ChunkVectors | None]:
        """Return vectors in the order of `texts`, None for new ones. Raises StoreUnavailableError."""
        points = [self._points.get(_digest(text)) for text in texts] if self._points else []
        known_points = list(dict.fromkeys(point for point in points if point is not None))
        if not known_points:
            return [None] * len(texts)
        vectors = await self._chunks.vectors(known_points)
        usable = {key: each for key, each in vectors.items() if " " in each.signs or not self._with_signs}
        return [usable.get(point) if point is not None else None for point in points]


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


BATCH_CHUNKS = 16
T = TypeVar("T")
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Parts:
    """The services every ingestion uses."""

    chunks: ChunkStore
    versions: Versions
    embedding: EmbeddingService
    size: KnowledgeSize


class Ingestion:
    """Ingests one content of one document; the work of one job.

    `read` returns its pieces and is called when the job's turn comes; `ended` is called when the job is over,
    but not when it is cancelled.
    """

    def __init__(
        self,
        parts: Parts,
        document: Document,
        read: Callable[[], Awaitable[Pieces]],
        ended: Callable[[], Awaitable[None]],
    ) -> None:
        self._parts = parts
        self._document = document
        self._pieces: Pieces | None = None
        self._read = read
        self._ended = ended
        self._is_stored = False

    async def run(self, progress: Job) -> None:
        """No chunk is searchable before all are stored. Raises UnavailableError or BadRequestError."""
        pieces = await self._parse(progress)
        if not self._is_stored:
            await self._store(pieces, progress)
            await self._verify(len(pieces), progress)
            self._is_stored = True  # from now on its chunks may be searchable and are not rewritten
        await run_to_completion(self._parts.versions.publish(self._document, len(pieces)))
        self._pieces = None
        await self._ended()
        await self._check_size(len(pieces))

    async def _check_size(self, more: int) -> None:
        try:
            await self._parts.size.grew(more)
        except StoreUnavailableError as error:  # the document is ingested; the size is checked next time
            log.debug("knowledge_size_unknown", error=str(error))

    async def undo(self, error: WenmaiError) -> None:
        await self._parts.versions.fail(self._document, error)
        await self._ended()

    async def _parse(self, progress: Job) -> Pieces:
        if self._pieces is None:
            progress.enter(JobStage.PARSING)
            self._pieces = await self._read()
            progress.expect(len(self._pieces))
        document, read = self._document, self._pieces
        date = document.date or read.date or None
        self._document = replace(document, date=date, unread_pages=read.unread_pages)
        return read

    async def _store(self, pieces: Pieces, progress: Job) -> None:
        """Embed each batch while the previous one is being stored."""
        progress.enter(JobStage.EMBEDDING)
        parts, document_id = self._parts, self._document.document_id
        known = await KnownVectors.of(parts.chunks, document_id, with_signs=parts.embedding.reads_tokens)
        done = reused = 0
        last: asyncio.Task[None] | None = None
        chunks = _chunks(self._document, pieces)
        try:
            while batch := list(islice(chunks, BATCH_CHUNKS)):
                taken, points = await self._points(batch, known)
                if last is not None:
                    await asyncio.shield(last)
                    progress.report(done, reused)
                last = asyncio.create_task(self._add(points))
                done, reused = done + len(points), reused + taken
            progress.enter(JobStage.STORING)
        finally:
            if last is not None:
                await asyncio.wait([last])
                last.exception()  # retrieved, in case another error is propagating
        if last is not None:
            last.result()
        progress.report(done, reused)

    async def _add(self, points: Sequence[Point]) -> None:
        await self._parts.chunks.add(points)
        failpoint("ingest.batch")

    async def _verify(self, total: int, progress: Job) -> None:
        progress.enter(JobStage.VERIFYING)
        document_id, version = self._document.document_id, version_of(self._document.revision)
        stored = await self._parts.chunks.count(document_id, version)
        if stored > total:  # an earlier attempt cut the same content into more pieces
            await self._parts.chunks.remove_from(document_id, version, total)
            stored = await self._parts.chunks.count(document_id, version)
        if stored != total:
            raise StoreUnavailableError(f"Only {stored} of the document's {total} passages were stored.")

    async def _points(self, chunks: Sequence[Chunk], known: KnownVectors) -> tuple[int, list[Point]]:
        """Return how many chunks reused stored vectors, and the points of all."""
        taken = await known.take([chunk.indexed_text for chunk in chunks])
        missing = [chunk for chunk, vectors in zip(chunks, taken, strict=True) if vectors is None]
        made = iter(await self._embed(missing) if missing else [])
        vectors = [each if each is not None else next(made) for each in taken]
        points = [self._point(chunk, each) for chunk, each in zip(chunks, vectors, strict=True)]
        return len(chunks) - len(missing), points

    async def _embed(self, chunks: Sequence[Chunk]) -> list[ChunkVectors]:
        texts = [chunk.indexed_text for chunk in chunks]
        words = asyncio.create_task(asyncio.to_thread(sparse_vectors, texts))
        try:
            readings = await self._parts.embedding.read_passages(texts, [*map(indexed_parts, chunks)])
        finally:
            sparse = await words
        read = zip(readings, sparse, strict=True)
        return [ChunkVectors(reading.vector, terms, reading.signs) for reading, terms in read]

    def _point(self, chunk: Chunk, vectors: ChunkVectors) -> Point:
        document = self._document
        vector: dict[str, list[float] | SparseVector] = {"dense": vectors.dense}
        if vectors.sparse is not None:
            vector["sparse"] = vectors.sparse
        payload = chunk_payload(chunk, document.owner, document.created_us, signs=vectors.signs)
        return Point(id=chunk.chunk_id, vector=vector, payload=payload)


async def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Finish `work` despite cancellation; CancelledError is raised afterwards."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("unfinished_when_cancelled", error=type(error).__name__)
        raise


def _chunks(document: Document, pieces: Pieces) -> Iterator[Chunk]:
    version = version_of(document.revision)
    for position, piece in enumerate(pieces):
        yield Chunk(
            chunk_id=chunk_id_of(document.document_id, version, position),
            document_id=document.document_id,
            file_name=document.file_name,
            text=piece.text,
            position=position,
            heading=piece.heading,
            page=piece.page,
            char_start=piece.char_start,
            char_end=piece.char_end,
            date=document.date or "",
            version=version,
            tags=document.tags,
            source=document.source,
            title=piece.title,
        )
