"""What comes in: a new document, a new version of one, the same content again, or what cannot be read."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from dataclasses import replace

import structlog

from core.errors import BadRequestError, UnavailableError, WenmaiError
from core.knowledge import Addition, Document, DocumentStatus, Upload
from services.knowledge.chunks import ChunkStore
from services.knowledge.documents import DocumentStore, StoredDocument
from services.knowledge.ingestion import Ingestion, Parts, to_the_end
from services.knowledge.jobs.lanes import CpuHours, Locks
from services.knowledge.jobs.queue import STALE_AFTER_US, Jobs
from services.knowledge.jobs.spool import Spool, UploadHeader
from services.knowledge.parsing.pieces import Pieces
from services.knowledge.parsing.process import DocumentParser
from services.knowledge.upload import Identity, base_name, checked, content_hash
from services.store.clock import Clock

ELSEWHERE = "The document is being read in by another worker; try again in a moment."
_UNNAMED = "unnamed"
ANSWER_S = 5.0  # for a client that waits; whatever is not read by then is read in the background
log = structlog.get_logger()


class Intake:
    """`one_process`: nobody else works on the store."""

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
        """Raises BadRequestError and its kinds (nothing is stored then) and UnavailableError kinds."""
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
            pieces = await self._parsed(upload)
            if stored is not None:  # as it is now: reading may have taken long
                stored = await self._documents.load(document_id)
            document = self._document(upload, document_id, hash_hex, stored)
            document = replace(document, date=upload.date or (pieces.date if pieces else "") or None)
            with self._jobs.room(document_id, len(pieces or ())):  # others came while it was parsed
                return await to_the_end(self._accept(upload, document, pieces))

    async def _parsed(self, upload: Upload) -> Pieces | None:
        """None for an upload that takes longer than its client should wait: it is read by the job, from the
        disk."""
        patience_s = ANSWER_S - upload.waited_s if upload.survives_crash else None
        if patience_s is not None and patience_s <= 0:
            return None
        try:
            async with asyncio.timeout(patience_s):
                return await self._parse(upload.file_name, upload.content, upload.owner)
        except TimeoutError:
            return None

    async def refuse(self, upload: Upload, error: WenmaiError) -> Document:
        """Keep a record of what cannot be read, and why; what was read in before stays searchable."""
        hash_hex = await content_hash(upload.content)
        document_id = await self._identity.of(upload, hash_hex)
        async with self._locks.of(document_id):
            stored = await self.freed(document_id)
            document = self._document(_named(upload), document_id, hash_hex, stored)
            await self._parts.versions.fail(document, error)
            self._jobs.log_failed(document, error)
            refused = await self._documents.load(document_id)
        return refused.document if refused is not None else document

    async def freed(self, document_id: str, but_job: str = "") -> StoredDocument | None:
        """The document with nobody at work on it, and whole or failed; its lock must be held.

        Of what was kept for it, only that of the job `but_job` is left.
        """
        is_ours = self._jobs.active(document_id) is not None
        await self._jobs.cancel(document_id)
        stored = await self._documents.load(document_id)
        if stored is not None and not stored.is_settled:
            if not is_ours and self._is_alive(stored):
                raise UnavailableError(ELSEWHERE)
            await self._parts.versions.mend(stored)
            stored = await self._documents.load(document_id)
        await self._spool.drop_others(document_id, but_job)
        return stored

    async def resume(self, header: UploadHeader, stored: StoredDocument) -> None:
        """Go on where a life of the server that is over stopped, as the same job."""
        upload = header.upload(b"")
        document = self._document(upload, header.document_id, header.content_hash, stored)
        document = replace(document, size_bytes=header.size_bytes)

        async def read() -> Pieces:
            return await self._read_kept(upload, header.job_id)

        await self._parts.versions.rewind(stored, header.content_hash)
        work = Ingestion(self._parts, document, read, lambda: self._spool.drop(header.job_id))
        self._jobs.submit(document, 0, work, header.job_id)
        log.debug("ingestion_resumed", document_id=header.document_id)

    async def _read_kept(self, upload: Upload, job_id: str) -> Pieces:
        return await self._parse(upload.file_name, await self._spool.read(job_id), upload.owner)

    async def recover(self) -> int:
        """What was accepted goes on being read in; other documents whose ingestion died become what they were
        before, or failed. Returns how many could not go on; may be called again after it failed."""
        waiting = {
            (each.document_id, each.content_hash): each
            for each in await self._spool.claim()
            if self._jobs.active(each.document_id) is None
        }
        mended = 0
        for stored in [each async for each in self._documents.unsettled()]:
            header = waiting.pop((stored.document.document_id, _awaited(stored)), None)
            if header is not None:  # what is in our spool is nobody else's
                await self.resume(header, stored)
            elif not self._is_alive(stored):
                await self._parts.versions.mend(stored)
                mended += 1
        for left in waiting.values():  # it was read in, or never accepted
            await self._spool.drop(left.job_id)
        if mended:
            log.warning("ingestion_interrupted", documents=mended)
        return mended

    async def mend_left(self) -> None:
        """Of documents that the store left half when it went away; an upload that was not accepted is as if
        it had not come. Raises StoreUnavailableError."""
        for document_id in tuple(self._jobs.left):
            async with self._locks.of(document_id):
                stored = await self._documents.load(document_id)
                at_work = self._jobs.active(document_id) is not None
                if stored is not None and not stored.is_settled and not at_work:
                    await self._parts.versions.mend(stored)
                    await self._spool.drop_others(document_id, "")
                self._jobs.left.discard(document_id)

    def _is_alive(self, stored: StoredDocument) -> bool:
        """Somebody reads it in: this process, or another one that showed signs of life lately."""
        if stored.is_settled:
            return False
        if self._jobs.active(stored.document.document_id) is not None:
            return True
        return not self._one_process and self._clock() - stored.updated_us < STALE_AFTER_US

    async def _known(self, upload: Upload, hash_hex: str, stored: StoredDocument) -> Addition | None:
        """What needs no reading in: the same content is there, or is being read in."""
        job = self._jobs.active(stored.document.document_id)
        if job is not None and job.document.content_hash == hash_hex:
            return Addition(stored.document, job.job_id, existing=True)
        if stored.document.status is DocumentStatus.FAILED:
            return None
        if job is None and not stored.is_settled and self._is_alive(stored):
            if hash_hex in (stored.incoming, stored.document.content_hash):
                return Addition(stored.document, None, existing=True)
            raise UnavailableError(ELSEWHERE)
        if not (stored.is_ready and stored.document.content_hash == hash_hex):
            return None
        settled = stored if stored.is_settled else await self.freed(stored.document.document_id)
        document = await self._described_anew((settled or stored).document, upload)
        return Addition(document, None, existing=True)

    async def _described_anew(self, document: Document, upload: Upload) -> Document:
        """The same content under the same external id: what else is said of it counts from now on."""
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
        """Record and chunks say the new things; nothing is embedded again."""
        if described == document:
            return document
        shown = replace(described, modified_us=0, error=None, refused_hash="")
        if shown != replace(document, modified_us=0, error=None, refused_hash=""):
            await self._chunks.describe(described)
        await self._documents.save(described)
        return described

    async def _accept(self, upload: Upload, document: Document, pieces: Pieces | None) -> Addition:
        """What was at work on the document before makes room for this, which is newer. `pieces` None: it is
        still to be read."""
        document_id, job_id = document.document_id, str(uuid.uuid4())
        if upload.survives_crash:
            await self._spool.keep(_header(upload, document, job_id), upload.content)
        try:
            stored = await self.freed(document_id, job_id)
            recorded = await self._parts.versions.accept(document, stored)
        except WenmaiError:
            self._jobs.left.add(document_id)
            await self._spool.drop(job_id)
            raise

        described, count = replace(upload, content=b""), len(pieces or ())

        async def read() -> Pieces:
            return pieces or await self._read_kept(described, job_id)

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
            date=upload.date,
            source=upload.source,
            modified_us=upload.modified_us,
        )

    def _tags(self, document_id: str, stored: StoredDocument | None) -> tuple[str, ...]:
        """Those of the newest version, which may be on its way in."""
        job = self._jobs.active(document_id)
        if job is not None:
            return job.document.tags
        return stored.document.tags if stored else ()


def _awaited(stored: StoredDocument) -> str:
    """The hash of the content that is not searched yet; "" when it is."""
    document = stored.document
    if document.status is DocumentStatus.INGESTING:
        return document.content_hash
    return stored.incoming if stored.incoming != document.content_hash else ""


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
    """With a name that can be shown, whatever the file's is."""
    with suppress(BadRequestError):
        return replace(upload, file_name=base_name(upload.file_name))
    return replace(upload, file_name=_UNNAMED)
