from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import pytest

from core.errors import (
    EmbeddingUnavailableError,
    StoreUnavailableError,
    UnavailableError,
    UnreadableDocumentError,
    WenmaiError,
)
from core.knowledge import Document, DocumentStatus, JobSnapshot, JobStage
from services.knowledge.jobs import queue as jobs_module
from services.knowledge.jobs.job import Job
from services.knowledge.jobs.lanes import MAX_LARGE, SMALL_BYTES, SMALL_CHUNKS
from services.knowledge.jobs.queue import MAX_WAITING_CHUNKS, Jobs, Retries
from tests.support.stores.knowledge import Clock

ME = ["ann"]
LARGE = SMALL_CHUNKS + 1
QUICK = Retries(attempts=3, first_wait_s=0.01)


def document(name: str = "a.md") -> Document:
    return Document(name, "ann", name, "hash", 1, 0, DocumentStatus.INGESTING)


@dataclass
class Steps:
    """Work that does one step each time it is released; each run may end with the next error."""

    steps: int = 3
    errors: list[BaseException] = field(default_factory=list)
    undo_error: WenmaiError | None = None
    let: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    runs: int = 0
    undone: WenmaiError | None = None

    async def run(self, progress: Job) -> None:
        self.runs += 1
        progress.enter(JobStage.EMBEDDING)
        for done in range(1, self.steps + 1):
            await self.let.acquire()
            progress.report(done)
        if self.errors:
            raise self.errors.pop(0)

    async def undo(self, error: WenmaiError) -> None:
        self.undone = error
        if self.undo_error:
            raise self.undo_error


def at_once(*errors: BaseException, undo_error: WenmaiError | None = None) -> Steps:
    return Steps(steps=0, errors=list(errors), undo_error=undo_error)


@pytest.fixture
async def jobs() -> AsyncIterator[Jobs]:
    opened = Jobs(Clock(), QUICK)
    yield opened
    await opened.close()


async def snapshots(jobs: Jobs, job_id: str) -> list[JobSnapshot]:
    return [snapshot async for snapshot in jobs.get(job_id, ME).changes()]


async def finished(jobs: Jobs, job_id: str) -> JobStage:
    return (await snapshots(jobs, job_id))[-1].stage


async def test_a_reader_sees_every_step_and_the_end(jobs: Jobs) -> None:
    work = Steps()
    job = jobs.submit(document(), 3, work)
    progress: list[tuple[JobStage, int]] = []
    async for snapshot in job.changes():
        progress.append((snapshot.stage, snapshot.done))
        work.let.release()
    assert progress[0] == (JobStage.WAITING, 0)
    assert [done for _, done in progress] == sorted(done for _, done in progress)
    assert progress[-1] == (JobStage.DONE, 3)
    last = job.snapshot()
    assert 0 < (last.started_us or 0) < (last.ended_us or 0)


async def test_owners_whose_documents_are_being_ingested(jobs: Jobs) -> None:
    """Discriminates: an ended job, and somebody else's, counted as one's own active job."""
    work = Steps(1)
    job = jobs.submit(document(), 1, work)
    assert jobs.is_active(["shared", "ann"])
    assert not jobs.is_active(["bob", "shared"])
    work.let.release()
    await finished(jobs, job.job_id)
    assert jobs.list(ME)
    assert not jobs.is_active(ME)


async def test_a_late_reader_gets_only_the_end(jobs: Jobs) -> None:
    job = jobs.submit(document(), 0, at_once())
    await finished(jobs, job.job_id)
    assert [snapshot.stage async for snapshot in job.changes()] == [JobStage.DONE]


async def test_two_large_jobs_run_at_once_and_others_start_in_arrival_order(jobs: Jobs) -> None:
    """Discriminates: more or fewer slots; a queue that is not first come, first served."""
    works = [Steps(steps=1) for _ in range(4)]
    submitted = [jobs.submit(document(name), LARGE, work) for name, work in zip("abcd", works, strict=True)]
    started: list[list[bool]] = []
    for last in (1, 0, 2, 3):
        await asyncio.sleep(0.02)  # jobs that may start have started
        started.append([job.snapshot().stage is not JobStage.WAITING for job in submitted])
        works[last].let.release()
        assert await finished(jobs, submitted[last].job_id) is JobStage.DONE
    assert MAX_LARGE == 2
    assert started == [[True, True, False, False], [True, True, True, False], [True] * 4, [True] * 4]


async def started(jobs: Jobs, *totals: int) -> list[bool]:
    """Return which of this many never-ending jobs run."""
    submitted = [jobs.submit(document(str(at)), total, Steps()) for at, total in enumerate(totals)]
    await asyncio.sleep(0.01)  # jobs that may start have started
    return [not job.is_waiting for job in submitted]


