"""Who waits for whom: for the same document, for room in memory, for a turn among the jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from services.knowledge.jobs.job import Job


class Locks:
    """One lock for each name, kept only while somebody holds or awaits it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, name: str) -> asyncio.Lock:
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock


class ByteBudget:
    """How many bytes of documents are in memory at once. First come, first served: one that is large is not
    passed by for ever."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held = 0
        self._line = asyncio.Lock()
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def hold(self, size_bytes: int) -> AsyncIterator[None]:
        """Waits until there is room."""
        size_bytes = min(size_bytes, self._most)
        async with self._line, self._changed:
            await self._changed.wait_for(lambda: self._held + size_bytes <= self._most)
            self._held += size_bytes
        try:
            yield
        finally:
            self._held -= size_bytes
            async with self._changed:
                self._changed.notify_all()


LARGE_AT_ONCE = 2  # so that the embedding never waits until a document is stored
AT_ONCE = LARGE_AT_ONCE + 1  # one more, that only small ones take
SMALL_CHUNKS = 256
SMALL_BYTES = 256 << 10  # of what is not parsed yet: rather more chunks than that only when it is packed


class Lanes:
    """Big documents take hours, and the small ones do not wait for them. First come, first served among the
    large and among the small."""

    def __init__(self) -> None:
        self._running: list[Job] = []
        self._line: list[tuple[Job, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def turn(self, job: Job) -> AsyncIterator[None]:
        """Waits until it is the job's turn."""
        try:
            await self._wait(job)
            yield
        finally:
            if job in self._running:
                self._running.remove(job)
            self._start()

    async def _wait(self, job: Job) -> None:
        turn = asyncio.get_running_loop().create_future()
        place = job, turn
        self._line.append(place)
        self._start()
        try:
            await turn
        finally:
            if place in self._line:  # cancelled while it waited
                self._line.remove(place)

    def _start(self) -> None:
        for place in tuple(self._line):
            job, turn = place
            if self._fits(job) and not turn.done():
                self._line.remove(place)
                self._running.append(job)
                turn.set_result(None)

    def _fits(self, job: Job) -> bool:
        if len(self._running) >= AT_ONCE:
            return False
        return _is_small(job) or sum(not _is_small(each) for each in self._running) < LARGE_AT_ONCE


def _is_small(job: Job) -> bool:
    if job.total:
        return job.total <= SMALL_CHUNKS
    return job.document.size_bytes <= SMALL_BYTES
