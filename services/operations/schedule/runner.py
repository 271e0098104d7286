"""Runs a job once per slot, in whichever worker gets the lease, or in another one if that worker dies.

The question is never "has the time come?" but "is the newest slot done?". So a missed slot is caught up once,
whatever the reason: the server was down, the machine slept, the store was unavailable, the last run was long.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any

import structlog

from core.dates import moment_at, rfc3339
from core.errors import ConflictError, WenmaiError
from core.operations.expiry import ExpiryReport
from services.operations.schedule.lease import HOUR_US, DueSlot, Lease, LeaseRecord, Pace, Slots
from services.store.clock import Clock, ClockWatch, utc_now_us

log = structlog.get_logger()

SlotJob = Callable[[int], Coroutine[Any, Any, ExpiryReport]]
"""Takes the slot, in UTC microseconds."""

MAX_ATTEMPTS = 3
_END_NOW_S = 2.0
_RUN_SHARE = 0.9  # of the lease's duration


class SlotRunner:
    """A failed slot is retried after `pace.retry_s`, up to `MAX_ATTEMPTS` attempts in all."""

    def __init__(
        self,
        job: SlotJob,
        slots: Slots,
        lease: Lease,
        pace: Pace | None = None,
        *,
        clock: Clock = utc_now_us,
        watch: ClockWatch | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pace = pace or Pace()
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self._job = job
        self._lease = lease
        self._clock = clock
        self._due = DueSlot(slots, self.pace, clock, watch or ClockWatch(clock), steady)
        self._running = False

    @property
    def record(self) -> LeaseRecord | None:
        """The lease as last read."""
        return self._due.record

    async def look(self) -> bool:
        """Whether a slot is due for this worker; False while the store is unavailable."""
        self._due.moved_us()
        try:
            await self.refresh()
        except WenmaiError as error:  # also while the collections are being created
            log.debug("cleanup_lease_unknown", error=str(error))
            return False
        return not self._running and self._due.slot() is not None

    async def refresh(self) -> None:
        """Read the record, creating it if missing. Raises StoreUnavailableError, StoreRequestError."""
        record = await self._lease.read()
        if record is None:  # a new store has no slot to catch up
            made = LeaseRecord(uuid.uuid4().hex, holder=self.name, last_slot=self._due.newest())
            await self._lease.make(made)
            record = await self._lease.read()
        if record is not None:
            self._due.observe(record)

    async def run(self) -> ExpiryReport | None:
        """Run the due slot. None if there is none, another worker has it, or it was skipped or postponed.

        The job's error is recorded and re-raised. On cancellation the slot is given back.
        """
        try:
            held = await self._claim()
        except WenmaiError as error:
            log.warning("cleanup_postponed", reason=str(error))
            return None
        if held is None:
            return None
        self._running = True
        try:
            return await self._run(held)
        finally:
            self._running = False

    # ---- whose turn it is -----------------------------------------------------------------------

    async def _claim(self) -> LeaseRecord | None:
        """Acquire the lease for the due slot. Raises StoreUnavailableError, StoreRequestError."""
        await self.refresh()
        current, slot = self.record, self._due.slot()
        if current is None or slot is None or self._running:
            return None
        attempts = current.attempts + 1 if current.slot == slot else 1
        if self._due.is_from_wrong_clock(current):
            await self._reset_slot(current, slot)
        elif (moved_us := self._due.moved_us()) > HOUR_US:
            await self._skip(slot, moved_us)
        elif attempts > MAX_ATTEMPTS:
            await self._give_up(current, slot)
        else:
            claim = replace(current, holder=self.name, slot=slot, attempts=attempts, failed_us=0)
            return await self._swap(current, claim)
        return None

    async def _swap(self, expected: LeaseRecord, record: LeaseRecord) -> LeaseRecord | None:
        """Replace the record; None if another worker was faster."""
        new = replace(record, token=uuid.uuid4().hex)
        after = await self._lease.swap(expected, new)
        if after is None:
            return None
        self._due.observe(after)
        return after if after.token == new.token else None

    async def _skip(self, slot: int, moved_us: int) -> None:
        """Skip a slot after a clock jump: a wrong clock would delete for good, a right one loses one slot."""
        self._due.skip(slot)
        moved, now = f"{moved_us / HOUR_US:.1f} hours", rfc3339(self._clock())
        log.warning("cleanup_put_off", slot=rfc3339(slot), now=now, clock_put_forward_by=moved)
        why = f"the clock was moved forward by {moved}, to {now}; the next run takes place if it stays so"
        await self._lease.note(slot, why)
        await self.refresh()

    async def _give_up(self, current: LeaseRecord, slot: int) -> None:
        """Mark the slot done after its workers have died one after the other."""
        log.error("cleanup_given_up", slot=rfc3339(slot), attempts=current.attempts)
        error = current.last_error or "WorkerDied"
        await self._swap(current, replace(current, holder="", last_slot=slot, last_error=error))

    async def _reset_slot(self, current: LeaseRecord, slot: int) -> None:
        log.warning("cleanup_slot_ahead", last_slot=rfc3339(current.last_slot), now=rfc3339(self._clock()))
        await self._swap(current, replace(current, holder="", last_slot=slot))

    # ---- one run --------------------------------------------------------------------------------

    async def _run(self, held: LeaseRecord) -> ExpiryReport:
        """Run the job, cut off a little before the lease ends, when another worker may begin it."""
        self._due.trust_clock()
        slot = held.slot
        log.info("cleanup_started", slot=rfc3339(slot), attempt=held.attempts)
        try:
            async with asyncio.timeout(self.pace.lease_s * _RUN_SHARE):
                report = await self._job(slot)
        except asyncio.CancelledError:  # a shutdown: the attempt does not count, and we wait only briefly
            with suppress(WenmaiError, TimeoutError):
                async with asyncio.timeout(_END_NOW_S):
                    await self._swap(held, replace(held, holder="", attempts=held.attempts - 1))
            raise
        except Exception as error:
            await self._end(held, self._failed(held, error))
            raise
        await self._end(held, self._done(held, report))
        return report

    async def _end(self, held: LeaseRecord, record: LeaseRecord) -> None:
        """Store the outcome. If the store stays unavailable the slot runs again, with less left to do."""
        ended = replace(record, holder="", token=uuid.uuid4().hex)
        for pause_s in (self.pace.look_s, self.pace.look_s, 0.0):
            try:
                after = await self._lease.swap(held, ended)
            except WenmaiError as error:
                log.warning("cleanup_result_not_stored", error=str(error))
                await asyncio.sleep(pause_s)
                continue
            if after is None or after.token != ended.token:
                log.error("cleanup_lost", slot=rfc3339(held.slot), reason="another worker has taken this run")
            if after is not None:
                self._due.observe(after)
            return

    def _done(self, record: LeaseRecord, report: ExpiryReport) -> LeaseRecord:
        # ids are not stored: something erased later must not be named here
        result = replace(report, sessions={}, unparsable_ids=[])
        now_us = self._clock()
        return replace(record, last_slot=record.slot, last_run_us=now_us, last_result=result, last_error="")

    def _failed(self, record: LeaseRecord, error: Exception) -> LeaseRecord:
        now_us, over = self._clock(), record.attempts >= MAX_ATTEMPTS
        failed = replace(record, last_run_us=now_us, failed_us=now_us, last_error=_error_name(error))
        return replace(failed, last_slot=record.slot) if over else failed


def _error_name(error: Exception) -> str:
    """Return a refusal's message, which says what to do, or else the type: details are in the log."""
    return str(error) if isinstance(error, ConflictError) else type(error).__name__