async def test_a_small_job_does_not_wait_for_large_ones(jobs: Jobs) -> None:
    """Discriminates: one queue for all; a large job in the small jobs' slot."""
    assert await started(jobs, LARGE, LARGE, LARGE, SMALL_CHUNKS, 1) == [True, True, False, True, False]


async def test_a_stream_of_small_jobs_does_not_block_a_large_one(jobs: Jobs) -> None:
    """Discriminates: small jobs first."""
    works = [Steps(steps=1) for _ in range(5)]
    totals = (1, 1, 1, LARGE, 1)
    submitted = [jobs.submit(document(str(n)), totals[n], work) for n, work in enumerate(works)]
    await asyncio.sleep(0.01)  # jobs that may start have started
    works[0].let.release()
    await finished(jobs, submitted[0].job_id)
    await asyncio.sleep(0.01)  # so has the next in the queue
    assert [job.is_waiting for job in submitted] == [False, False, False, False, True]


async def test_a_document_of_ones_own_does_not_wait_for_the_sample(jobs: Jobs) -> None:
    """Discriminates: the sample's files in every slot; the next of them before a waiting document."""
    sample = [replace(document(name), owner="shared") for name in "abcd"]
    works = [Steps(steps=1) for _ in sample]
    ours = [jobs.submit(each, 1, work) for each, work in zip(sample, works, strict=True)]
    assert [each.snapshot().sample for each in ours] == [True] * 4
    await asyncio.sleep(0.01)  # jobs that may start have started
    theirs = [jobs.submit(document(name), 1, Steps()) for name in "xyz"]
    await asyncio.sleep(0.01)
    assert [not job.is_waiting for job in (*ours, *theirs)] == [True, *[False] * 3, True, True, False]
    works[0].let.release()
    await asyncio.sleep(0.01)
    assert [not job.is_waiting for job in (*ours[1:], *theirs)] == [*[False] * 3, True, True, True]


async def test_an_unparsed_document_is_large_if_it_has_many_bytes(jobs: Jobs) -> None:
    """Discriminates: taking every job of a restart for small: three large ones fill all slots again."""
    works = [Steps() for _ in range(4)]
    sizes = [SMALL_BYTES + 1] * 3 + [SMALL_BYTES]
    submitted = [
        jobs.submit(replace(document(str(n)), size_bytes=size), 0, works[n]) for n, size in enumerate(sizes)
    ]
    await asyncio.sleep(0.01)  # jobs that may start have started
    assert [not job.is_waiting for job in submitted] == [True, True, False, True]


async def test_a_job_cancelled_in_the_queue_or_just_as_it_starts_keeps_no_slot(jobs: Jobs) -> None:
    """Discriminates: a cancelled job that stays among the running or waiting ones."""
    submitted = [jobs.submit(document(str(n)), LARGE, Steps()) for n in range(4)]
    await asyncio.sleep(0.01)  # jobs that may start have started
    await jobs.cancel("2")
    first = asyncio.create_task(jobs.cancel("0"))
    while jobs.active("0"):  # noqa: ASYNC110  # in the very step in which the next one's turn comes
        await asyncio.sleep(0)
    await asyncio.gather(first, jobs.cancel("3"))
    last = jobs.submit(document("last"), LARGE, at_once())
    assert await finished(jobs, last.job_id) is JobStage.DONE
    assert not submitted[1].is_final


@pytest.mark.parametrize("undo_error", [None, StoreUnavailableError("down")])
async def test_a_permanent_error_fails_the_job_after_undoing_its_work(
    jobs: Jobs, undo_error: WenmaiError | None
) -> None:
    work = at_once(UnreadableDocumentError("It is broken."), undo_error=undo_error)
    job = jobs.submit(document(), 0, work)
    assert await finished(jobs, job.job_id) is JobStage.FAILED
    last = job.snapshot()
    assert (last.error, last.error_code) == ("It is broken.", "unreadable_document")
    assert (last.retryable, last.attempt, work.runs) == (False, 1, 1)
    assert isinstance(work.undone, UnreadableDocumentError)


async def test_a_temporary_error_is_retried_and_shown_meanwhile(jobs: Jobs) -> None:
    """Discriminates: retrying permanent errors, or nothing; an error that is still shown after success."""
    work = at_once(EmbeddingUnavailableError("The model failed."), StoreUnavailableError("down"))
    job = jobs.submit(document(), 0, work)
    states = await snapshots(jobs, job.job_id)
    waiting = [each for each in states if each.stage is JobStage.RETRYING]
    assert [(each.error, each.retryable) for each in waiting] == [("The model failed.", True), ("down", True)]
    assert all((each.next_try_us or 0) > (each.started_us or 0) for each in waiting)
    last = states[-1]
    assert (last.stage, last.attempt, last.error, last.retryable) == (JobStage.DONE, 3, None, False)
    assert work.undone is None


