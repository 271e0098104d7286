"""The nightly clean-up by APScheduler: one job in this process, at the times of a crontab line."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import structlog
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger

from core.errors import StartRefusedError
from services.retention import ExpiryReport
from services.schedule import CleanupState

log = structlog.get_logger()

Job = Callable[[], Awaitable[ExpiryReport]]

JOB_ID = "cleanup"
MISFIRE_GRACE_S = 86_400  # a machine that slept at three cleans up when it wakes
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

_NUMBERED = re.compile(r"(?P<first>[0-7])(?:-(?P<last>[0-7]))?(?:/(?P<step>[1-7]))?")


class CronSchedule:
    """What the job did last, and when it runs next."""

    def __init__(self, scheduler: AsyncIOScheduler, cron: str, timezone: str) -> None:
        self._scheduler = scheduler
        self._cron = cron
        self._timezone = timezone
        self._last_run: str | None = None
        self._last_result: ExpiryReport | None = None
        self._last_error: str | None = None

    def state(self) -> CleanupState:
        job = self._scheduler.get_job(JOB_ID)
        next_run: datetime | None = job.next_run_time if job else None
        return CleanupState(
            cron=self._cron,
            timezone=self._timezone,
            next_run=next_run.isoformat() if next_run else None,
            last_run=self._last_run,
            last_result=self._last_result,
            last_error=self._last_error,
        )

    def heard(self, event: Any) -> None:
        """The scheduler's listener. A failed run is logged with its traceback, and tried again next time."""
        if event.code in (EVENT_JOB_MISSED, EVENT_JOB_MAX_INSTANCES):
            late = event.code == EVENT_JOB_MISSED
            log.warning("cleanup_skipped", reason="too late" if late else "the last one still runs")
            return
        self._last_run = datetime.now(UTC).isoformat()
        if event.code == EVENT_JOB_ERROR:
            self._last_error = type(event.exception).__name__
            log.error("cleanup_failed", error=self._last_error, exc_info=event.exception)
            return
        self._last_error, self._last_result = None, event.retval
        log.info("cleanup_finished", matched=event.retval.matched, deleted=event.retval.deleted)


@asynccontextmanager
async def open_schedule(job: Job, cron: str, timezone: str | None = None) -> AsyncIterator[CronSchedule]:
    """Run `job` at the times of `cron` in `timezone` (None: the machine's) until the block ends.

    A run that is under way then is cancelled. Raises StartRefusedError in one line.
    """
    trigger = _trigger(cron, _zone(timezone))
    async with run_on(job, trigger, cron, str(trigger.timezone)) as schedule:
        yield schedule


@asynccontextmanager
async def run_on(job: Job, trigger: Any, cron: str, timezone: str) -> AsyncIterator[CronSchedule]:
    """One run at a time; those that were missed are made up by one."""

    async def run() -> ExpiryReport:
        return await job()  # APScheduler awaits what it can see to be a coroutine function

    scheduler = AsyncIOScheduler(timezone=UTC)
    schedule = CronSchedule(scheduler, cron, timezone)
    heard = EVENT_JOB_EXECUTED | EVENT_JOB_ERROR | EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES
    scheduler.add_listener(schedule.heard, heard)
    scheduler.add_job(
        run, trigger, id=JOB_ID, max_instances=1, coalesce=True, misfire_grace_time=MISFIRE_GRACE_S
    )
    scheduler.start()
    try:
        yield schedule
    finally:
        scheduler.shutdown(wait=False)


def _zone(name: str | None) -> tzinfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise StartRefusedError(
            f"TIMEZONE = {name!r} is refused: a time zone's name such as Asia/Shanghai or UTC."
        ) from None


def _trigger(cron: str, zone: tzinfo | None) -> CronTrigger:
    try:
        trigger = CronTrigger.from_crontab(_with_day_names(cron), timezone=zone)
        fires = trigger.get_next_fire_time(None, datetime.now(UTC)) is not None
    except ValueError as error:
        raise StartRefusedError(
            f"CLEANUP_CRON = {cron!r} is refused: five crontab fields such as '0 3 * * *' ({error})."
        ) from None
    if not fires:
        raise StartRefusedError(f"CLEANUP_CRON = {cron!r} is refused: no such day ever comes.")
    return trigger


def _with_day_names(cron: str) -> str:
    """Weekdays by name: crontab counts from Sunday (0 and 7), APScheduler from Monday."""
    fields = cron.split()
    if len(fields) != 5:
        return cron
    return " ".join([*fields[:4], ",".join(_day_names(part) for part in fields[4].split(","))])


def _day_names(part: str) -> str:
    """What is not numbered (`*`, `mon-fri`) is left to APScheduler."""
    numbered = _NUMBERED.fullmatch(part.replace("*/", "0-6/"))
    if numbered is None:
        return part
    first = int(numbered["first"])
    last = int(numbered["last"] or (6 if numbered["step"] else first))
    if last < first:
        raise ValueError(f"the weekdays {part} run backwards")
    return ",".join(DAYS[day % 7] for day in range(first, last + 1, int(numbered["step"] or 1)))