@dataclass(frozen=True, slots=True)
class CleanupState:
    """Times are RFC 3339; None if the job has not run yet, or never will again.

    `last_run` is the last scheduled run of any worker; it ended with `last_result` (which names no session or
    turn) or `last_error`, the error's type or the reason of the refusal. `last_slot` is the newest scheduled
    time that is done. `skipped` says why a later one was not run. `holder` is the worker running it now.
    """

    cron: str
    timezone: str
    next_run: str | None
    last_run: str | None
    last_result: ExpiryReport | None
    last_error: str | None
    last_slot: str | None = None
    skipped: str | None = None
    running: bool = False
    holder: str | None = None


@dataclass(frozen=True, slots=True)
class CleanupSchedule:
    """Reports what the job did last, and when it runs next. `cron` is only displayed."""

    runner: SlotRunner
    slots: Slots
    cron: str
    zone: tzinfo

    def state(self) -> CleanupState:
        """Return the state this worker last read, at most half a minute old."""
        record = self.runner.record
        now_us = utc_now_us()
        next_slot = self.slots.after(now_us)
        next_run = None if next_slot is None else moment_at(next_slot).astimezone(self.zone).isoformat()
        if record is None:
            return CleanupState(self.cron, str(self.zone), next_run, None, None, None)
        holder = record.holder if record.slot else ""  # slot 0: the record was made and never claimed
        return CleanupState(
            cron=self.cron,
            timezone=str(self.zone),
            next_run=next_run,
            last_run=_moment(record.last_run_us),
            last_result=record.last_result,
            last_error=record.last_error or None,
            last_slot=_moment(record.last_slot),
            skipped=record.skipped if record.last_slot < record.skipped_slot <= now_us else None,
            running=bool(holder),
            holder=holder or None,
        )

    async def current(self) -> CleanupState:
        """Return the state read from the store now, or as last read if the store is unavailable."""
        try:
            await self.runner.refresh()
        except WenmaiError as error:
            log.debug("cleanup_lease_unknown", error=str(error))
        return self.state()


def _moment(moment_us: int) -> str | None:
    return rfc3339(moment_us) if moment_us else None
