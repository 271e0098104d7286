"""Runs a job once per slot: whichever worker gets the lease, and another one when that worker dies.

What is asked is never "has a moment come?" but "is the newest slot done?". So a slot is made up, once,
however it came to be missed: the server was down, the machine slept, the store was away, the last took long.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import structlog

from core.conversation.turns import rfc3339
from core.errors import WenmaiError
from services.operations.retention.report import ExpiryReport
from services.operations.schedule.lease import HeldLease, Lease, LeaseRecord
from services.operations.schedule.slots import HOUR_US, DueSlot, Pace, Slots
from services.store.clock import Clock, ClockWatch, utc_now_us

log = structlog.get_logger()

SlotJob = Callable[[int], Coroutine[Any, Any, ExpiryReport]]
"""Takes the slot, in UTC microseconds."""

MOST_ATTEMPTS = 3


class SlotRunner:
    """`pace.retry_s` after a failure the slot is tried again, `MOST_ATTEMPTS` times in all."""

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
        self._steady = steady
        self._due = DueSlot(slots, self.pace, clock, watch, steady)
        self._running = False

    @property
    def record(self) -> LeaseRecord | None:
        """The lease as it was seen last."""
        return self._due.record

    async def look(self) -> bool:
        """Whether a slot waits for this worker. Not while the store is away: it is asked again next time."""
        self._due.moved_us()
        try:
            await self.refresh()
        except WenmaiError as error:  # also: the collections are still being made
            log.debug("cleanup_lease_unknown", error=str(error))
            return False
        return not self._running and self._due.slot() is not None

    async def refresh(self) -> None:
        """Read the record, made when it is missing. Raises StoreUnavailableError, StoreRequestError."""
        record = await self._lease.read()
        if record is None:  # a new store has nothing to make up for
            made = LeaseRecord(uuid.uuid4().hex, holder=self.name, last_slot=self._due.newest())
            await self._lease.make(made)
            record = await self._lease.read()
        if record is not None:
            self._due.saw(record)

    async def run(self) -> ExpiryReport | None:
        """Run the slot that is due. None: there was none, another worker has it, or it was put off.

        What the job raises is noted and raised. Cancelled, the slot is given back.
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
            return await self._run(HeldLease(self._lease, held, self.pace.lease_s, self._steady))
        finally:
            self._running = False

    # ---- whose turn it is -----------------------------------------------------------------------

    async def _claim(self) -> LeaseRecord | None:
        """The lease as it is held now. Raises StoreUnavailableError, StoreRequestError."""
        await self.refresh()
        seen, slot = self.record, self._due.slot()
        if seen is None or slot is None or self._running:
            return None
        attempts = seen.attempts + 1 if seen.slot == slot else 1
        if self._due.is_absurd(seen):
            await self._forget(seen, slot)
        elif (moved_us := self._due.moved_us()) > HOUR_US:
            await self._put_off(slot, moved_us)
        elif attempts > MOST_ATTEMPTS:
            await self._give_up(seen, slot)
        else:
            claim = replace(seen, holder=self.name, slot=slot, attempts=attempts, failed_us=0)
            return await self._swap(seen, claim)
        return None

    async def _swap(self, seen: LeaseRecord, record: LeaseRecord) -> LeaseRecord | None:
        """None: somebody was faster."""
        new = replace(record, token=uuid.uuid4().hex, beat=0)
        after = await self._lease.swap(seen, new)
        if after is None:
            return None
        self._due.saw(after)
        return after if after.token == new.token else None

    async def _put_off(self, slot: int, moved_us: int) -> None:
        """What a wrong clock deletes is gone; a right one, moved on purpose, costs one slot."""
        self._due.put_off(slot)
        moved, now = f"{moved_us / HOUR_US:.1f} hours", rfc3339(self._clock())
        log.warning("cleanup_put_off", slot=rfc3339(slot), now=now, clock_put_forward_by=moved)
        why = f"the clock was put forward by {moved}, to {now}; the next slot is run if it stays so"
        await self._lease.note(slot, why)
        await self.refresh()

    async def _give_up(self, seen: LeaseRecord, slot: int) -> None:
        """Its workers died of it, one after the other."""
        log.error("cleanup_given_up", slot=rfc3339(slot), attempts=seen.attempts)
        error = seen.last_error or "WorkerDied"
        await self._swap(seen, replace(seen, holder="", last_slot=slot, last_error=error))

    async def _forget(self, seen: LeaseRecord, slot: int) -> None:
        log.warning("cleanup_slot_ahead", last_slot=rfc3339(seen.last_slot), now=rfc3339(self._clock()))
        await self._swap(seen, replace(seen, holder="", last_slot=slot))

    # ---- one run --------------------------------------------------------------------------------

    async def _run(self, held: HeldLease) -> ExpiryReport | None:
        self._due.trust_clock()
        slot, attempts = held.record.slot, held.record.attempts
        log.info("cleanup_started", slot=rfc3339(slot), attempt=attempts)
        end = replace(held.record, attempts=attempts - 1)  # as if it had not been begun
        try:
            report = await self._work(held, slot)
            if report is None:
                log.error("cleanup_lost", slot=rfc3339(slot), reason="the lease was not renewed in time")
            else:
                end = self._done(held.record, report)
                await held.end(end)
        except asyncio.CancelledError:
            await held.end_now(end)
            raise
        except Exception as error:
            await held.end(self._failed(held.record, error))
            raise
        finally:
            self._due.saw(held.record)
        return report

    def _done(self, record: LeaseRecord, report: ExpiryReport) -> LeaseRecord:
        # ids are for who asked, not for keeping: what is erased later must not be named here
        result = replace(report, sessions={}, unparsable_ids=[])
        done = replace(record, last_slot=record.slot, last_run_us=self._clock(), last_result=result)
        return replace(done, last_error="")

    def _failed(self, record: LeaseRecord, error: Exception) -> LeaseRecord:
        now_us, over = self._clock(), record.attempts >= MOST_ATTEMPTS
        failed = replace(record, last_run_us=now_us, failed_us=now_us, last_error=type(error).__name__)
        return replace(failed, last_slot=record.slot) if over else failed

    async def _work(self, held: HeldLease, slot: int) -> ExpiryReport | None:
        """The job, for as long as the lease is held; None when it was lost on the way."""
        work = asyncio.create_task(self._job(slot))
        keeping = asyncio.create_task(held.keep())
        try:
            await asyncio.wait({work, keeping}, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else None
        finally:
            work.cancel()
            keeping.cancel()
            await asyncio.gather(work, keeping, return_exceptions=True)
