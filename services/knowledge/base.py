"""The knowledge base: documents are added, read, listed, and erased without a trace."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import structlog

from config.settings import StoreSettings
from core.errors import ConflictError, StillRunningError, UnknownDocumentError, WenmaiError
from core.failpoints import failpoint
from core.knowledge import Addition, Changes, Document, JobSnapshot, Upload
from services.knowledge.chunks import ChunkPage, ChunkStore, KnowledgeSize, SamplePrecedence
from services.knowledge.documents import DocumentStore, StoredDocument
from services.knowledge.ingestion import Parts, Versions
from services.knowledge.intake import Intake
from services.knowledge.jobs.lanes import CpuHours, Locks, Shares
from services.knowledge.jobs.queue import RETRIES, Heartbeat, Jobs, Retries
from services.knowledge.jobs.spool import FOLDER, Spool
from services.knowledge.parsing.process import DocumentParser
from services.knowledge.upload import checked_changes
from services.models.embedding import EmbeddingService
from services.store.clock import Clock, utc_now_us
from services.store.dialect import VectorStore

UPLOADED_BYTES = 128 << 20
UPLOADED_BYTES_PER_OWNER = UPLOADED_BYTES // 2
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Uploads:
    """Shares in bytes, both held until `add` returns: `coming` from before a body is received, `read` from
    before it is in memory. Clients decide how long a body takes, so `coming` is limited per owner only."""

    coming: Shares = field(default_factory=lambda: Shares(sys.maxsize, UPLOADED_BYTES_PER_OWNER))
    read: Shares = field(default_factory=lambda: Shares(UPLOADED_BYTES, UPLOADED_BYTES_PER_OWNER))


class KnowledgeBase:
    """Documents are added in two steps: `add` checks and refuses; embedding is a background job."""

    def __init__(
        self,
        store: VectorStore,
        embedding: EmbeddingService,
        parse: DocumentParser,
        store_settings: StoreSettings,
        clock: Clock = utc_now_us,
        retries: Retries = RETRIES,
        cpu: CpuHours | None = None,
    ) -> None:
        self.documents = DocumentStore(store, store_settings, clock)
        self._chunks = ChunkStore(store, store_settings)
        self.uploads = Uploads()
        self.size = KnowledgeSize(store, store_settings)
        self._one_process = store_settings.qdrant_url is None
        self.precedence = SamplePrecedence(self.documents, one_process=self._one_process)
        self.jobs = Jobs(clock, retries)
        self._spool = Spool(store_settings.data_dir / FOLDER)
        self._locks = Locks()
        self._heartbeat = Heartbeat(self.documents, self.jobs)
        parts = Parts(self._chunks, Versions(self.documents, self._chunks), embedding, self.size)
        self._intake = Intake(
            self.documents, self._chunks, parts, self.jobs, self._spool, self._locks, parse, clock,
            cpu or CpuHours(), one_process=self._one_process,
        )  # fmt: skip

    async def __aenter__(self) -> Self:
        if not self._one_process:
            self._heartbeat.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel the jobs; `recover` resumes them at the next start."""
        await self.precedence.close()
        await self._heartbeat.close()
        await self.jobs.close()
        await self._spool.close()

    async def add(self, upload: Upload) -> Addition:
        """Check and parse the upload before returning; once accepted, it is ingested even after a crash.

        With one of the owner's external ids, different content is a new version of that document; without,
        the same bytes of one owner are one document. Raises BadRequestError and its subclasses (nothing is
        stored then) and UnavailableError subclasses.
        """
        return await self._intake.add(upload)

    async def refuse(self, upload: Upload, error: WenmaiError) -> Document:
        """Record that a document cannot be read, and why; a version ingested before stays searchable.

        Raises UnavailableError subclasses.
        """
        return await self._intake.refuse(upload, error)

    async def wait(self, job_id: str, owners: Sequence[str]) -> JobSnapshot:
        """Wait for the job's final state. Raises UnknownJobError."""
        snapshot = self.jobs.get(job_id, owners).snapshot()
        async for latest in self.jobs.get(job_id, owners).changes():
            snapshot = latest
        return snapshot

    def of_source(self, source: str) -> AsyncIterator[Document]:
        """Yield all documents of a followed folder, whatever their state, in no particular order."""
        return self.documents.of_source(source)

    async def fill_languages(self) -> None:
        """Raises StoreUnavailableError."""
        await self._chunks.fill_languages()

    async def get_document(self, document_id: str, owners: Sequence[str]) -> Document:
        """Raises UnknownDocumentError, also for somebody else's document."""
        return (await self._stored(document_id, owners)).document

    async def checked_passage(
        self, document_id: str | None, chunk_id: str | None, owners: Sequence[str]
    ) -> str | None:
        """Return `chunk_id` if a text may cite that chunk; None if the document has no such chunk (any more).
        The ids may be any text. Raises UnknownDocumentError, also for somebody else's document."""
        if document_id is None and chunk_id is None:
            return None
        known = await self.documents.known([document_id or ""], owners)
        if document_id is None or document_id not in known.hashes:
            raise UnknownDocumentError("document_id: there is no such document.")
        return chunk_id if chunk_id and await self._chunks.has(document_id, chunk_id) else None

    async def chunks(
        self, document_id: str, owners: Sequence[str], limit: int, cursor: str | None = None
    ) -> ChunkPage:
        """Return a page of chunks in document order; none before the document is ready. Raises
        UnknownDocumentError, BadRequestError."""
        return await self._chunks.page(await self.get_document(document_id, owners), limit, cursor)

    async def change(self, document_id: str, owners: Sequence[str], changes: Changes) -> Document:
        """Change a document's tags and date without ingesting it again.

        Raises UnknownDocumentError, BadRequestError naming the field, and ConflictError while the document is
        being ingested, or for the tags of a document from a followed folder.
        """
        changes = checked_changes(changes)
        async with self._locks.of(document_id):
            stored = await self._stored(document_id, owners)
            if not stored.is_settled:
                raise StillRunningError("The document is being read; change it when that is done.")
            document = stored.document
            if changes.tags is not None and document.source:
                raise ConflictError(
                    f"The document's tags are set in [sources.{document.source}]; its date may be changed."
                )
            tags = document.tags if changes.tags is None else changes.tags
            date = (changes.date or None) if changes.changes_date else document.date
            return await self._intake.describe(document, replace(document, tags=tags, date=date))

    async def note_modified(self, document_id: str, modified_us: int) -> None:
        """Record that the document's file has a new modification time but the same content."""
        await self.documents.note_modified(document_id, modified_us)

    async def erase(self, document_id: str) -> None:
        """Erase the document, whoever owns it, with its chunks, upload and jobs; also one partly deleted."""
        async with self._locks.of(document_id):
            await self.jobs.cancel(document_id)
            await self._spool.erase([document_id])
            await self.documents.note_deletion(document_id)
            await self._chunks.remove_all(document_id)
            failpoint("erase.points")
            await self.documents.forget(document_id)
        log.debug("document_deleted", document_id=document_id)
        self.jobs.forget(document_id)

    async def cancel_job(self, document_id: str) -> None:
        """Return once nothing works on the document any more, nor will after a restart."""
        async with self._locks.of(document_id):
            await self.jobs.cancel(document_id)
            await self._spool.erase([document_id])

    async def erase_uploads(self, owner: str) -> int:
        """Erase all spooled uploads of this owner. Returns how many."""
        return await self._spool.erase((), owner)

    async def recover(self) -> int:
        """At start, before anything is searched: resume accepted ingestions in the background. Others whose
        ingestion died revert to their previous state or become failed. Returns how many."""
        return await self._intake.recover()

    async def repair_partial(self) -> None:
        """Repair what was left half-written when the store went away. Raises StoreUnavailableError."""
        await self._intake.repair_partial()

    async def _stored(self, document_id: str, owners: Sequence[str]) -> StoredDocument:
        stored = await self.documents.load(document_id)
        if stored is None or stored.document.owner not in owners:
            raise UnknownDocumentError("document_id: there is no such document.")
        return stored
