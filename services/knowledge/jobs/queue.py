"""Background jobs: a few run at a time, the others wait in line, and clients can follow their progress."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_exponential

from config.logging import RateLimitedLog
from core.errors import StoreUnavailableError, UnavailableError, UnknownJobError, WenmaiError
from core.knowledge import Document, JobFigures, JobSnapshot, JobStage
from services.knowledge.documents import DocumentStore
from services.knowledge.jobs.job import Job, Work
from services.knowledge.jobs.lanes import Lanes
from services.store.clock import Clock, utc_now_us

MAX_WAITING_JOBS = 1_000
MAX_WAITING_CHUNKS = 200_000  # their texts are held in memory
MAX_REMEMBERED = 1_000
STALE_AFTER_US = 300_000_000  # ten times the heartbeat interval
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Retries:
    """The wait doubles after each attempt: 8, 16, 32 and 64 seconds, two minutes in all."""

    attempts: int = 5
    first_wait_s: float = 8.0


RETRIES: Final = Retries()


class Jobs:
    """At most one job per document. Ended jobs are remembered up to a bound, dropping the oldest first."""

    def __init__(self, clock: Clock = utc_now_us, retries: Retries = RETRIES) -> None:
        self._clock = clock
        self._retries = retries
        self._lanes = Lanes()
        self._reserved: dict[str, int] = {}  # chunks by document being accepted
        self._jobs: dict[str, Job] = {}
        self._ended: deque[str] = deque()
        self._outcomes: Counter[JobStage] = Counter()
        self._by_document: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._log = RateLimitedLog()
        self.left: set[str] = set()
        """Documents to be repaired once the store is back: it went away in the middle of their ingestion."""
        self.sample_pending = False  # whether this start still has to ingest the sample

    def submit(self, document: Document, total: int, work: Work, job_id: str | None = None) -> Job:
        """Queue work; the document must have no other job."""
        job = Job(document, total, self._clock, job_id)
        self._jobs[job.job_id] = self._by_document[document.document_id] = job
        self._tasks[job.job_id] = asyncio.create_task(self._run(job, work), name=f"job {job.job_id}")
        return job

    def check_room(self) -> None:
        """Raises UnavailableError if the queue is too long."""
        self._check_room(self._waiting(), 1)

    @contextmanager
    def room(self, document_id: str, chunks: int) -> Iterator[None]:
        """Reserve room for a document until it is submitted or given up; an empty queue has room for any
        number. The document's lock must be held. Raises UnavailableError."""
        waiting = self._waiting(document_id)
        self._check_room(waiting, chunks if sum(waiting) else 0)
        self._reserved[document_id] = chunks
        try:
            yield
        finally:
            del self._reserved[document_id]

    def _waiting(self, excluded: str = "") -> list[int]:
        """Return the chunk counts of documents being accepted and of waiting jobs, without `excluded`."""
        jobs = (job for job in self._by_document.values() if job.is_waiting)
        others = [job.total for job in jobs if job.document.document_id not in (excluded, *self._reserved)]
        return others + list(self._reserved.values())

    def _check_room(self, waiting: Sequence[int], more: int) -> None:
        if len(waiting) >= MAX_WAITING_JOBS or sum(waiting) + more > MAX_WAITING_CHUNKS:
            raise UnavailableError("Too many documents are waiting to be read; try again later.")

    def get(self, job_id: str, owners: Sequence[str]) -> Job:
        """Raises UnknownJobError if there is none or it is somebody else's."""
        job = self._jobs.get(job_id)
        if job is None or job.document.owner not in owners:
            raise UnknownJobError("job_id: there is no such job.")
        return job

    def list(self, owners: Sequence[str]) -> list[JobSnapshot]:
        """Return waiting, running and recently ended jobs, newest first."""
        return [job.snapshot() for job in reversed(self._jobs.values()) if job.document.owner in owners]

    def active(self, document_id: str) -> Job | None:
        """Return the document's waiting or running job."""
        return self._by_document.get(document_id)

    def is_active(self, owners: Sequence[str], *, without_sample: bool = False) -> bool:
        """Whether one of their jobs waits or runs; its document is searchable only once it is done."""
        if self.sample_pending and not without_sample:
            return True
        theirs = (job.document for job in self._by_document.values() if job.document.owner in owners)
        return any(not (without_sample and document.is_sample) for document in theirs)

    def active_documents(self) -> tuple[str, ...]:
        return tuple(self._by_document)

    async def cancel(self, document_id: str) -> None:
        """Return once nothing works on the document any more."""
        job = self._by_document.get(document_id)
        if job is not None:
            await self._stop(job)

    def forget(self, document_id: str) -> None:
        """Forget the document's ended jobs."""
        ended = [
            job for job in self._jobs.values() if job.document.document_id == document_id and job.is_final
        ]
        for job in ended:
            del self._jobs[job.job_id]
            self._ended.remove(job.job_id)

    def remembered(self, document_ids: Collection[str]) -> tuple[int, int]:
        """Return how many jobs are remembered, and how many of them belong to these documents."""
        of_them = [job for job in self._jobs.values() if job.document.document_id in document_ids]
        return len(self._jobs), len(of_them)

    def figures(self) -> JobFigures:
        now = Counter(job.snapshot().stage for job in self._by_document.values())
        waiting, retrying = now[JobStage.WAITING], now[JobStage.RETRYING]
        return JobFigures(
            waiting=waiting,
            running=now.total() - waiting - retrying,
            retrying=retrying,
            waiting_chunks=sum(self._waiting()),
            done=self._outcomes[JobStage.DONE],
            failed=self._outcomes[JobStage.FAILED],
            cancelled=self._outcomes[JobStage.CANCELLED],
        )

    async def close(self) -> None:
        """Cancel all running and waiting jobs."""
        for job in reversed(tuple(self._by_document.values())):  # or a freed slot would start the next one
            self._tasks[job.job_id].cancel()
        for job in tuple(self._by_document.values()):
            await self._stop(job)

    async def _stop(self, job: Job) -> None:
        task = self._tasks.get(job.job_id)
        if task is not None:
            if not task.cancelling():  # only once: its clean-up must not be cancelled
                task.cancel()
            await asyncio.wait([task])
        if not job.is_final:  # a task cancelled before its first step could not report it
            self._end(job, JobStage.CANCELLED)

    async def _run(self, job: Job, work: Work) -> None:
        try:
            await self._attempts(job, work)
        except asyncio.CancelledError:
            self._end(job, JobStage.CANCELLED)
            raise
        except WenmaiError as error:
            await self._fail(job, work, error)
        except Exception:  # one broken document must not stop the queue
            log.exception("job_crashed", document_id=job.document.document_id)
            await self._fail(job, work, WenmaiError("The document could not be stored."))
        else:
            self._end(job, JobStage.DONE)

    async def _attempts(self, job: Job, work: Work) -> None:
        """Run the work with retries, giving up its slot while it waits for the next attempt."""

        def on_retry(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            if isinstance(error, WenmaiError) and state.next_action is not None:
                log.warning("job_retried", document_id=job.document.document_id, code=error.code)
                job.retry(error, state.next_action.sleep)

        attempts = AsyncRetrying(
            retry=retry_if_exception(_is_retryable),
            stop=stop_after_attempt(self._retries.attempts),
            wait=wait_exponential(multiplier=self._retries.first_wait_s, max=3_600),
            before_sleep=on_retry,
            reraise=True,
        )
        async for attempt in attempts:
            with attempt:
                async with self._lanes.turn(job):
                    job.begin(attempt.retry_state.attempt_number)
                    await work.run(job)

    async def _fail(self, job: Job, work: Work, error: WenmaiError) -> None:
        try:
            await work.undo(error)
        except StoreUnavailableError:
            self.left.add(job.document.document_id)
            log.warning("job_not_undone", document_id=job.document.document_id)
        finally:
            self._end(job, JobStage.FAILED, error)

    def _end(self, job: Job, stage: JobStage, error: WenmaiError | None = None) -> None:
        del self._by_document[job.document.document_id]
        del self._tasks[job.job_id]
        job.end(stage, error)
        self._outcomes[stage] += 1
        self._ended.append(job.job_id)
        if len(self._ended) > MAX_REMEMBERED:
            del self._jobs[self._ended.popleft()]
        if error is not None:
            self.log_failed(job.document, error)
        elif stage is JobStage.DONE:
            self._log_ready(job)

    def log_failed(self, document: Document, error: WenmaiError) -> None:
        """Log the code only: the error's message may quote the document and stays in its record."""
        self._log(logging.WARNING, "document_failed", {"code": error.code}, document_id=document.document_id)

    def _log_ready(self, job: Job) -> None:
        now = job.snapshot()
        self._log(
            logging.DEBUG if job.document.is_sample else logging.INFO, "document_ready", {},
            document_id=now.document_id,
            chunks=now.total,
            seconds=round(((now.ended_us or 0) - (now.started_us or 0)) / 1_000_000, 3),
        )  # fmt: skip


def _is_retryable(error: BaseException) -> bool:
    return isinstance(error, WenmaiError) and error.retryable


BEAT_S = 30.0


class Heartbeat:
    """Heartbeats of this process's ingestions, for the other workers on the same store; also for documents
    waiting in the queue or for their next attempt."""

    def __init__(self, documents: DocumentStore, jobs: Jobs) -> None:
        self._documents = documents
        self._jobs = jobs
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._beat(), name="ingestion heartbeat")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            if documents := self._jobs.active_documents():
                try:
                    await self._documents.touch(documents)
                except StoreUnavailableError:
                    log.warning("no_sign_of_life", documents=len(documents))