async def test_after_the_last_attempt_the_job_fails(jobs: Jobs) -> None:
    work = at_once(*[StoreUnavailableError("down")] * 9)
    job = jobs.submit(document(), 0, work)
    assert await finished(jobs, job.job_id) is JobStage.FAILED
    last = job.snapshot()
    assert (work.runs, last.attempt, last.retryable) == (3, 3, True)
    assert isinstance(work.undone, StoreUnavailableError)


async def test_other_jobs_run_while_some_wait_for_their_next_attempt() -> None:
    """Discriminates: keeping the slot while waiting."""
    jobs = Jobs(Clock(), Retries(attempts=2, first_wait_s=60))
    for name in "ab":
        jobs.submit(document(name), 0, at_once(StoreUnavailableError("down")))
    healthy = jobs.submit(document("c"), 0, at_once())
    assert await finished(jobs, healthy.job_id) is JobStage.DONE
    await jobs.close()
    assert {each.stage for each in jobs.list(ME)} == {JobStage.DONE, JobStage.CANCELLED}


async def test_a_bug_in_one_job_is_reported_plainly_and_the_next_job_runs(jobs: Jobs) -> None:
    broken = jobs.submit(document("a"), 0, at_once(ZeroDivisionError("secret detail")))
    healthy = jobs.submit(document("b"), 0, at_once())
    assert await finished(jobs, healthy.job_id) is JobStage.DONE
    snapshot = broken.snapshot()
    assert snapshot.stage is JobStage.FAILED
    assert "secret" not in (snapshot.error or "")


async def test_a_job_cancelled_before_its_first_step_is_cancelled(jobs: Jobs) -> None:
    for wait in (0, 1):
        job = jobs.submit(document(), 3, Steps())
        for _ in range(wait):
            await asyncio.sleep(0)
        await jobs.cancel(job.document.document_id)
        assert job.snapshot().stage is JobStage.CANCELLED
        assert jobs.active(job.document.document_id) is None
    after = jobs.submit(document("b"), 0, at_once())
    assert await finished(jobs, after.job_id) is JobStage.DONE


async def test_closing_cancels_running_and_waiting_jobs() -> None:
    jobs = Jobs(Clock())
    works = [Steps() for _ in "abcd"]
    submitted = [jobs.submit(document(name), LARGE, work) for name, work in zip("abcd", works, strict=True)]
    await asyncio.sleep(0.01)  # jobs that may start have started
    await jobs.close()
    assert {job.snapshot().stage for job in submitted} == {JobStage.CANCELLED}
    assert [work.runs for work in works] == [1, 1, 0, 0]
    assert work_tasks() == []


def work_tasks() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("job")]


async def test_a_full_queue_refuses_new_work(jobs: Jobs) -> None:
    for name in "ab":
        jobs.submit(document(name), 1, Steps())
    await asyncio.sleep(0.01)  # both have begun, and the queue is empty
    jobs.check_room()
    jobs.submit(document("c"), MAX_WAITING_CHUNKS, Steps())
    with pytest.raises(UnavailableError):
        jobs.check_room()


async def test_documents_being_accepted_count_and_a_document_replaces_its_own_job(jobs: Jobs) -> None:
    """Discriminates: counting only jobs, so that many concurrent uploads all fit; counting one twice."""
    half = MAX_WAITING_CHUNKS // 2
    await started(jobs, LARGE, LARGE)
    with jobs.room("c", MAX_WAITING_CHUNKS + 1), pytest.raises(UnavailableError), jobs.room("d", 1):
        pass
    with jobs.room("c", half):
        jobs.submit(document("c"), half, Steps())
        with jobs.room("d", half):
            pass
    with pytest.raises(UnavailableError), jobs.room("d", half + 1):
        pass
    with jobs.room("c", MAX_WAITING_CHUNKS):
        pass


async def test_jobs_waiting_for_their_next_attempt_take_room() -> None:
    """Discriminates: counting only those that wait for their first attempt: none while the embedding is
    unavailable."""
    jobs = Jobs(Clock(), Retries(attempts=2, first_wait_s=60))
    job = jobs.submit(document(), MAX_WAITING_CHUNKS, at_once(StoreUnavailableError("down")))
    async for snapshot in job.changes():
        if snapshot.stage is JobStage.RETRYING:
            break
    with pytest.raises(UnavailableError):
        jobs.check_room()
    await jobs.close()


async def test_a_limited_number_of_ended_jobs_is_remembered_and_no_active_one_forgotten(jobs: Jobs) -> None:
    living = jobs.submit(document("living"), 1, Steps())
    await asyncio.sleep(0.01)  # it has begun
    for i in range(jobs_module.MAX_REMEMBERED + 5):
        await jobs.cancel(jobs.submit(document(str(i)), 0, at_once()).document.document_id)
    remembered = jobs.list(ME)
    assert len(remembered) == jobs_module.MAX_REMEMBERED + 1
    assert remembered[0].document_id == str(jobs_module.MAX_REMEMBERED + 4)
    assert jobs.get(living.job_id, ME) is living
