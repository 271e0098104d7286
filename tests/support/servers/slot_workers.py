"""Workers that share a lease and a machine's clocks, and a store that can become unreachable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from core.errors import StoreUnavailableError
from services.operations.schedule.lease import Lease, LeaseRecord, Pace
from services.operations.schedule.runner import SlotRunner
from services.store.clock import ClockWatch
from tests.support.stores.schedule import SECOND_US, Clocks, CountingJob, Every, MemoryLease

DAILY = Every(86_400)
PACE = Pace()


@dataclass
class UnreachableLease:
    """A lease in a store that is unreachable while `unreachable`; with `late`, writes are done but not
    acknowledged."""

    inner: Lease
    unreachable: bool = False
    late: bool = False

    async def read(self) -> LeaseRecord | None:
        return await self._ask(self.inner.read)

    async def make(self, record: LeaseRecord) -> None:
        await self.inner.make(record)

    async def swap(self, record: LeaseRecord, new: LeaseRecord) -> LeaseRecord | None:
        if self.late:
            await self.inner.swap(record, new)
        return await self._ask(lambda: self.inner.swap(record, new))

    async def note(self, slot: int, why: str) -> None:
        await self.inner.note(slot, why)

    async def _ask(self, ask: Callable[[], object]) -> LeaseRecord | None:
        if self.unreachable:
            raise StoreUnavailableError("The store does not answer.")
        return await ask()  # type: ignore[misc, no-any-return]


@dataclass
class Workers:
    """Workers that share a lease; `start` creates another worker with the machine's clocks."""

    clocks: Clocks = field(default_factory=Clocks)
    job: CountingJob = field(default_factory=CountingJob)
    lease: Lease = field(default_factory=MemoryLease)
    pace: Pace = PACE

    def start(self, *, ahead_s: float = 0.0, steady: Callable[[], float] | None = None) -> SlotRunner:
        def wall() -> int:
            return self.clocks.wall() + round(ahead_s * SECOND_US)

        watch = ClockWatch(wall, self.clocks.boot_us)
        steady = steady or self.clocks.steady
        return SlotRunner(self.job, DAILY, self.lease, self.pace, clock=wall, watch=watch, steady=steady)

    async def begin(self, lease_s: float) -> tuple[SlotRunner, asyncio.Task[object]]:
        """Return a worker in real time that has begun a slot, and its running task."""
        self.pace = Pace(lease_s, look_s=lease_s / 3)
        runner = self.start(steady=time.monotonic)
        await runner.refresh()
        self.to_slot()
        running: asyncio.Task[object] = asyncio.create_task(runner.run())
        await asyncio.sleep(0.02)  # now it is running
        return runner, running

    async def advance(self, runner: SlotRunner, seconds: float) -> None:
        """Act like the schedule: look repeatedly, and run when a run is due."""
        while seconds > 0:
            step = min(seconds, self.pace.look_s)
            self.clocks.pass_s(step)
            seconds -= step
            if await runner.look():
                await runner.run()

    def to_slot(self) -> None:
        """Advance the clocks just past the next slot."""
        self.clocks.pass_s((DAILY.after(self.clocks.wall_us) - self.clocks.wall_us) / SECOND_US + 1)
