"""A crontab line and a time zone's name, as the slots of a schedule. Read by APScheduler."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from apscheduler.triggers.cron import CronTrigger

from core.errors import StartRefusedError
from services.operations.schedule.lease import LocalSlots

DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

_NUMBERED = re.compile(r"(?P<first>[0-7])(?:-(?P<last>[0-7]))?(?:/(?P<step>[1-7]))?")
_MICROSECOND = timedelta(microseconds=1)


def zone_named(name: str | None) -> tzinfo:
    """None, or an empty name: the machine's. Raises StartRefusedError in one line."""
    try:
        zone: tzinfo = ZoneInfo(name) if name else CronTrigger().timezone
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise StartRefusedError(
            f"TIMEZONE = {name!r} is refused: a time zone's name such as Asia/Shanghai or UTC."
        ) from None
    return zone


def slots_of(cron: str, zone: tzinfo, setting: str = "CLEANUP_CRON") -> LocalSlots:
    """Raises StartRefusedError in one line that names the setting.

    APScheduler counts in UTC here, as on a clock that is never put forward or back: asked for a zone's own
    times it runs a doubled time twice and leaves a day out whose time was leapt over.
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
    """What is not numbered (`*`, `mon-fri`) is left to APScheduler."""
    numbered = _NUMBERED.fullmatch(part.replace("*/", "0-6/"))
    if numbered is None:
        return part
    first = int(numbered["first"])
    last = int(numbered["last"] or (6 if numbered["step"] else first))
    if last < first:
        raise ValueError(f"the weekdays {part} run backwards")
    return ",".join(DAYS[day % 7] for day in range(first, last + 1, int(numbered["step"] or 1)))
