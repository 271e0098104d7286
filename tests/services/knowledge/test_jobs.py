from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from core.errors import EmbeddingUnavailableError, StoreUnavailableError, UnavailableError, WenmaiError
from core.knowledge import Document, DocumentStatus
from services.knowledge import jobs as jobs_module
from services.knowledge.job import JobStage
from services.knowledge.jobs import MAX_WAITING_CHUNKS, Jobs

ME = ["ann"]


def document(name: str = "a.md") -> Document:
    return Document(name, "ann", name, "hash", 1, 0, DocumentStatus.INGESTING)


@dataclass
class Steps:
    """Work that does one step whenever it is let, and can end in an error."""

    steps: int = 3
    error: BaseException | None = None
    undo_error: WenmaiError | None = None
    let: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    undone: WenmaiError | None = None

    async def run(self, report: Callable[[int], None]) -> None:
        for done in range(1, self.steps + 1):
            await self.let.acquire()
            report(done)
        if self.error:
            raise self.error

    async def undo(self, error: WenmaiError) -> None:
        self.undone = error
        if self.undo_error:
            raise self.undo_error


def at_once(**arguments: object) -> Steps:
    return Steps(steps=0, **arguments)  # type: ignore[arg-type]


@pytest.fixture
async def jobs() -> AsyncIterator[Jobs]:
    opened = Jobs()
    yield opened
    await opened.close()


async def finished(jobs: Jobs, job_id: str) -> JobStage:
    stages = [snapshot.stage async for snapshot in jobs.get(job_id, ME).changes()]
    return stages[-1]


async def test_a_reader_sees_every_step_and_the_end(jobs: Jobs) -> None:
    work = Steps()
    job = jobs.submit(document(), 3, work)
    seen: list[tuple[JobStage, int]] = []
    async for snapshot in job.changes():
        seen.append((snapshot.stage, snapshot.done))
        work.let.release()
    assert seen[0] == (JobStage.WAITING, 0)
    assert [done for _, done in seen] == sorted(done for _, done in seen)
    assert seen[-1] == (JobStage.DONE, 3)


async def test_a_reader_that_comes_late_gets_the_end_alone(jobs: Jobs) -> None:
    job = jobs.submit(document(), 0, at_once())
    await finished(jobs, job.job_id)
    assert [snapshot.stage async for snapshot in job.changes()] == [JobStage.DONE]


async def test_jobs_run_one_after_the_other_in_the_order_they_came(jobs: Jobs) -> None:
    first, second = Steps(steps=1), Steps(steps=1)
    jobs.submit(document("a"), 1, first)
    later = jobs.submit(document("b"), 1, second)
    second.let.release()
    await asyncio.sleep(0.02)
    assert later.snapshot().stage is JobStage.WAITING
    first.let.release()
    assert await finished(jobs, later.job_id) is JobStage.DONE


@pytest.mark.parametrize("undo_error", [None, StoreUnavailableError("down")])
async def test_a_domain_error_fails_the_job_after_its_work_was_undone(
    jobs: Jobs, undo_error: WenmaiError | None
) -> None:
    work = at_once(error=EmbeddingUnavailableError("The model failed."), undo_error=undo_error)
    job = jobs.submit(document(), 0, work)
    assert await finished(jobs, job.job_id) is JobStage.FAILED
    assert (job.snapshot().error, job.snapshot().error_code) == ("The model failed.", "embedding_unavailable")
    assert isinstance(work.undone, EmbeddingUnavailableError)


async def test_a_bug_in_one_job_is_told_plainly_and_the_next_job_runs(jobs: Jobs) -> None:
    broken = jobs.submit(document("a"), 0, at_once(error=ZeroDivisionError("secret detail")))
    healthy = jobs.submit(document("b"), 0, at_once())
    assert await finished(jobs, healthy.job_id) is JobStage.DONE
    snapshot = broken.snapshot()
    assert snapshot.stage is JobStage.FAILED
    assert "secret" not in (snapshot.error or "")


async def test_a_job_cancelled_before_its_first_step_is_cancelled(jobs: Jobs) -> None:
    work = Steps()
    job = jobs.submit(document(), 3, work)
    await asyncio.sleep(0)
    await jobs.cancel(job.document.document_id)
    assert job.snapshot().stage is JobStage.CANCELLED
    assert jobs.active(job.document.document_id) is None
    after = jobs.submit(document("b"), 0, at_once())
    assert await finished(jobs, after.job_id) is JobStage.DONE


async def test_closing_cancels_what_runs_and_what_waits() -> None:
    jobs = Jobs()
    submitted = [jobs.submit(document(name), 3, Steps()) for name in "abc"]
    await asyncio.sleep(0.01)
    await jobs.close()
    assert {job.snapshot().stage for job in submitted} == {JobStage.CANCELLED}
    assert work_tasks() == []


def work_tasks() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("job")]


async def test_a_line_that_is_too_long_turns_new_work_away(jobs: Jobs) -> None:
    jobs.submit(document("a"), 1, Steps())
    await asyncio.sleep(0.01)
    jobs.submit(document("b"), MAX_WAITING_CHUNKS, Steps())
    with pytest.raises(UnavailableError):
        jobs.submit(document("c"), 1, Steps())


async def test_only_so_many_finished_jobs_are_remembered_and_never_a_living_one_forgotten(jobs: Jobs) -> None:
    living = jobs.submit(document("living"), 1, Steps())
    await asyncio.sleep(0.01)
    for i in range(jobs_module.MAX_REMEMBERED + 5):
        await jobs.cancel(jobs.submit(document(str(i)), 0, at_once()).document.document_id)
    remembered = jobs.list(ME)
    assert len(remembered) == jobs_module.MAX_REMEMBERED + 1
    assert remembered[0].document_id == str(jobs_module.MAX_REMEMBERED + 4)
    assert jobs.get(living.job_id, ME) is living
