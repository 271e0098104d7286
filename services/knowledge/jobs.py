"""Background jobs: one runs at a time, the others wait in line, and whoever asks sees how far they are."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Sequence

import structlog

from core.errors import StoreUnavailableError, UnavailableError, UnknownJobError, WenmaiError
from core.knowledge import Document
from services.knowledge.job import Job, JobSnapshot, JobStage, Work

MAX_WAITING_JOBS = 1_000
MAX_WAITING_CHUNKS = 200_000  # their texts are held in memory
MAX_REMEMBERED = 1_000
log = structlog.get_logger()


class Jobs:
    """The registry and the worker. Finished jobs are remembered up to a bound, the oldest go first."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._finished: deque[str] = deque()
        self._by_document: dict[str, Job] = {}
        self._waiting: deque[tuple[Job, Work]] = deque()
        self._running: asyncio.Task[None] | None = None
        self._worker: asyncio.Task[None] | None = None

    def submit(self, document: Document, total: int, work: Work) -> Job:
        """Put work at the end of the line. Raises UnavailableError when the line is too long."""
        self.check_room()
        job = Job(document, total)
        self._jobs[job.job_id] = self._by_document[document.document_id] = job
        self._waiting.append((job, work))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work(), name="jobs")
        return job

    def check_room(self) -> None:
        chunks = sum(job.total for job, _ in self._waiting)
        if len(self._waiting) >= MAX_WAITING_JOBS or chunks >= MAX_WAITING_CHUNKS:
            raise UnavailableError("Too many documents are waiting to be read; try again later.")

    def get(self, job_id: str, owners: Sequence[str]) -> Job:
        """Raises UnknownJobError when there is none, or when it is somebody else's."""
        job = self._jobs.get(job_id)
        if job is None or job.document.owner not in owners:
            raise UnknownJobError("job_id: there is no such job.")
        return job

    def list(self, owners: Sequence[str]) -> list[JobSnapshot]:
        """Those that wait, run, or ended lately; the newest first."""
        return [job.snapshot() for job in reversed(self._jobs.values()) if job.document.owner in owners]

    def active(self, document_id: str) -> Job | None:
        """The job that waits or runs for a document."""
        return self._by_document.get(document_id)

    async def cancel(self, document_id: str) -> None:
        """Returns when nothing works on the document any more."""
        job = self._by_document.get(document_id)
        if job is None:
            return
        still_waiting = [entry for entry in self._waiting if entry[0] is job]
        if still_waiting:
            self._waiting.remove(still_waiting[0])
            self._finish(job, JobStage.CANCELLED)
        elif self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
            self._end_unstarted(job)

    def forget(self, document_id: str) -> int:
        """Remember the document's finished jobs no more. Returns how many."""
        ended = [
            job for job in self._jobs.values() if job.document.document_id == document_id and job.is_final
        ]
        for job in ended:
            del self._jobs[job.job_id]
            self._finished.remove(job.job_id)
        return len(ended)

    def remembered(self, document_ids: Collection[str]) -> tuple[int, int]:
        """How many jobs are remembered, and how many of them are of these documents."""
        of_them = [job for job in self._jobs.values() if job.document.document_id in document_ids]
        return len(self._jobs), len(of_them)

    async def close(self) -> None:
        """Cancel the running job and all that wait."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        while self._waiting:
            self._finish(self._waiting.popleft()[0], JobStage.CANCELLED)

    async def _work(self) -> None:
        while self._waiting:
            job, work = self._waiting.popleft()
            self._running = asyncio.create_task(self._run(job, work), name=f"job {job.job_id}")
            try:
                await asyncio.wait([self._running])
            finally:
                self._running.cancel()
                await asyncio.wait([self._running])
                self._end_unstarted(job)

    async def _run(self, job: Job, work: Work) -> None:
        try:
            job.enter(JobStage.EMBEDDING)
            await work.run(job.report)
        except asyncio.CancelledError:
            self._finish(job, JobStage.CANCELLED)
            raise
        except WenmaiError as error:
            log.warning("job_failed", document_id=job.document.document_id, code=error.code)
            await self._fail(job, work, error)
        except Exception:  # one broken document must not stop the line
            log.exception("job_crashed", document_id=job.document.document_id)
            await self._fail(job, work, WenmaiError("The document could not be stored."))
        else:
            self._finish(job, JobStage.DONE)

    async def _fail(self, job: Job, work: Work, error: WenmaiError) -> None:
        try:
            await work.undo(error)
        except StoreUnavailableError:  # what is left is found and removed at the next start
            log.warning("job_not_undone", document_id=job.document.document_id)
        finally:
            self._finish(job, JobStage.FAILED, error)

    def _end_unstarted(self, job: Job) -> None:
        """A task that was cancelled before its first step could not say so itself."""
        if not job.is_final:
            self._finish(job, JobStage.CANCELLED)

    def _finish(self, job: Job, stage: JobStage, error: WenmaiError | None = None) -> None:
        del self._by_document[job.document.document_id]
        job.enter(stage, error)
        self._finished.append(job.job_id)
        if len(self._finished) > MAX_REMEMBERED:
            del self._jobs[self._finished.popleft()]
