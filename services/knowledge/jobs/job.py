"""A background job as its readers see it, and what work must be able to do."""

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
    """What a job's work reports to, and what its readers follow."""

    def __init__(self, document: Document, total: int, clock: Clock, job_id: str | None = None) -> None:
        self.document = document
        self._clock = clock
        self._now = JobSnapshot(
            job_id or str(uuid.uuid4()), document.document_id, document.file_name, JobStage.WAITING, 0, total
        )
        self._changed = asyncio.Event()

    @property
    def job_id(self) -> str:
        return self._now.job_id

    @property
    def total(self) -> int:
        return self._now.total

    @property
    def is_waiting(self) -> bool:
        """For its turn, or for its next attempt: what is to be read in is held in memory."""
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
        """So many chunks it has."""
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
        """The state now and after every change, the final one last; a slow reader skips what is outdated."""
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
        """Do it. It may be called again after an error that is retryable, and goes on then."""
        ...

    async def undo(self, error: WenmaiError) -> None:
        """It failed for good: leave nothing half done."""
        ...
