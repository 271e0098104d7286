"""A background job as its observers see it, and the interface of its work."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Protocol

from core.errors import WenmaiError
from core.knowledge import Document, JobSnapshot, JobStage
from services.store.clock import Clock


class Job:
    """The progress of a job: its work reports to it, and its observers follow it."""

    def __init__(self, document: Document, total: int, clock: Clock, job_id: str | None = None) -> None:
        self.document = document
        self._clock = clock
        self._now = JobSnapshot(
            job_id or str(uuid.uuid4()), document.document_id, document.file_name, JobStage.WAITING, 0, total,
            external_id=document.external_id, source=document.source, sample=document.is_sample,
        )  # fmt: skip
        self._changed = asyncio.Event()

    @property
    def job_id(self) -> str:
        return self._now.job_id

    @property
    def total(self) -> int:
        return self._now.total

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for its turn or its next attempt, with its pieces held in memory."""
        return self._now.stage in (JobStage.WAITING, JobStage.RETRYING)

    @property
    def is_final(self) -> bool:
        return self._now.stage.is_final

    def snapshot(self) -> JobSnapshot:
        return self._now

    def begin(self, attempt: int) -> None:
        started_us = self._now.started_us or self._clock()
        self._set(replace(self._now, attempt=attempt, started_us=started_us, next_try_us=None))

    def enter(self, stage: JobStage) -> None:
        self._set(replace(self._now, stage=stage))

    def expect(self, total: int) -> None:
        """Set the number of chunks."""
        self._set(replace(self._now, total=total))

    def report(self, done: int, reused: int = 0) -> None:
        self._set(replace(self._now, done=done, reused=reused))

    def retry(self, error: WenmaiError, wait_s: float) -> None:
        next_try_us = self._clock() + round(wait_s * 1_000_000)
        self._set(replace(_with(self._now, error), stage=JobStage.RETRYING, next_try_us=next_try_us))

    def end(self, stage: JobStage, error: WenmaiError | None = None) -> None:
        ended = replace(_with(self._now, error), stage=stage, next_try_us=None, ended_us=self._clock())
        self._set(ended)

    async def changes(self) -> AsyncIterator[JobSnapshot]:
        """Yield the current state and every change up to the final one; slow readers skip outdated states."""
        while True:
            changed, final = self._changed, self.is_final
            yield self.snapshot()
            if final:
                return
            await changed.wait()

    def _set(self, now: JobSnapshot) -> None:
        self._now = now
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _with(snapshot: JobSnapshot, error: WenmaiError | None) -> JobSnapshot:
    if error is None:
        return replace(snapshot, error=None, error_code=None, retryable=False)
    return replace(snapshot, error=str(error), error_code=error.code, retryable=error.retryable)


class Work(Protocol):
    async def run(self, progress: Job) -> None:
        """Do the work. May be called again after a retryable error, and then continues."""
        ...

    async def undo(self, error: WenmaiError) -> None:
        """Clean up after a permanent failure, leaving nothing half done."""
        ...
