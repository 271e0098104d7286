"""Signs of life of the ingestions of one process, for the other workers on the same store."""

from __future__ import annotations

import asyncio

import structlog

from core.errors import StoreUnavailableError
from services.knowledge.documents import DocumentStore
from services.knowledge.jobs.queue import Jobs

EVERY_S = 30.0
STALE_AFTER_US = 300_000_000  # ten times as long as a living ingestion is silent
log = structlog.get_logger()


class Heartbeat:
    """Also for documents that wait in line, or for their next attempt."""

    def __init__(self, documents: DocumentStore, jobs: Jobs, every_s: float = EVERY_S) -> None:
        self._documents = documents
        self._jobs = jobs
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._beat(), name="ingestion heartbeat")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            if documents := self._jobs.active_documents():
                try:
                    await self._documents.touch(documents)
                except StoreUnavailableError:
                    log.warning("no_sign_of_life", documents=len(documents))
