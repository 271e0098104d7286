from __future__ import annotations

import asyncio
from dataclasses import replace

from core.errors import StoreUnavailableError, UnreadableDocumentError
from core.knowledge import JobFigures
from services.knowledge.jobs.lanes import MAX_RUNNING
from services.knowledge.jobs.queue import Jobs, Retries
from tests.services.knowledge.jobs.test_jobs import ME, Steps, at_once, document
from tests.support.stores.knowledge import Clock

NONE = JobFigures(waiting=0, running=0, retrying=0, waiting_chunks=0, done=0, failed=0, cancelled=0)


async def test_waiting_running_and_ended_jobs_are_counted_separately() -> None:
    jobs = Jobs(Clock(), Retries(attempts=2, first_wait_s=60))
    assert jobs.figures() == NONE
    ended = [jobs.submit(document("a"), 5, at_once()), jobs.submit(document("b"), 5, at_once(_broken()))]
    for job in ended:
        async for _ in jobs.get(job.job_id, ME).changes():
            pass
    later = jobs.submit(document("c"), 7, at_once(StoreUnavailableError("away")))
    async for snapshot in jobs.get(later.job_id, ME).changes():
        if snapshot.next_try_us:
            break
    running = [jobs.submit(document(str(number)), 5, Steps()) for number in range(MAX_RUNNING)]
    jobs.submit(document("last"), 9, Steps())
    await asyncio.sleep(0.01)  # the jobs have their slots
    now = replace(NONE, waiting=1, running=len(running), retrying=1, waiting_chunks=16, done=1, failed=1)
    assert jobs.figures() == now
    await jobs.close()
    assert jobs.figures() == replace(NONE, done=1, failed=1, cancelled=len(running) + 2)


async def test_a_forgotten_job_still_counts() -> None:
    """Discriminates: counting only the remembered jobs."""
    jobs = Jobs(Clock())
    job = jobs.submit(document(), 1, at_once())
    async for _ in jobs.get(job.job_id, ME).changes():
        pass
    jobs.forget(job.document.document_id)
    assert jobs.figures().done == 1
    await jobs.close()


def _broken() -> UnreadableDocumentError:
    return UnreadableDocumentError("It cannot be read.")
