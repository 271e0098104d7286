"""A periodic schedule, clocks that are set manually, and a job that counts its runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from qdrant_client import models

from config.settings import StoreSettings
from core.operations.expiry import ExpiryReport
from services.operations.schedule.lease import LeaseRecord
from services.store.collections import collection_specs
from services.store.dialect import VectorStore

REPORT = ExpiryReport("2024-01-01T00:00:00.000000Z", 30, False, 10, 3, 3, {"s": 3}, 7)
SECOND_US = 1_000_000
HOUR_US = 3_600 * SECOND_US
DAY_US = 24 * HOUR_US


async def make_operations(store: VectorStore) -> None:
    """Create the only collection that a schedule needs."""
    operations = next(spec for spec in collection_specs(StoreSettings()) if spec.name == "operations")
    sparse = {"sparse": models.SparseVectorParams()}
    await store.delete_collection(operations.name)
    await store.create_collection(operations.name, vectors_config={}, sparse_vectors_config=sparse)
    for name, schema in operations.indexes.items():
        await store.create_payload_index(operations.name, name, schema)


@dataclass(frozen=True)
class Every:
    """A slot at every multiple of the period since 1970."""

    seconds: float

    @property
    def _period_us(self) -> int:
        return round(self.seconds * SECOND_US)

    def after(self, moment_us: int) -> int:
        return (moment_us // self._period_us + 1) * self._period_us

    def newest(self, moment_us: int) -> int:
        return moment_us // self._period_us * self._period_us


@dataclass
class Clocks:
    """A machine's clocks: `wall_us` can be set, the other two cannot. `pass_s` lets time pass."""

    wall_us: int = 1_750_000_000_000_000
    boot: int = 0
    steady_s: float = 0.0

    def wall(self) -> int:
        return self.wall_us

    def boot_us(self) -> int:
        return self.boot

    def steady(self) -> float:
        return self.steady_s

    def pass_s(self, seconds: float, *, asleep: bool = False) -> None:
        self.wall_us += round(seconds * SECOND_US)
        self.boot += round(seconds * SECOND_US)
        if not asleep:
            self.steady_s += seconds


@dataclass
class CountingJob:
    """Records begun `slots` and successfully `ended` ones. A run takes `seconds` and then raises the next of
    `errors`."""

    seconds: float = 0.0
    errors: list[Exception] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0

    async def __call__(self, slot: int) -> ExpiryReport:
        self.slots.append(slot)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.at_once -= 1
        if self.errors:
            raise self.errors.pop(0)
        self.ended.append(slot)
        return REPORT


class MemoryLease:
    """A lease in memory, for one process."""

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
