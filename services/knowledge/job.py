"""A background job as its readers see it, and what work must be able to do."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from core.errors import WenmaiError
from core.knowledge import Document


class JobStage(StrEnum):
    WAITING = "waiting"
    EMBEDDING = "embedding"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in (JobStage.DONE, JobStage.FAILED, JobStage.CANCELLED)


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """`done` of `total` chunks are embedded and stored. `error` is one plain sentence."""

    job_id: str
    document_id: str
    file_name: str
    stage: JobStage
    done: int
    total: int
    error: str | None = None
    error_code: str | None = None


class Work(Protocol):
    async def run(self, report: Callable[[int], None]) -> None:
        """Do it; `report` how many chunks are done."""
        ...

    async def undo(self, error: WenmaiError) -> None:
        """It failed: leave nothing half done."""
        ...


class Job:
    """What a job's work reports to, and what its readers follow."""

    def __init__(self, document: Document, total: int) -> None:
        self.job_id = str(uuid.uuid4())
        self.document = document
        self.total = total
        self._stage = JobStage.WAITING
        self._done = 0
        self._error: WenmaiError | None = None
        self._changed = asyncio.Event()

    @property
    def is_final(self) -> bool:
        return self._stage.is_final

    def snapshot(self) -> JobSnapshot:
        error = self._error
        return JobSnapshot(
            self.job_id, self.document.document_id, self.document.file_name, self._stage,
            self._done, self.total, str(error) if error else None, error.code if error else None,
        )  # fmt: skip

    def report(self, done: int) -> None:
        self._done = done
        self._change()

    def enter(self, stage: JobStage, error: WenmaiError | None = None) -> None:
        self._stage, self._error = stage, error
        self._change()

    async def changes(self) -> AsyncIterator[JobSnapshot]:
        """The state now and after every change, the final one last; a slow reader skips what is outdated."""
        while True:
            changed, final = self._changed, self.is_final
            yield self.snapshot()
            if final:
                return
            await changed.wait()

    def _change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
