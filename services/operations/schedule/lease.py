"""The lease of a scheduled job: one record in the store says which slot is done, and who runs one now.

No clock is compared with another worker's. A holder that lives changes the record every third of a lease;
a record that says "held" and stayed the same for a whole lease, by the watcher's own steady clock, is a dead
worker's. So workers' wall clocks may differ; they only decide when each of them asks.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import structlog
from pydantic import TypeAdapter, ValidationError
from qdrant_client import models

from core.errors import StoreUnavailableError, WenmaiError
from services.conversation.turns import equals
from services.operations.retention.report import ExpiryReport
from services.store.dialect import VectorStore

log = structlog.get_logger()

RECORD = "lease"
_NAMESPACE = uuid.UUID("8f0e4d0a-6c51-5d0e-9f39-2d9b6f7b8c11")
_NOTED = ("skipped_slot", "skipped")


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Slots and times are UTC microseconds, 0 for none.

    Every claim has a `token` of its own, and every change of a claim a `beat` of its own. `holder` is empty
    while nobody runs. `slot` is the one that was last begun, for the `attempts`-th time; `last_slot` and all
    before it are done. `failed_us` is when `slot` failed. `last_result` names nobody's
    session or turn.
    """

    token: str
    beat: int = 0
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

    async def swap(self, seen: LeaseRecord, new: LeaseRecord) -> LeaseRecord | None:
        """Put `new` in place of `seen` if that still is there, in one step; what was noted stays.

        Returns the record as it is afterwards: the change was made when that has the beat and token of `new`.
        """
        ...

    async def note(self, slot: int, why: str) -> None:
        """This slot was skipped. Leaves everything else as it is."""
        ...


class LeaseStore:
    """In the operations collection, for all workers of one store."""

    def __init__(self, store: VectorStore, collection: str, job: str = "cleanup") -> None:
        self._store = store
        self._collection = collection
        self._job = job
        self._id = str(uuid.uuid5(_NAMESPACE, job))

    async def read(self) -> LeaseRecord | None:
        found = await self._store.retrieve(self._collection, [self._id])
        if not found:
            return None
        try:
            return _READ.validate_python(found[0].payload or {})
        except ValidationError as error:
            log.warning("lease_unreadable", errors=error.error_count())
            return None

    async def make(self, record: LeaseRecord) -> None:
        if await self.read() is None:
            payload = {**asdict(record), "record": RECORD, "job": self._job}
            point = models.PointStruct(id=self._id, vector={}, payload=payload)
            await self._store.upsert(self._collection, [point])

    async def swap(self, seen: LeaseRecord, new: LeaseRecord) -> LeaseRecord | None:
        # The engine finds the point and changes it in one step, so of two that saw the same only one fits.
        still = [self._this(), equals("token", seen.token), equals("beat", seen.beat)]
        fields: dict[str, Any] = {name: value for name, value in asdict(new).items() if name not in _NOTED}
        await self._store.set_payload(self._collection, fields, points=models.Filter(must=still))
        return await self.read()

    async def note(self, slot: int, why: str) -> None:
        fields = {"skipped_slot": slot, "skipped": why}
        await self._store.set_payload(self._collection, fields, points=models.Filter(must=[self._this()]))

    def _this(self) -> models.HasIdCondition:
        return models.HasIdCondition(has_id=[self._id])


class MemoryLease:
    """For one process that keeps nothing: what was missed while it was down is not made up."""

    def __init__(self) -> None:
        self._record: LeaseRecord | None = None

    async def read(self) -> LeaseRecord | None:
        return self._record

    async def make(self, record: LeaseRecord) -> None:
        self._record = self._record or replace(record, holder="")

    async def swap(self, seen: LeaseRecord, new: LeaseRecord) -> LeaseRecord | None:
        now = self._record
        if now and (now.token, now.beat) == (seen.token, seen.beat):
            self._record = replace(new, skipped_slot=now.skipped_slot, skipped=now.skipped)
        return self._record

    async def note(self, slot: int, why: str) -> None:
        if self._record:
            self._record = replace(self._record, skipped_slot=slot, skipped=why)


# A lease while it is held: signs of life, and the end.


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
