"""The lease of a scheduled job: one record in the store says which slot is done, and who runs one now.

Workers' clocks are never compared. A run that takes longer than a lease is cut off, so a record that says
"held" and stays unchanged for a whole lease, by the watcher's own monotonic clock, is a dead worker's. Wall
clocks may therefore differ; they only decide when each worker looks.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Protocol

from pydantic import TypeAdapter

from core.dates import moment_at
from core.operations.expiry import ExpiryReport
from services.store.clock import Clock, ClockWatch
from services.store.dialect import Filter, Point, VectorStore
from services.store.points import equals, has_id, read_or_none

RECORD = "lease"
_NAMESPACE = uuid.UUID("8f0e4d0a-6c51-5d0e-9f39-2d9b6f7b8c11")
_JOB = "cleanup"
_ID = str(uuid.uuid5(_NAMESPACE, _JOB))
_THIS = has_id([_ID])
_NOTED = ("skipped_slot", "skipped")


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Slots and times are UTC microseconds, 0 for none.

    Every change gets a new `token`. `holder` is empty while nobody runs. `slot` is the slot last begun, for
    the `attempts`-th time; `last_slot` and all before it are done. `failed_us` is when `slot` failed.
    `last_result` names no session or turn.
    """

    token: str
    holder: str = ""
    slot: int = 0
    attempts: int = 0
    last_slot: int = 0
    last_run_us: int = 0
    last_error: str = ""
    last_result: ExpiryReport | None = None
    failed_us: int = 0
    skipped_slot: int = 0
    skipped: str = ""


_READ = TypeAdapter(LeaseRecord)


class Lease(Protocol):
    """Methods raise StoreUnavailableError, or StoreRequestError while the collection does not exist yet."""

    async def read(self) -> LeaseRecord | None:
        """Return the record; None if it was never created or cannot be parsed."""
        ...

    async def make(self, record: LeaseRecord) -> None:
        """Create the record if there is none. If two workers do so at once the later wins, so `record` must
        have a holder: nobody claims it before a lease has passed, and by then all have read the same."""
        ...

    async def swap(self, expected: LeaseRecord, new: LeaseRecord) -> LeaseRecord | None:
        """Atomically replace `expected` by `new` if it is still stored; a noted skip stays.

        Returns the record afterwards: the swap succeeded if it has the token of `new`.
        """
        ...

    async def note(self, slot: int, why: str) -> None:
        """Note that this slot was skipped, changing nothing else."""
        ...


class LeaseStore:
    """Stored in the operations collection, for all workers of one store."""

    def __init__(self, store: VectorStore, collection: str) -> None:
        self._store = store
        self._collection = collection

    async def read(self) -> LeaseRecord | None:
        records = await self._store.retrieve(self._collection, [_ID])
        return read_or_none(_READ, records[0].payload or {}, "lease_unreadable") if records else None

    async def make(self, record: LeaseRecord) -> None:
        if await self.read() is None:
            payload = {**asdict(record), "record": RECORD, "job": _JOB}
            point = Point(id=_ID, vector={}, payload=payload)
            await self._store.upsert(self._collection, [point])

    async def swap(self, expected: LeaseRecord, new: LeaseRecord) -> LeaseRecord | None:
        # the engine matches and changes the point in one step, so of two swaps of one state only one succeeds
        unchanged = [_THIS, equals("token", expected.token)]
        fields: dict[str, Any] = {name: value for name, value in asdict(new).items() if name not in _NOTED}
        await self._store.set_payload(self._collection, fields, points=Filter(must=unchanged))
        return await self.read()

    async def note(self, slot: int, why: str) -> None:
        fields = {"skipped_slot": slot, "skipped": why}
        await self._store.set_payload(self._collection, fields, points=Filter(must=[_THIS]))


# Slots: the times at which a schedule runs its job, the same for every worker.


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# How far back to search for the newest slot: the next window is tried only if the previous one was empty.
_WINDOWS = tuple(timedelta(hours=hours) for hours in (1, 27, 32 * 24, 367 * 24, 9 * 366 * 24))

NextReading = Callable[[datetime], datetime | None]
"""Local wall-clock time, without a zone → the first scheduled local time after it."""


class Slots(Protocol):
    """A slot is a time in UTC microseconds. Results depend on nothing but the argument."""

    def after(self, moment_us: int) -> int | None:
        """Return the first slot after this time."""
        ...

    def newest(self, moment_us: int) -> int | None:
        """Return the last slot not after this time."""
        ...


