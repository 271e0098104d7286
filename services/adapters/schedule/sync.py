"""Folder sync by APScheduler: one job in this process, at its start and at the times of a crontab line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

from core.errors import ConflictError, WenmaiError
from services.adapters.schedule.cleanup import Looks, run_at
from services.adapters.schedule.crontab import slots_of, zone_named
from services.operations.schedule.lease import Slots

log = structlog.get_logger()

SyncJob = Callable[[], Awaitable[object]]

LOOK_S = 30.0


def sync_slots(cron: str, zone_name: str | None) -> Slots | None:
    """None when nothing is scheduled. Raises StartRefusedError in one line that names SYNC_CRON."""
    return slots_of(cron, zone_named(zone_name), "SYNC_CRON") if cron.strip() else None


@asynccontextmanager
async def open_sync_schedule(
    job: SyncJob, slots: Slots | None, *, at_start: bool = True
) -> AsyncIterator[None]:
    """Run `job` at these slots, None is never, until the block ends; one that is under way then is cancelled,
    and waited for. Never two at once: what falls due meanwhile is left out."""

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
