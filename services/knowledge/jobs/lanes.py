"""Fair queues: for the same document, for memory and processes, for a turn among the jobs. No owner holds
everything while others wait."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakValueDictionary

from core.errors import TooManyUploadsError
from services.knowledge.jobs.job import Job


class Locks:
    """One lock per name, existing only while somebody holds or awaits it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, name: str) -> asyncio.Lock:
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock


MIN_RETRY_S = 2.0  # the shortest Retry-After of a refused upload
PATIENCE_BYTES = 1 << 20  # each second of waiting counts as much as being this much smaller


@dataclass(eq=False, slots=True)
class _Place:
    owner: str
    amount: int
    size_bytes: int
    since_s: float
    admitted: asyncio.Future[None]


class Shares:
    """Hands out `total` units of a resource for a while, at most `per_owner` to one owner.

    Next is the request whose owner holds least; among those the smallest, where waiting makes a request count
    as smaller. A request that does not fit yet is not overtaken.
    """

    def __init__(self, total: int, per_owner: int, min_retry_s: float = MIN_RETRY_S) -> None:
        self._total = total
        self._per_owner = per_owner
        self._held: Counter[str] = Counter()
        self._line: list[_Place] = []
        self._min_retry_s = min_retry_s
        self._typical_s = 0.0  # moving average of how long units are held

    @asynccontextmanager
    async def hold(
        self, owner: str, amount: int = 1, size_bytes: int = 0, patience_s: float | None = None
    ) -> AsyncIterator[None]:
        """Wait until there is room; an amount above `per_owner` is reduced to it.

        Raises TooManyUploadsError if that takes longer than `patience_s`.
        """
        loop = asyncio.get_running_loop()
        amount = min(amount, self._per_owner)
        place = _Place(owner, amount, size_bytes, loop.time(), loop.create_future())
        self._line.append(place)
        try:
            self._admit()
            await self._wait(place, patience_s)
            since_s = loop.time()
            try:
                yield
            finally:
                self._typical_s += (loop.time() - since_s - self._typical_s) / 4
        finally:
            if place in self._line:
                self._line.remove(place)
            else:
                self._held[owner] -= amount
            self._admit()

    async def _wait(self, place: _Place, patience_s: float | None) -> None:
        try:
            async with asyncio.timeout(patience_s):
                await place.admitted
        except TimeoutError:
            raise TooManyUploadsError(
                "Too many files are being read right now; send this one again.",
                max(self._min_retry_s, self._typical_s),
            ) from None

    def _admit(self) -> None:
        while (place := self._next()) is not None:
            self._line.remove(place)
            self._held[place.owner] += place.amount
            place.admitted.set_result(None)

    def _next(self) -> _Place | None:
        now_s = asyncio.get_running_loop().time()
        waiting = [
            place
            for place in self._line
            if not place.admitted.done() and self._held[place.owner] + place.amount <= self._per_owner
        ]
        if not waiting:
            return None
        first = min(waiting, key=lambda place: self._order(place, now_s))
        return first if self._held.total() + first.amount <= self._total else None

    def _order(self, place: _Place, now_s: float) -> tuple[int, float]:
        return self._held[place.owner], place.size_bytes - (now_s - place.since_s) * PATIENCE_BYTES


HOUR_S = 3_600.0


class CpuHours:
    """CPU seconds that each owner's files took in the last hour. `max_s` None: unlimited."""

    def __init__(self, max_s: float | None = None, now_s: Callable[[], float] = time.monotonic) -> None:
        self._max_s = max_s
        self._now_s = now_s
        self._taken: defaultdict[str, deque[tuple[float, float]]] = defaultdict(deque)

    def charge(self, owner: str, seconds: float) -> None:
        if self._max_s is not None:
            self._taken[owner].append((self._now_s(), seconds))

    def check(self, owner: str) -> None:
        """Raises TooManyUploadsError."""
        if self._max_s is None:
            return
        taken = self._taken[owner]
        while taken and taken[0][0] < self._now_s() - HOUR_S:
            taken.popleft()
        over_s = sum(seconds for _, seconds in taken) - self._max_s
        for since_s, seconds in taken if over_s >= 0 else ():
            over_s -= seconds
            if over_s < 0:
                raise TooManyUploadsError(
                    "This key's files have used up their processor time for this hour; try again later.",
                    max(MIN_RETRY_S, since_s + HOUR_S - self._now_s()),
                )


MAX_LARGE = 2  # so that embedding never waits for a document to be stored
MAX_RUNNING = MAX_LARGE + 1  # one more slot, for small jobs only
MAX_SAMPLE = 1  # whoever just started the server adds a document while the sample is read
SMALL_CHUNKS = 256
SMALL_BYTES = 256 << 10  # of an unparsed file: only compressed formats have more than SMALL_CHUNKS then


class Lanes:
    """Large documents take hours; small ones do not wait for them, and none waits for the sample. Within each
    lane, the owner with the fewest running jobs is next, then first come, first served."""

    def __init__(self) -> None:
        self._running: list[Job] = []
        self._line: list[tuple[Job, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def turn(self, job: Job) -> AsyncIterator[None]:
        """Wait until it is the job's turn."""
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
        for place in sorted(self._line, key=self._order):
            job, turn = place
            if self._fits(job) and not turn.done():
                self._line.remove(place)
                self._running.append(job)
                turn.set_result(None)

    def _order(self, place: tuple[Job, asyncio.Future[None]]) -> tuple[bool, int]:
        document = place[0].document
        return document.is_sample, sum(job.document.owner == document.owner for job in self._running)

    def _fits(self, job: Job) -> bool:
        if len(self._running) >= MAX_RUNNING:
            return False
        if job.document.is_sample and sum(each.document.is_sample for each in self._running) >= MAX_SAMPLE:
            return False
        return _is_small(job) or sum(not _is_small(each) for each in self._running) < MAX_LARGE


def _is_small(job: Job) -> bool:
    if job.total:
        return job.total <= SMALL_CHUNKS
    return job.document.size_bytes <= SMALL_BYTES