class LocalSlots:
    """Slots at local times of a zone, each local time once, even when its clocks change.

    Where the clocks are set back a local time occurs twice, and the first occurrence counts; where they are
    put forward it is skipped, and the moment of the change counts, once for all times skipped. A day that a
    zone omitted, to change sides of the date line, has no slot.
    """

    def __init__(self, next_reading: NextReading, zone: tzinfo) -> None:
        self._next_reading = next_reading
        self._zone = zone

    def after(self, moment_us: int) -> int | None:
        # local times occur in order, so those up to the current one need no second look
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
        return _local_time(first_moment(midnight, self._zone), self._zone).date() == reading.date()

    def newest(self, moment_us: int) -> int | None:
        for window in _WINDOWS:
            newest, slot = None, self.after(moment_us - window // _MICROSECOND)
            while slot is not None and slot <= moment_us:
                newest, slot = slot, self.after(slot)
            if newest is not None:
                return newest
        return None


def first_moment(reading: datetime, zone: tzinfo) -> datetime:
    """Return when the zone's clocks first show this local time or, if they skip it, a later one. In UTC."""
    moment = reading.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if _local_time(moment, zone) == reading:
        return moment
    early = reading.replace(tzinfo=zone, fold=1).astimezone(UTC)  # by the offset after the change
    seconds = range(int((moment - early).total_seconds()) + 1)
    return early + timedelta(
        seconds=bisect_left(
            seconds, True, key=lambda second: _local_time(early + timedelta(seconds=second), zone) >= reading
        )
    )


def _local_time(moment: datetime, zone: tzinfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def us_of(moment: datetime) -> int:
    return (moment - EPOCH) // _MICROSECOND


# Which slot a worker may run now, by the schedule, the lease as last read, and its clock.


HOUR_US = 3_600_000_000
# A slot marked done but further ahead than this was done by a wrong clock, and is ignored.
MAX_AHEAD_US = 48 * HOUR_US


@dataclass(frozen=True, slots=True)
class Pace:
    """A run takes at most `lease_s`: a slot claimed longer ago is a dead worker's. Missed slots are caught up
    `first_look_s` after the start, and the worker looks again every `look_s`, so it notices within that time
    that the machine slept. A failed slot is retried after `retry_s`. `alone`: no other process can have the
    store open, so any other holder is dead."""

    lease_s: float = 3_600.0
    first_look_s: float = 15.0
    look_s: float = 30.0
    retry_s: float = 900.0
    alone: bool = False


class DueSlot:
    """`record` is the lease as last read."""

    def __init__(
        self,
        slots: Slots,
        pace: Pace,
        clock: Clock,
        watch: ClockWatch,
        steady: Callable[[], float],
    ) -> None:
        """`steady` returns seconds of a monotonic clock."""
        self._slots = slots
        self._pace = pace
        self._clock = clock
        self._watch = watch
        self._steady = steady
        self._unchanged_since = steady()
        self._skipped = 0
        self.record: LeaseRecord | None = None

    def newest(self) -> int:
        return self._slots.newest(self._clock()) or 0

    def observe(self, record: LeaseRecord) -> None:
        if self.record is None and record.skipped_slot <= self.newest():
            self._skipped = record.skipped_slot  # still skipped after a restart
        if self.record is None or record.token != self.record.token:
            self._unchanged_since = self._steady()
        self.record = record

    def slot(self) -> int | None:
        """Return the slot that may begin now."""
        record, slot = self.record, self.newest()
        if record is None or not slot or not self._is_free(record) or self._is_resting(record, slot):
            return None
        done = slot <= self._skipped or (slot <= record.last_slot and not self.is_from_wrong_clock(record))
        return None if done else slot

    def _is_free(self, record: LeaseRecord) -> bool:
        untouched_s = self._steady() - self._unchanged_since
        return not record.holder or self._pace.alone or untouched_s >= self._pace.lease_s

    def _is_resting(self, record: LeaseRecord, slot: int) -> bool:
        """Whether a failed slot waits for its retry; a clock set back since does not prolong the wait."""
        return record.slot == slot and 0 <= self._clock() - record.failed_us < self._pace.retry_s * 1_000_000

    def is_from_wrong_clock(self, record: LeaseRecord) -> bool:
        return record.last_slot > self._clock() + MAX_AHEAD_US

    # ---- the clock ------------------------------------------------------------------------------

    def moved_us(self) -> int:
        """Return how far the clock was put forward since it was last trusted."""
        moved_us = self._watch.moved_us()
        if moved_us < -HOUR_US:
            self._skipped = 0  # the clock was corrected: the slot comes at its proper time
        return moved_us

    def skip(self, slot: int) -> None:
        """Skip this slot, but trust the clock for the next one."""
        self._skipped = slot
        self._watch.trust()

    def trust_clock(self) -> None:
        self._watch.trust()
