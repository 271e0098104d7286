"""Folder sync by the real APScheduler."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from core.errors import ConflictError, StartRefusedError
from services.adapters.schedule.sync import open_sync_schedule, sync_slots
from tests.support.stores.schedule import Every
from tests.support.waiting import until

NEVER = "0 0 1 1 *"


class Job:
    """Counts its runs, how many went on at once, and how many were cancelled."""

    def __init__(self, takes_s: float = 0, error: Exception | None = None) -> None:
        self._takes_s = takes_s
        self._error = error
        self.began = self.ended = self.cancelled = self.running = self.most = 0

    async def __call__(self) -> None:
        self.began += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self._takes_s)
            if self._error:
                raise self._error
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        self.ended += 1


async def test_it_runs_at_the_start_in_the_background_and_not_when_that_is_off() -> None:
    job = Job()
    async with open_sync_schedule(job, sync_slots(NEVER, None)):
        assert job.began == 0
        await until(lambda: job.ended)
        assert job.ended == 1
    idle = Job()
    async with open_sync_schedule(idle, None, at_start=False):
        await asyncio.sleep(0.05)  # in which a run at the start would begin
    assert idle.began == 0


async def test_runs_never_overlap_and_go_on_after_an_error() -> None:
    job = Job(takes_s=0.25)
    async with open_sync_schedule(job, Every(0.1)):
        await until(lambda: job.ended >= 2)
    assert job.most == 1
    assert job.ended >= 2
    failing = Job(error=ConflictError("another process"))
    with capture_logs() as logs:
        async with open_sync_schedule(failing, Every(0.1)):
            await until(lambda: failing.began >= 2)
    assert failing.began >= 2
    assert {entry["event"] for entry in logs} == {"sync_left_out"}


async def test_a_run_that_goes_on_at_the_end_is_cancelled_and_waited_for() -> None:
    job = Job(takes_s=60)
    async with open_sync_schedule(job, sync_slots(NEVER, None)):
        await until(lambda: job.running)
    assert (job.cancelled, job.running) == (1, 0)


@pytest.mark.parametrize("cron", ["nonsense", "61 * * * *", "0 0 31 2 *"])
def test_a_bad_sync_cron_is_refused_in_one_line_that_names_it(cron: str) -> None:
    with pytest.raises(StartRefusedError, match=r"^SYNC_CRON = .* is refused[^\n]*$"):
        sync_slots(cron, "UTC")


def test_an_empty_sync_cron_schedules_nothing() -> None:
    assert sync_slots(" ", None) is None
    assert sync_slots("*/10 * * * *", "Asia/Shanghai") is not None
