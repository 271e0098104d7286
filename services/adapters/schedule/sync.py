"""Folder sync by APScheduler: one job in this process, at its start and at the times of a crontab line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from config.knowledge import KnowledgeSettings
from core.errors import ConflictError, StartRefusedError, WenmaiError
from services.adapters.schedule.cleanup import Looks, run_at
from services.adapters.schedule.crontab import slots_of, zone_named
from services.operations.schedule.slots import Slots

log = structlog.get_logger()

SyncJob = Callable[[], Awaitable[object]]

LOOK_S = 30.0


@dataclass(frozen=True, slots=True)
class SyncTimes:
    """`cron` may be empty: then only when asked. `zone_name` None: the machine's."""

    cron: str
    zone_name: str | None = None
    at_start: bool = True


def sync_times(settings: KnowledgeSettings, zone_name: str | None) -> SyncTimes:
    """The configured ones."""
    return SyncTimes(settings.sync_cron, zone_name, at_start=bool(settings.sync_cron.strip()))


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

    async def run() -> None:
        try:
            await job()
        except ConflictError as error:  # somebody asked for it: that run does the same
            log.info("sync_left_out", why=str(error))
        except WenmaiError as error:
            log.warning("sync_failed", error=str(error))

    async with run_at(slots, run, "sync", Looks(_is_due, LOOK_S, LOOK_S), at_start=at_start):
        yield


async def _is_due() -> bool:
    """Only at its times."""
    return False
