"""Folder sync by APScheduler: one job in this process, at its start and at the times of a crontab line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from config.knowledge import KnowledgeSettings
from core.errors import ConflictError, StartRefusedError, WenmaiError
from services.adapters.schedule.cleanup import CLOSE_S, SlotTrigger
from services.adapters.schedule.crontab import slots_of, zone_named
from services.operations.schedule.slots import Slots

log = structlog.get_logger()

SyncJob = Callable[[], Awaitable[object]]

LOOK_S = 30.0


@dataclass(frozen=True, slots=True)
class SyncTimes:
    """`cron` may be empty: then only at the start, or only when asked. `zone_name` None: the machine's."""

    cron: str
    zone_name: str | None = None
    at_start: bool = True


def sync_times(settings: KnowledgeSettings, zone_name: str | None) -> SyncTimes:
    """The configured ones."""
    return SyncTimes(settings.sync_cron, zone_name, settings.sync_at_start)


def check_sync_times(cron: str, zone_name: str | None) -> Slots | None:
    """None when nothing is scheduled. Raises StartRefusedError in one line that names SYNC_CRON."""
    if not cron.strip():
        return None
    zone = zone_named(zone_name)
    try:
        return slots_of(cron, zone)
    except StartRefusedError as error:
        raise StartRefusedError(str(error).replace("CLEANUP_CRON", "SYNC_CRON", 1)) from None


@asynccontextmanager
async def open_sync_schedule(job: SyncJob, times: SyncTimes) -> AsyncIterator[None]:
    """Run `job` until the block ends; one that is under way then is cancelled, and waited for.

    Never two at once: what falls due meanwhile is left out. Raises StartRefusedError.
    """
    async with sync_on(job, check_sync_times(times.cron, times.zone_name), at_start=times.at_start):
        yield


@asynccontextmanager
async def sync_on(job: SyncJob, slots: Slots | None, *, at_start: bool) -> AsyncIterator[None]:
    """The same at these slots; None is never."""
    runs = _Runs(job)
    scheduler = AsyncIOScheduler(timezone=UTC)
    if slots is not None:
        trigger = SlotTrigger(slots)
        scheduler.add_job(runs.run, trigger, max_instances=1, coalesce=True, misfire_grace_time=None)
    scheduler.start()
    background = [asyncio.create_task(_keep_looking(scheduler), name="sync times")]
    if at_start:
        background.append(asyncio.create_task(runs.run(), name="sync at start"))
    try:
        yield
    finally:
        for task in background:
            task.cancel()
        scheduler.shutdown(wait=False)
        await asyncio.gather(*background, return_exceptions=True)
        await runs.ended()


async def _keep_looking(scheduler: AsyncIOScheduler) -> None:
    """The scheduler's timer does not count while the machine sleeps, and not when its clock is moved."""
    while True:
        await asyncio.sleep(LOOK_S)
        scheduler.wakeup()


class _Runs:
    """The job as APScheduler calls it. Its shutdown does not wait for a run that it cancels; here we do."""

    def __init__(self, job: SyncJob) -> None:
        self._job = job
        self._tasks: set[asyncio.Task[object]] = set()

    async def run(self) -> None:
        if self._tasks:
            return
        task = asyncio.create_task(self._job_of(), name="scheduled sync")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()

    async def _job_of(self) -> object:
        try:
            return await self._job()
        except ConflictError as error:  # somebody asked for it: that run does the same
            log.info("sync_left_out", why=str(error))
        except WenmaiError as error:
            log.warning("sync_failed", error=str(error))
        return None

    def _done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("sync_failed", exc_info=error)

    async def ended(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
