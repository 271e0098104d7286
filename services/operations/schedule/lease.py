"""The lease of a scheduled job: one record in the store says which slot is done, and who runs one now.

No clock is compared with another worker's. A run is cut when it takes longer than a lease, so a record that
says "held" and stayed the same for a whole lease, by the watcher's own steady clock, is a dead worker's. So
workers' wall clocks may differ; they only decide when each of them asks.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import structlog
from pydantic import TypeAdapter, ValidationError

from services.operations.retention.report import ExpiryReport
from services.store.dialect import Condition, Filter, Point, VectorStore
from services.store.filters import equals, has_id

log = structlog.get_logger()

RECORD = "lease"
_NAMESPACE = uuid.UUID("8f0e4d0a-6c51-5d0e-9f39-2d9b6f7b8c11")
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

    def __init__(self, store: VectorStore, collection: str, job: str = "cleanup") -> None:
        self._store = store
        self._collection = collection
        self._job = job
        self._id = str(uuid.uuid5(_NAMESPACE, job))

    async def read(self) -> LeaseRecord | None:
        records = await self._store.retrieve(self._collection, [self._id])
        if not records:
            return None
        try:
            return _READ.validate_python(records[0].payload or {})
        except ValidationError as error:
            log.warning("lease_unreadable", errors=error.error_count())
            return None

    async def make(self, record: LeaseRecord) -> None:
        if await self.read() is None:
            payload = {**asdict(record), "record": RECORD, "job": self._job}
            point = Point(id=self._id, vector={}, payload=payload)
            await self._store.upsert(self._collection, [point])

    async def swap(self, expected: LeaseRecord, new: LeaseRecord) -> LeaseRecord | None:
        # The engine finds the point and changes it in one step, so of two that saw the same only one fits.
        still = [self._this(), equals("token", expected.token)]
        fields: dict[str, Any] = {name: value for name, value in asdict(new).items() if name not in _NOTED}
        await self._store.set_payload(self._collection, fields, points=Filter(must=still))
        return await self.read()

    async def note(self, slot: int, why: str) -> None:
        fields = {"skipped_slot": slot, "skipped": why}
        await self._store.set_payload(self._collection, fields, points=Filter(must=[self._this()]))

    def _this(self) -> Condition:
        return has_id([self._id])


class MemoryLease:
    """For one process that keeps nothing: what was missed while it was down is not caught up."""

    def __init__(self) -> None:
        self._record: LeaseRecord | None = None

    async def read(self) -> LeaseRecord | None:
        return self._record

    async def make(self, record: LeaseRecord) -> None:
        self._record = self._record or replace(record, holder="")

    async def swap(self, expected: LeaseRecord, new: LeaseRecord) -> LeaseRecord | None:
        now = self._record
        if now and now.token == expected.token:
            self._record = replace(new, skipped_slot=now.skipped_slot, skipped=now.skipped)
        return self._record

    async def note(self, slot: int, why: str) -> None:
        if self._record:
            self._record = replace(self._record, skipped_slot=slot, skipped=why)
