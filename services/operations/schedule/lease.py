"""The lease of a scheduled job: one record in the store says which slot is done, and who runs one now.

No clock is compared with another worker's. A run is cut when it takes longer than a lease, so a record that
says "held" and stayed the same for a whole lease, by the watcher's own steady clock, is a dead worker's. So
workers' wall clocks may differ; they only decide when each of them asks.
"""

from __future__ import annotations

import time
import uuid
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Protocol

from pydantic import TypeAdapter

from core.dates import moment_at
from core.operations.expiry import ExpiryReport
from services.store.clock import Clock, ClockWatch, utc_now_us
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

    Every change has a `token` of its own. `holder` is empty while nobody runs. `slot` is the one that was
    last begun, for the `attempts`-th time; `last_slot` and all before it are done. `failed_us` is when `slot`
    failed. `last_result` names nobody's session or turn.
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
    """Methods raise StoreUnavailableError, or StoreRequestError while the collection is not there yet."""

    async def read(self) -> LeaseRecord | None:
        """None: it was never made, or cannot be understood."""
        ...

    async def make(self, record: LeaseRecord) -> None:
        """When there is none. Of two workers that do so at once the later wins, so `record` is to be held:
        nobody claims it before a lease has passed, and all have the same by then."""
        ...

    async def swap(self, expected: LeaseRecord, new: LeaseRecord) -> LeaseRecord | None:
        """Replace `expected` by `new` if it is still stored, in one step; what was noted stays.

        Returns the record as it is afterwards: the change was made when that has the token of `new`.
        """
        ...

    async def note(self, slot: int, why: str) -> None:
        """This slot was skipped. Leaves everything else as it is."""
        ...


class LeaseStore:
    """In the operations collection, for all workers of one store."""

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
        # The engine finds the point and changes it in one step, so of two that saw the same only one fits.
        still = [_THIS, equals("token", expected.token)]
        fields: dict[str, Any] = {name: value for name, value in asdict(new).items() if name not in _NOTED}
        await self._store.set_payload(self._collection, fields, points=Filter(must=still))
        return await self.read()

    async def note(self, slot: int, why: str) -> None:
        fields = {"skipped_slot": slot, "skipped": why}
        await self._store.set_payload(self._collection, fields, points=Filter(must=[_THIS]))


# Slots: the moments at which a schedule wants its job to be run, the same for every worker.


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
            newest, slot = None, self.after(moment_us - window // _MICROSECOND)
            while slot is not None and slot <= moment_us:
                newest, slot = slot, self.after(slot)
            if newest is not None:
                return newest
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


def us_of(moment: datetime) -> int:
    return (moment - EPOCH) // _MICROSECOND


# Which slot a worker may run now: by the schedule, by the lease as it saw it last, and by its clock.


HOUR_US = 3_600_000_000
# A slot that is done and still lies further ahead was done by a clock that was wrong: it holds up nothing.
MOST_AHEAD_US = 48 * HOUR_US


@dataclass(frozen=True, slots=True)
class Pace:
    """A run takes `lease_s` at most: a slot that was claimed longer ago is a dead worker's. `first_look_s`
    after the start what was missed is made up, and every `look_s` the worker looks again: that the machine
    slept is noticed within that. `retry_s` after a failure the slot is tried again. `alone`: no other process
    can have the store open, so another holder is dead."""

    lease_s: float = 3_600.0
    first_look_s: float = 15.0
    look_s: float = 30.0
    retry_s: float = 900.0
    alone: bool = False


class DueSlot:
    """`record` is the lease as it was seen last."""

    def __init__(
        self,
        slots: Slots,
        pace: Pace,
        clock: Clock = utc_now_us,
        watch: ClockWatch | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`steady` is in seconds and never goes back."""
        self._slots = slots
        self._pace = pace
        self._clock = clock
        self._watch = watch or ClockWatch(clock)
        self._steady = steady
        self._unchanged_since = steady()
        self._put_off = 0
        self.record: LeaseRecord | None = None

    def newest(self) -> int:
        return self._slots.newest(self._clock()) or 0

    def saw(self, record: LeaseRecord) -> None:
        if self.record is None and record.skipped_slot <= self.newest():
            self._put_off = record.skipped_slot  # put off before a restart, put off after it
        if self.record is None or record.token != self.record.token:
            self._unchanged_since = self._steady()
        self.record = record

    def slot(self) -> int | None:
        """The slot that may be begun."""
        record, slot = self.record, self.newest()
        if record is None or not slot or not self._is_free(record) or self._is_resting(record, slot):
            return None
        done = slot <= self._put_off or (slot <= record.last_slot and not self.is_absurd(record))
        return None if done else slot

    def _is_free(self, record: LeaseRecord) -> bool:
        untouched_s = self._steady() - self._unchanged_since
        return not record.holder or self._pace.alone or untouched_s >= self._pace.lease_s

    def _is_resting(self, record: LeaseRecord, slot: int) -> bool:
        """A failed slot waits; a clock that was set back since does not make it wait longer."""
        return record.slot == slot and 0 <= self._clock() - record.failed_us < self._pace.retry_s * 1_000_000

    def is_absurd(self, record: LeaseRecord) -> bool:
        return record.last_slot > self._clock() + MOST_AHEAD_US

    # ---- the clock ------------------------------------------------------------------------------

    def moved_us(self) -> int:
        """How far the clock was put forward since it was last trusted."""
        moved_us = self._watch.moved_us()
        if moved_us < -HOUR_US:
            self._put_off = 0  # it was set right again: the slot comes at its proper time
        return moved_us

    def put_off(self, slot: int) -> None:
        """Not this slot; but the clock is trusted when the next one comes."""
        self._put_off = slot
        self._watch.trust()

    def trust_clock(self) -> None:
        self._watch.trust()
