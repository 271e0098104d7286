"""A lease while it is held: signs of life, and the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import structlog

from core.errors import StoreUnavailableError, WenmaiError
from services.schedule.lease import Lease, LeaseRecord

log = structlog.get_logger()

_END_NOW_S = 2.0
_TRIES = 3


class HeldLease:
    """`record` is as this worker wrote it last; nobody else changes it while the worker lives."""

    def __init__(
        self,
        lease: Lease,
        record: LeaseRecord,
        lease_s: float,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lease = lease
        self._lease_s = lease_s
        self._steady = steady
        self._beat = record.beat
        self.record = record

    async def keep(self) -> None:
        """Give signs of life; ends when the lease is another's, or was not renewed for its whole length."""
        renewed = self._steady()
        while self._steady() - renewed < self._lease_s:
            await asyncio.sleep(self._lease_s / 3)
            try:
                if not await self._write(self.record):
                    return
            except WenmaiError as error:
                log.warning("cleanup_lease_not_renewed", error=str(error))
            else:
                renewed = self._steady()

    async def end(self, record: LeaseRecord) -> None:
        """Write how it ended; tried again for about as long as the lease lasts."""
        for pause_s in (self._lease_s / 3, self._lease_s / 3, 0.0):
            try:
                await self._write(replace(record, holder=""))
            except WenmaiError as error:
                log.warning("cleanup_result_not_stored", error=str(error))
                await asyncio.sleep(pause_s)
            else:
                return

    async def end_now(self, record: LeaseRecord) -> None:
        """The same at a shutdown: without patience."""
        with suppress(WenmaiError, TimeoutError):
            async with asyncio.timeout(_END_NOW_S):
                await self._write(replace(record, holder=""))

    async def _write(self, record: LeaseRecord) -> bool:
        """False when the lease is another's by now. Raises StoreUnavailableError, StoreRequestError."""
        for _ in range(_TRIES):
            self._beat += 1  # never used twice, so what is read back shows which write arrived
            after = await self._lease.swap(self.record, replace(record, beat=self._beat))
            if after is None or after.token != self.record.token:
                return False
            self.record = after
            if after.beat == self._beat:
                return True  # else an earlier write had arrived after all, though its answer had not
        raise StoreUnavailableError("the store does not show what was written")
