"""Runs jobs at the slots of a crontab line, on APScheduler; the nightly clean-up is one of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import structlog
from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger

from core.dates import moment_at
from core.errors import ConflictError, StartRefusedError, WenmaiError
from core.operations.expiry import ExpiryReport
from services.operations.schedule.lease import Lease, LocalSlots, Pace, Slots, us_of
from services.operations.schedule.runner import CleanupSchedule, SlotRunner

log = structlog.get_logger()

DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

_NUMBERED = re.compile(r"(?P<first>[0-7])(?:-(?P<last>[0-7]))?(?:/(?P<step>[1-7]))?")
_MICROSECOND = timedelta(microseconds=1)


def zone_named(name: str | None) -> tzinfo:
    """None or an empty name gives the machine's time zone. Raises StartRefusedError in one line."""
    try:
        zone: tzinfo = ZoneInfo(name) if name else CronTrigger().timezone
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise StartRefusedError(
            f"TIMEZONE = {name!r} is refused: a time zone's name such as Asia/Shanghai or UTC."
        ) from None
    return zone


def slots_of(cron: str, zone: tzinfo, setting: str = "CLEANUP_CRON") -> LocalSlots:
    """Raises StartRefusedError in one line that names the setting.

    APScheduler works in UTC here, as on a clock without daylight saving: given the zone's own times it runs a
    repeated time twice and leaves out a day on which the time was skipped.
    """
    try:
        calendar = CronTrigger.from_crontab(_with_day_names(cron), timezone=UTC)
        fires = calendar.get_next_fire_time(None, datetime.now(UTC)) is not None
    except ValueError as error:
        raise StartRefusedError(
            f"{setting} = {cron!r} is refused: five crontab fields such as '0 3 * * *' ({error})."
        ) from None
    if not fires:
        raise StartRefusedError(f"{setting} = {cron!r} is refused: no such day ever comes.")

    def next_reading(reading: datetime) -> datetime | None:
        following: datetime | None = calendar.get_next_fire_time(
            None, reading.replace(tzinfo=UTC) + _MICROSECOND
        )
        return following.replace(tzinfo=None) if following else None

    return LocalSlots(next_reading, zone)


def _with_day_names(cron: str) -> str:
    """Weekdays by name: crontab counts from Sunday (0 and 7), APScheduler from Monday."""
    fields = cron.split()
    if len(fields) != 5:
        return cron
    return " ".join([*fields[:4], ",".join(_day_names(part) for part in fields[4].split(","))])


def _day_names(part: str) -> str:
    """Anything but numbers (`*`, `mon-fri`) is left to APScheduler."""
    numbered = _NUMBERED.fullmatch(part.replace("*/", "0-6/"))
    if numbered is None:
        return part
    first = int(numbered["first"])
    last = int(numbered["last"] or (6 if numbered["step"] else first))
    if last < first:
        raise ValueError(f"the weekdays {part} run backwards")
    return ",".join(DAYS[day % 7] for day in range(first, last + 1, int(numbered["step"] or 1)))


Job = Callable[[], Awaitable[ExpiryReport]]

JOB_ID = "job"
CLOSE_S = 5.0


@dataclass(frozen=True, slots=True)
class Polling:
    """Polls, also between the slots, whether the job is due."""

    is_due: Callable[[], Awaitable[bool]]
    first_s: float
    every_s: float


