"""Slots: the moments at which a schedule wants its job to be run, the same for every worker."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# How far back the newest slot is looked for: the next window is only tried when the last was empty.
_WINDOWS = tuple(timedelta(hours=hours) for hours in (1, 27, 32 * 24, 367 * 24, 9 * 366 * 24))

NextReading = Callable[[datetime], datetime | None]
"""A reading of the clock on the wall, without a zone → the first one later than it that is wanted."""


class Slots(Protocol):
    """A slot is its moment in UTC microseconds. What is asked depends on nothing but the argument."""

    def after(self, moment_us: int) -> int | None:
        """The first slot later than this moment."""
        ...

    def newest(self, moment_us: int) -> int | None:
        """The last slot that is not later than this moment."""
        ...


class LocalSlots:
    """Readings of a zone's clocks, each once.

    Where the clocks are set back a reading comes twice, and the first time counts; where they are put
    forward it is leapt over, and the moment of the leap counts, once for all that were leapt over. A day
    that a zone left out whole, to change sides of the date line, has no slot.
    """

    def __init__(self, next_reading: NextReading, zone: tzinfo) -> None:
        self._next_reading = next_reading
        self._zone = zone

    def after(self, moment_us: int) -> int | None:
        # Later readings never come earlier, so what the clock has shown by now needs no second look.
        local = moment_at(moment_us).astimezone(self._zone)
        reading = self._next_reading(local.replace(tzinfo=None, fold=0))
        while reading is not None:
            slot = us_of(first_moment(reading, self._zone))
            if slot > moment_us and self._has_day(reading):
                return slot
            reading = self._next_reading(reading)
        return None

    def _has_day(self, reading: datetime) -> bool:
        midnight = reading.replace(hour=0, minute=0, second=0, microsecond=0)
        return _shown(first_moment(midnight, self._zone), self._zone).date() == reading.date()

    def newest(self, moment_us: int) -> int | None:
        for window in _WINDOWS:
            found, slot = None, self.after(moment_us - window // _MICROSECOND)
            while slot is not None and slot <= moment_us:
                found, slot = slot, self.after(slot)
            if found is not None:
                return found
        return None


def first_moment(reading: datetime, zone: tzinfo) -> datetime:
    """When the zone's clocks first show this reading or, if they leap over it, a later one. In UTC."""
    moment = reading.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if _shown(moment, zone) == reading:
        return moment
    early = reading.replace(tzinfo=zone, fold=1).astimezone(UTC)  # by the offset after the leap
    seconds = range(int((moment - early).total_seconds()) + 1)
    return early + timedelta(
        seconds=bisect_left(
            seconds, True, key=lambda second: _shown(early + timedelta(seconds=second), zone) >= reading
        )
    )


def _shown(moment: datetime, zone: tzinfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def moment_at(moment_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=moment_us)


def us_of(moment: datetime) -> int:
    return (moment - EPOCH) // _MICROSECOND
