"""Document intake: new documents, new versions, content that is already stored, unreadable files."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from dataclasses import replace

import structlog

from core.errors import BadRequestError, UnavailableError, WenmaiError
from core.formats import reading_of
from core.knowledge import Addition, Document, DocumentStatus, Upload
from services.knowledge.chunks import ChunkStore
from services.knowledge.documents import DocumentStore, StoredDocument
from services.knowledge.ingestion import Ingestion, Parts, run_to_completion
from services.knowledge.jobs.lanes import CpuHours, Locks
from services.knowledge.jobs.queue import STALE_AFTER_US, Jobs
from services.knowledge.jobs.spool import Spool, UploadHeader
from services.knowledge.parsing.pieces import Pieces
from services.knowledge.parsing.process import DocumentParser
from services.knowledge.upload import Identity, base_name, checked, content_hash
from services.store.clock import Clock

ELSEWHERE = "The document is being read by another worker; try again in a moment."
_UNNAMED = "unnamed"
ANSWER_S = 5.0  # a client waits at most this long; slower files are parsed in the background
log = structlog.get_logger()


class Intake:
    """`one_process`: no other process uses the store."""

    def __init__(
        self,
        documents: DocumentStore,
        chunks: ChunkStore,
        parts: Parts,
        jobs: Jobs,
        spool: Spool,
        locks: Locks,
        parse: DocumentParser,
        clock: Clock,
        cpu: CpuHours,
        *,
        one_process: bool,
    ) -> None:
        self._documents = documents
        self._chunks = chunks
        self._parts = parts
        self._jobs = jobs
        self._spool = spool
        self._locks = locks
        self._parse = parse
        self._clock = clock
        self._cpu = cpu
        self._one_process = one_process
        self._identity = Identity(documents)

    async def add(self, upload: Upload) -> Addition:
        """Raises BadRequestError (nothing is stored then) or UnavailableError, or subclasses."""
        upload = checked(upload)
        self._jobs.check_room()
        if upload.survives_crash:
            self._cpu.check(upload.owner)
        hash_hex = await content_hash(upload.content)
        document_id = await self._identity.of(upload, hash_hex)
        async with self._locks.of(document_id):
            stored = await self._documents.load(document_id)
            if stored is not None and (addition := await self._known(upload, hash_hex, stored)) is not None:
                return addition
            pieces = await self._parse_upload(upload)
            if stored is not None:  # reload: parsing may have taken long
                stored = await self._documents.load(document_id)
            document = self._document(upload, document_id, hash_hex, stored)
            document = replace(document, date=document.date or (pieces.date if pieces else "") or None)
            with self._jobs.room(document_id, len(pieces or ())):  # others may have come since
                return await run_to_completion(self._accept(upload, document, pieces))

    async def _parse_upload(self, upload: Upload) -> Pieces | None:
        """Return None if parsing takes longer than the client should wait: the job then parses the spooled
        file."""
        patience_s = ANSWER_S - upload.waited_s if upload.survives_crash else None
        if patience_s is not None and patience_s <= 0:
            return None
        try:
            async with asyncio.timeout(patience_s):
                return await self._parse(upload.file_name, upload.content, upload.owner)
        except TimeoutError:
            return None

    async def refuse(self, upload: Upload, error: WenmaiError) -> Document:
        """Record that a document cannot be read, and why; a version ingested before stays searchable."""
        hash_hex = await content_hash(upload.content)
        document_id = await self._identity.of(upload, hash_hex)
        async with self._locks.of(document_id):
            stored = await self.release(document_id)
            document = self._document(_named(upload), document_id, hash_hex, stored)
            await self._parts.versions.fail(document, error)
            self._jobs.log_failed(document, error)
            refused = await self._documents.load(document_id)
        return refused.document if refused is not None else document

    async def release(self, document_id: str, except_job: str = "") -> StoredDocument | None:
        """Stop all work on the document and return it, complete or failed; its lock must be held.

        Of its spooled uploads, only that of the job `except_job` is left.
        """
        is_ours = self._jobs.active(document_id) is not None
        await self._jobs.cancel(document_id)
        stored = await self._documents.load(document_id)
        if stored is not None and not stored.is_settled:
            if not is_ours and self._is_alive(stored):
                raise UnavailableError(ELSEWHERE)
            await self._parts.versions.repair(stored)
            stored = await self._documents.load(document_id)
        await self._spool.drop_others(document_id, except_job)
        return stored

    async def resume(self, header: UploadHeader, stored: StoredDocument) -> None:
        """Resume, as the same job, what an earlier run of the server left unfinished."""
        upload = header.upload(b"")
        document = self._document(upload, header.document_id, header.content_hash, stored)
        # the chunks stored so far belong to the reading that was begun, perhaps by an earlier release
        document = replace(document, size_bytes=header.size_bytes, reading=_pending(stored)[1])

        async def read() -> Pieces:
            return await self._read_spooled(upload, header.job_id)

        await self._parts.versions.rewind(document)
        work = Ingestion(self._parts, document, read, lambda: self._spool.drop(header.job_id))
        self._jobs.submit(document, 0, work, header.job_id)
        log.debug("ingestion_resumed", document_id=header.document_id)

    async def _read_spooled(self, upload: Upload, job_id: str) -> Pieces:
        return await self._parse(upload.file_name, await self._spool.read(job_id), upload.owner)

    async def recover(self) -> int:
        """Resume accepted ingestions; other documents whose ingestion died revert to their previous state or
        become failed. Returns how many could not be resumed; may be called again after it failed."""
        waiting = {
            (each.document_id, each.content_hash): each
            for each in await self._spool.claim()
            if self._jobs.active(each.document_id) is None
        }
        repaired = 0
        for stored in [each async for each in self._documents.unsettled()]:
            header = waiting.pop((stored.document.document_id, _pending(stored)[0]), None)
            if header is not None:  # uploads in our spool belong to no other process
                await self.resume(header, stored)
            elif not self._is_alive(stored):
                await self._parts.versions.repair(stored)
                repaired += 1
        for left in waiting.values():  # already ingested, or never accepted
            await self._spool.drop(left.job_id)
        if repaired:
            log.warning("ingestion_interrupted", documents=repaired)
        return repaired

    async def repair_partial(self) -> None:
        """Repair documents left half-written when the store went away; an upload that was not accepted leaves
        no trace. Raises StoreUnavailableError."""
        for document_id in tuple(self._jobs.left):
            async with self._locks.of(document_id):
                stored = await self._documents.load(document_id)
                at_work = self._jobs.active(document_id) is not None
                if stored is not None and not stored.is_settled and not at_work:
                    await self._parts.versions.repair(stored)
                    await self._spool.drop_others(document_id, "")
                self._jobs.left.discard(document_id)

    def _is_alive(self, stored: StoredDocument) -> bool:
        """Whether it is being ingested, by this process or another one with a recent heartbeat."""
        if stored.is_settled:
            return False
        if self._jobs.active(stored.document.document_id) is not None:
            return True
        return not self._one_process and self._clock() - stored.updated_us < STALE_AFTER_US

    async def _known(self, upload: Upload, hash_hex: str, stored: StoredDocument) -> Addition | None:
        """Return the addition if the same content is being ingested, or stored and need not be read again."""
        job = self._jobs.active(stored.document.document_id)
        if job is not None and job.document.content_hash == hash_hex:
            return Addition(stored.document, job.job_id, existing=True)
        if stored.document.status is DocumentStatus.FAILED:
            return None
        if job is None and not stored.is_settled and self._is_alive(stored):
            if hash_hex in (_pending(stored)[0], stored.document.content_hash):
                return Addition(stored.document, None, existing=True)
            raise UnavailableError(ELSEWHERE)
        if not (stored.is_ready and stored.document.content_hash == hash_hex) or stored.document.is_outdated:
            return None
        settled = stored if stored.is_settled else await self.release(stored.document.document_id)
        document = await self._redescribe((settled or stored).document, upload)
        return Addition(document, None, existing=True)

    async def _redescribe(self, document: Document, upload: Upload) -> Document:
        """Update the metadata of unchanged content that is uploaded again under the same external id."""
        if upload.external_id is None:
            return document
        described = replace(
            document,
            owner=upload.owner,
            file_name=upload.file_name,
            tags=document.tags if upload.tags is None else upload.tags,
            date=upload.date or document.date,
            source=upload.source,
            modified_us=upload.modified_us,
            error=None,
            refused_hash="",
        )
        return await self.describe(document, described)

    async def describe(self, document: Document, described: Document) -> Document:
        """Write new metadata to record and chunks; nothing is embedded again."""
        if described == document:
            return document
        shown = replace(described, modified_us=0, error=None, refused_hash="")
        if shown != replace(document, modified_us=0, error=None, refused_hash=""):
            await self._chunks.describe(described)
        await self._documents.save(described)
        return described

    async def _accept(self, upload: Upload, document: Document, pieces: Pieces | None) -> Addition:
        """Replace any earlier work on the document by this newer upload. `pieces` None: it is still to be
        parsed."""
        document_id, job_id = document.document_id, str(uuid.uuid4())
        if upload.survives_crash:
            await self._spool.keep(_header(upload, document, job_id), upload.content)
        try:
            stored = await self.release(document_id, job_id)
            recorded = await self._parts.versions.accept(document, stored)
        except WenmaiError:
            self._jobs.left.add(document_id)
            await self._spool.drop(job_id)
            raise

        described, count = replace(upload, content=b""), len(pieces or ())

        async def read() -> Pieces:
            return pieces or await self._read_spooled(described, job_id)

        work = Ingestion(self._parts, document, read, lambda: self._spool.drop(job_id))
        self._jobs.submit(document, count, work, job_id)
        log.debug("document_accepted", document_id=document_id, chunks=count, bytes=document.size_bytes)
        return Addition(recorded, job_id, existing=False)

    def _document(
        self, upload: Upload, document_id: str, hash_hex: str, stored: StoredDocument | None
    ) -> Document:
        return Document(
            document_id=document_id,
            owner=upload.owner,
            file_name=upload.file_name,
            content_hash=hash_hex,
            size_bytes=len(upload.content),
            created_us=stored.document.created_us if stored else self._clock(),
            status=DocumentStatus.INGESTING,
            external_id=upload.external_id,
            tags=self._tags(document_id, stored) if upload.tags is None else upload.tags,
            date=upload.date or _kept_date(stored, hash_hex),
            source=upload.source,
            modified_us=upload.modified_us,
            reading=reading_of(upload.file_name),
        )

    def _tags(self, document_id: str, stored: StoredDocument | None) -> tuple[str, ...]:
        """Return the tags of the newest version, which may still be being ingested."""
        job = self._jobs.active(document_id)
        if job is not None:
            return job.document.tags
        return stored.document.tags if stored else ()


def _pending(stored: StoredDocument) -> tuple[str, int]:
    """Return the hash of the content still being ingested, and its reading; "" if all is searchable."""
    document = stored.document
    if document.status is DocumentStatus.INGESTING:
        return document.content_hash, document.reading
    if stored.incoming == document.revision:
        return "", 0
    hash_hex, _, reading = stored.incoming.partition(".")
    return hash_hex, int(reading or 0)


def _kept_date(stored: StoredDocument | None, hash_hex: str) -> str | None:
    """Return the date of a document whose content is only read again: somebody may have set it."""
    return stored.document.date if stored and stored.document.content_hash == hash_hex else None


def _header(upload: Upload, document: Document, job_id: str) -> UploadHeader:
    return UploadHeader(
        job_id=job_id,
        document_id=document.document_id,
        content_hash=document.content_hash,
        owner=upload.owner,
        file_name=upload.file_name,
        size_bytes=document.size_bytes,
        external_id=upload.external_id,
        tags=document.tags,
        date=upload.date,
    )


def _named(upload: Upload) -> Upload:
    """Return the upload with a name that can be displayed, whatever the file is called."""
    with suppress(BadRequestError):
        return replace(upload, file_name=base_name(upload.file_name))
    return replace(upload, file_name=_UNNAMED)