class SlotTrigger(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """Presents the slots to APScheduler. Always the next one: the job itself knows what it missed."""

    def __init__(self, slots: Slots | None) -> None:
        self._slots = slots

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        slot = self._slots.after(us_of(now)) if self._slots else None
        return None if slot is None else moment_at(slot)


@asynccontextmanager
async def open_schedule(
    job: Job,
    cron: str,
    timezone: str | None,
    lease: Lease,
    *,
    pace: Pace | None = None,
) -> AsyncIterator[CleanupSchedule]:
    """Run `job` at the times of `cron` in `timezone` (None: the machine's) until the block ends.

    One run per slot among all who share the `lease`. The store may be unreachable, its collections not yet
    created. A run in progress at the end is cancelled. Raises StartRefusedError in one line.
    """
    zone = zone_named(timezone)
    slots = slots_of(cron, zone)

    async def run(slot: int) -> ExpiryReport:
        return await job()

    runner = SlotRunner(run, slots, lease, pace)
    async with run_on(runner, slots):
        yield CleanupSchedule(runner, slots, cron, zone)


def run_on(runner: SlotRunner, slots: Slots) -> AbstractAsyncContextManager[None]:
    """One run at a time; a single run catches up on all missed ones."""
    polling = Polling(runner.look, runner.pace.first_look_s, runner.pace.look_s)
    return run_at(slots, runner.run, "cleanup", polling)


@asynccontextmanager
async def run_at(
    slots: Slots | None,
    job: Callable[[], Awaitable[object]],
    name: str,
    polling: Polling,
    *,
    at_start: bool = False,
) -> AsyncIterator[None]:
    """Run `job` at the slots (None: never) until the block ends; a run in progress is then cancelled.

    Never two at once: a slot that falls due during a run is skipped. `name` is the job's name in the log.
    """
    runs = _Runs(job, name)
    scheduler = AsyncIOScheduler(timezone=UTC)
    scheduler.add_listener(runs.on_skipped, EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES)
    first = {"next_run_time": datetime.now(UTC)} if at_start else {}
    if slots is not None or at_start:
        trigger = SlotTrigger(slots)
        scheduler.add_job(
            runs.run, trigger, id=JOB_ID, max_instances=1, coalesce=True, misfire_grace_time=None, **first
        )
    scheduler.start()
    polling_task = asyncio.create_task(_keep_polling(scheduler, polling))
    try:
        yield
    finally:
        polling_task.cancel()
        scheduler.shutdown(wait=False)
        await runs.ended()


async def _keep_polling(scheduler: AsyncIOScheduler, polling: Polling) -> None:
    """A timer stops while the machine sleeps and ignores clock changes; nor does it know what another worker
    did or left undone."""
    pause_s = polling.first_s
    while True:
        await asyncio.sleep(pause_s)
        pause_s = polling.every_s
        if await polling.is_due() and scheduler.get_job(JOB_ID):
            scheduler.modify_job(JOB_ID, next_run_time=datetime.now(UTC))
        else:
            scheduler.wakeup()


class _Runs:
    """The job as APScheduler calls it. Its shutdown cancels a run without waiting for the end; we wait, while
    the store is still open."""

    def __init__(self, job: Callable[[], Awaitable[object]], name: str) -> None:
        self._job = job
        self._name = name
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await self._job()
        except asyncio.CancelledError:  # only APScheduler is above, which would treat it as a failure
            log.info(f"{self._name}_stopped")
        except Exception as error:  # APScheduler would print a traceback beside our log
            reason = {"reason": str(error)} if isinstance(error, WenmaiError) else {}
            log.exception(f"{self._name}_failed", error=type(error).__name__, **reason)

    async def ended(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)

    def on_skipped(self, event: Any) -> None:
        """The scheduler's listener."""
        late = event.code == EVENT_JOB_MISSED
        log.warning(
            f"{self._name}_skipped", reason="too late" if late else "the previous one is still running"
        )


SyncJob = Callable[[], Awaitable[object]]

# Folder sync: one job in this process, run at startup and at the times of a crontab line.

LOOK_S = 30.0


def sync_slots(cron: str, zone_name: str | None) -> Slots | None:
    """None if nothing is scheduled. Raises StartRefusedError in one line that names SYNC_CRON."""
    return slots_of(cron, zone_named(zone_name), "SYNC_CRON") if cron.strip() else None


@asynccontextmanager
async def open_sync_schedule(
    job: SyncJob, slots: Slots | None, *, at_start: bool = True
) -> AsyncIterator[None]:
    """Run `job` at these slots (None: never) until the block ends; a run in progress is then cancelled and
    awaited. Never two at once: a slot that falls due during a run is skipped."""

    async def run() -> None:
        try:
            await job()
        except ConflictError as error:  # a requested run is in progress and does the same
            log.info("sync_left_out", why=str(error))
        except WenmaiError as error:
            log.warning("sync_failed", error=str(error))

    async with run_at(slots, run, "sync", Polling(_is_due, LOOK_S, LOOK_S), at_start=at_start):
        yield


async def _is_due() -> bool:
    """Never due between its slots."""
    return False
