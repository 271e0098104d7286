"""The part of a knowledge base that folder sync uses, in memory. Contents that begin with BAD are refused."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from core.errors import EmptyFileError, StoreUnavailableError, UnreadableDocumentError, WenmaiError
from core.formats import reading_of
from core.knowledge import Addition, Document, DocumentStatus, JobSnapshot, JobStage, Upload

BROKEN = "The file is broken."


@dataclass
class FakeKnowledge:
    """`calls` counts calls by name; while `away` > 0 each call fails and lowers it by one."""

    documents: dict[str, Document] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    jobs: dict[str, JobSnapshot] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    away: int = 0
    failing_jobs: bool = False

    async def add(self, upload: Upload) -> Addition:
        self._called("add")
        if not upload.content:
            raise EmptyFileError("file: the file is empty.")
        if upload.content.startswith(b"BAD"):
            raise UnreadableDocumentError(BROKEN)
        document = self._of(upload, DocumentStatus.READY)
        job_id = str(uuid.uuid4())
        if self.failing_jobs:
            document = replace(document, status=DocumentStatus.FAILED, error="away")
            self.jobs[job_id] = self._job(document, job_id, JobStage.FAILED)
        else:
            self.contents[document.document_id] = upload.content
            self.jobs[job_id] = self._job(document, job_id, JobStage.DONE)
        self.documents[document.document_id] = document
        return Addition(document, job_id, existing=False)

    def _job(self, document: Document, job_id: str, stage: JobStage) -> JobSnapshot:
        failed = stage is JobStage.FAILED
        return JobSnapshot(
            job_id, document.document_id, document.file_name, stage, 0, 1,
            error="The embedding is away." if failed else None, retryable=failed,
        )  # fmt: skip

    async def refuse(self, upload: Upload, error: WenmaiError) -> Document:
        self._called("refuse")
        refused = self._of(upload, DocumentStatus.FAILED)
        searched = self.documents.get(refused.document_id)
        if searched is not None and searched.status is DocumentStatus.READY:
            refused = replace(
                searched,
                error=str(error),
                refused_hash=refused.revision,
                modified_us=upload.modified_us,
            )
        else:
            refused = replace(refused, error=str(error))
        self.documents[refused.document_id] = refused
        return refused

    async def of_source(self, source: str) -> AsyncIterator[Document]:
        self._called("of_source")
        for document in list(self.documents.values()):
            if document.source == source:
                yield document

    async def note_modified(self, document_id: str, modified_us: int) -> None:
        self._called("note_modified")
        self.documents[document_id] = replace(self.documents[document_id], modified_us=modified_us)

    async def erase(self, document_id: str) -> None:
        self._called("erase")
        self.documents.pop(document_id, None)
        self.contents.pop(document_id, None)

    async def wait(self, job_id: str, owners: Sequence[str]) -> JobSnapshot:
        return self.jobs[job_id]

    def searched(self) -> dict[str, bytes]:
        """By external id, the contents that are found."""
        return {
            document.external_id or "": self.contents[document_id]
            for document_id, document in self.documents.items()
            if document.status is DocumentStatus.READY
        }

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.away:
            self.away -= 1
            raise StoreUnavailableError("The store does not answer.")

    def _of(self, upload: Upload, status: DocumentStatus) -> Document:
        return Document(
            document_id=str(uuid.uuid5(uuid.NAMESPACE_URL, upload.external_id or "")),
            owner=upload.owner,
            file_name=upload.file_name,
            content_hash=hashlib.sha256(upload.content).hexdigest(),
            size_bytes=len(upload.content),
            created_us=1,
            reading=reading_of(upload.file_name),
            status=status,
            external_id=upload.external_id,
            tags=upload.tags or (),
            source=upload.source,
            modified_us=upload.modified_us,
        )
