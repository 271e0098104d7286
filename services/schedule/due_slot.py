"""Which slot a worker may run now: by the schedule, by the lease as it saw it last, and by its clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from services.clock import Clock, ClockWatch, utc_now_us
from services.schedule.lease import LeaseRecord
from services.schedule.slots import Slots

HOUR_US = 3_600_000_000
# A slot that is done and still lies further ahead was done by a clock that was wrong: it holds up nothing.
MOST_AHEAD_US = 48 * HOUR_US


@dataclass(frozen=True, slots=True)
class Pace:
    """`lease_s` without a sign of life is a dead worker; `first_look_s` after the start what was missed is
    made up; `retry_s` after a failure the slot is tried again."""

    lease_s: float = 60.0
    first_look_s: float = 15.0
    retry_s: float = 900.0

    @property
    def look_s(self) -> float:
        """Half a lease: a dead worker is noticed within one and a half, a machine's waking within half."""
        return self.lease_s / 2


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
        self._seen_since = steady()
        self._put_off = 0
        self.record: LeaseRecord | None = None

    def newest(self) -> int:
        return self._slots.newest(self._clock()) or 0

    def saw(self, record: LeaseRecord) -> None:
        if self.record is None and record.skipped_slot <= self.newest():
            self._put_off = record.skipped_slot  # put off before a restart, put off after it
        if self.record is None or (record.token, record.beat) != (self.record.token, self.record.beat):
            self._seen_since = self._steady()
        self.record = record

    def slot(self) -> int | None:
        """The slot that may be begun."""
        record, slot = self.record, self.newest()
        if record is None or not slot or not self._is_free(record) or self._is_resting(record, slot):
            return None
        done = slot <= self._put_off or (slot <= record.last_slot and not self.is_absurd(record))
        return None if done else slot

    def _is_free(self, record: LeaseRecord) -> bool:
        return not record.holder or self._steady() - self._seen_since >= self._pace.lease_s

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
