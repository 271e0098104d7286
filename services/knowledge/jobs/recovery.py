"""What a start does with documents whose reading in was cut: it goes on, or is undone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from core.knowledge import DocumentStatus
from services.knowledge.documents import DocumentStore, StoredDocument
from services.knowledge.jobs.spool import Spool, UploadHeader
from services.knowledge.versions import Versions

Resume = Callable[[UploadHeader, StoredDocument], Awaitable[None]]
log = structlog.get_logger()


async def recover(
    documents: DocumentStore,
    versions: Versions,
    spool: Spool,
    resume: Resume,
    is_running: Callable[[str], bool],
    is_alive: Callable[[StoredDocument], bool],
) -> int:
    """Returns how many could not go on. May be called again after it failed.

    `is_running` says of a document whether this process works on it, `is_alive` whether any does: what is
    kept here is nobody else's. Raises StoreUnavailableError.
    """
    waiting = {
        (each.document_id, each.content_hash): each
        for each in await spool.claim()
        if not is_running(each.document_id)
    }
    mended = 0
    for stored in [each async for each in documents.unsettled()]:
        upload = waiting.pop((stored.document.document_id, _awaited(stored)), None)
        if upload is not None:
            await resume(upload, stored)
        elif not is_alive(stored):
            await versions.mend(stored)
            mended += 1
    for left in waiting.values():  # it was read in, or never accepted
        await spool.drop(left.job_id)
    if mended:
        log.warning("ingestion_interrupted", documents=mended)
    return mended


def _awaited(stored: StoredDocument) -> str:
    """The hash of the content that is not searched yet; "" when it is."""
    document = stored.document
    if document.status is DocumentStatus.INGESTING:
        return document.content_hash
    return stored.incoming if stored.incoming != document.content_hash else ""
