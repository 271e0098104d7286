"""The knowledge base: documents come in, are read and listed, and go without a trace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from types import TracebackType
from typing import Self
from weakref import WeakValueDictionary

import structlog

from config.settings import StoreSettings
from core.citations import KnownDocuments
from core.errors import UnknownDocumentError
from core.failpoints import failpoint
from core.knowledge import Document, DocumentStatus
from services.clock import Clock, utc_now_us
from services.embedding import EmbeddingService
from services.knowledge.document_store import ChunkPage, DocumentPage, DocumentStore, StoredDocument
from services.knowledge.ingestion import Ingestion, mark_failed
from services.knowledge.job import JobSnapshot
from services.knowledge.jobs import Jobs
from services.knowledge.parsing import DocumentParser
from services.knowledge.upload import Addition, Upload, checked, content_hash, document_id_of
from services.store import VectorStore

# Ten times as long as a living ingestion is silent.
STALE_AFTER_US = 300_000_000
INTERRUPTED = "The server stopped while the document was read in; add it again."
log = structlog.get_logger()


class KnowledgeBase:
    """Adding is in two steps: what can be refused is refused by `add`; embedding is a background job."""

    def __init__(
        self,
        store: VectorStore,
        embedding: EmbeddingService,
        parse: DocumentParser,
        store_settings: StoreSettings,
        clock: Clock = utc_now_us,
    ) -> None:
        self._documents = DocumentStore(store, store_settings, clock)
        self._embedding = embedding
        self._parse = parse
        self._clock = clock
        self._one_process = store_settings.qdrant_url is None
        self._jobs = Jobs()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Jobs are cancelled; `recover` deals with their documents at the next start."""
        await self._jobs.close()

    async def add(self, upload: Upload) -> Addition:
        """Checks and parses before it returns; the same bytes of the same owner are one document.

        Raises BadRequestError and its kinds (nothing is stored then) and UnavailableError kinds.
        """
        upload = checked(upload)
        self._jobs.check_room()
        hash_hex = await content_hash(upload.content)
        document_id = document_id_of(upload.owner, hash_hex)
        async with self._lock(document_id):
            stored = await self._documents.load(document_id)
            if stored is not None and self._is_alive(stored):
                job = self._jobs.active(document_id)
                return Addition(stored.document, job.job_id if job else None, existing=True)
            return await self._ingest(upload, document_id, hash_hex)

    async def wait(self, job_id: str, owners: Sequence[str]) -> JobSnapshot:
        """The job's final state. Raises UnknownJobError."""
        snapshot = self._jobs.get(job_id, owners).snapshot()
        async for latest in self._jobs.get(job_id, owners).changes():
            snapshot = latest
        return snapshot

    def job(self, job_id: str, owners: Sequence[str]) -> JobSnapshot:
        """Raises UnknownJobError, also when it is somebody else's."""
        return self._jobs.get(job_id, owners).snapshot()

    def list_jobs(self, owners: Sequence[str]) -> list[JobSnapshot]:
        """Those that wait, run, or ended lately; the newest first."""
        return self._jobs.list(owners)

    def is_reading(self, owners: Sequence[str]) -> bool:
        """Whether documents of these owners are being read in, and can be found only when that is done."""
        return any(not job.stage.is_final for job in self._jobs.list(owners))

    def job_changes(self, job_id: str, owners: Sequence[str]) -> AsyncIterator[JobSnapshot]:
        """The state now and after every change; ends with the final one. Raises UnknownJobError at once."""
        return self._jobs.get(job_id, owners).changes()

    async def list_documents(
        self, owners: Sequence[str], limit: int, cursor: str | None = None
    ) -> DocumentPage:
        """Newest first. Raises BadRequestError naming `cursor`."""
        return await self._documents.page(owners, limit, cursor)

    async def get_document(self, document_id: str, owners: Sequence[str]) -> Document:
        """Raises UnknownDocumentError, also when it is somebody else's."""
        stored = await self._documents.load(document_id)
        if stored is None or stored.document.owner not in owners:
            raise UnknownDocumentError("document_id: there is no such document.")
        return stored.document

    async def find_documents(self, document_ids: Sequence[str], owners: Sequence[str]) -> KnownDocuments:
        """Which of these are there for these owners, in one look; any text may be given for an id."""
        return await self._documents.known(document_ids, owners)

    async def chunks(
        self, document_id: str, owners: Sequence[str], limit: int, cursor: str | None = None
    ) -> ChunkPage:
        """In document order; none before it is ready. Raises UnknownDocumentError, BadRequestError."""
        return await self._documents.chunk_page(await self.get_document(document_id, owners), limit, cursor)

    async def delete(self, document_id: str, owners: Sequence[str]) -> None:
        """Nothing of the document is found or stored afterwards. Raises UnknownDocumentError."""
        await self.get_document(document_id, owners)
        await self._remove(document_id)

    async def erase(self, document_id: str) -> None:
        """The same whoever owns it, also of one that is gone in part; its jobs are forgotten, too."""
        await self._remove(document_id)
        self._jobs.forget(document_id)

    async def cancel_job(self, document_id: str) -> None:
        """Returns when nothing works on the document any more."""
        async with self._lock(document_id):
            await self._jobs.cancel(document_id)

    def remembered_jobs(self, document_ids: Collection[str]) -> tuple[int, int]:
        """How many jobs are remembered, and how many of them are of these documents."""
        return self._jobs.remembered(document_ids)

    async def _remove(self, document_id: str) -> None:
        async with self._lock(document_id):
            await self._jobs.cancel(document_id)
            await self._documents.remove_chunks(document_id)
            failpoint("erase.points")
            await self._documents.forget(document_id)
        log.info("document_deleted", document_id=document_id)

    async def recover(self) -> int:
        """At start: documents whose ingestion died become `failed`, without chunks. Returns how many."""
        dead = [
            s async for s in self._documents.with_status(DocumentStatus.INGESTING) if not self._is_alive(s)
        ]
        for stored in dead:
            await mark_failed(self._documents, stored.document, INTERRUPTED)
        if dead:
            log.warning("ingestion_interrupted", documents=len(dead))
        return len(dead)

    def _lock(self, document_id: str) -> asyncio.Lock:
        """One lock per document, kept only while somebody holds or awaits it."""
        lock = self._locks.get(document_id)
        if lock is None:
            lock = self._locks[document_id] = asyncio.Lock()
        return lock

    def _is_alive(self, stored: StoredDocument) -> bool:
        """Ready, or being read in: by this process, or by another one that showed signs of life lately."""
        if stored.document.status is not DocumentStatus.INGESTING:
            return stored.document.status is DocumentStatus.READY
        if self._jobs.active(stored.document.document_id) is not None:
            return True
        return not self._one_process and self._clock() - stored.updated_us < STALE_AFTER_US

    async def _ingest(self, upload: Upload, document_id: str, hash_hex: str) -> Addition:
        pieces = await self._parse(upload.file_name, upload.content)
        document = Document(
            document_id=document_id,
            owner=upload.owner,
            file_name=upload.file_name,
            content_hash=hash_hex,
            size_bytes=len(upload.content),
            created_us=self._clock(),
            status=DocumentStatus.INGESTING,
            external_id=upload.external_id,
            tags=upload.tags,
            date=upload.date or pieces.date or None,
        )
        await self._documents.remove_chunks(document_id)  # what an earlier, failed attempt may have left
        await self._documents.save(document)
        work = Ingestion(self._documents, self._embedding, self._clock, document, pieces)
        job = self._jobs.submit(document, len(pieces), work)
        log.info("document_accepted", document_id=document_id, chunks=len(pieces), bytes=len(upload.content))
        return Addition(document, job.job_id, existing=False)
