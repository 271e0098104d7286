"""The turns that run in this process: how many may, which session is busy, what a stop reaches."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from api.turn.run import TurnRun
from core.conversation.turns import TurnStatus
from core.errors import SessionBusyError, ShuttingDownError, TooManyStreamsError
from core.owners import VISITOR_PREFIX
from services.store.clock import Activity

STORING_S = 3.0  # for what was cut to be stored


class StreamSeats:
    """`per_owner` None: only the number in all is bounded (without keys every caller is the same owner).
    Visitors of sites, who can be as many as one client makes up, have half of all seats together."""

    def __init__(self, limit: int, per_owner: int | None = None) -> None:
        self._limit = limit
        self._per_owner = per_owner
        self._owners: Counter[str] = Counter()
        self._taken = self._visitors = 0

    def check(self, owner: str) -> None:
        """Raises TooManyStreamsError when no seat is free."""
        if self._taken >= self._limit or (_is_visitor(owner) and self._visitors >= max(1, self._limit // 2)):
            raise TooManyStreamsError("Too many answers are being written just now. Try again shortly.")
        if self._per_owner is not None and self._owners[owner] >= self._per_owner:
            raise TooManyStreamsError(
                f"This key has {self._per_owner} answers open, as many as it may. Wait for one to end."
            )

    def take(self, owner: str) -> None:
        """The seat is the caller's until `give_back`, whether one was free or not: `check` before."""
        self._taken += 1
        self._visitors += _is_visitor(owner)
        self._owners[owner] += 1

    def give_back(self, owner: str) -> None:
        self._taken -= 1
        self._visitors -= _is_visitor(owner)
        self._owners[owner] -= 1
        if self._owners[owner] <= 0:
            del self._owners[owner]

    @contextmanager
    def seat(self, owner: str) -> Iterator[None]:
        """Taken when entered."""
        self.take(owner)
        try:
            yield
        finally:
            self.give_back(owner)


def _is_visitor(owner: str) -> bool:
    return owner.startswith(VISITOR_PREFIX)


@dataclass(frozen=True, slots=True)
class RunningTurn:
    run: TurnRun
    task: asyncio.Task[None]


class RunningTurns:
    def __init__(self, seats: StreamSeats, activity: Activity) -> None:
        self._seats = seats
        self._activity = activity
        self._draining = False
        self._hurried = asyncio.Event()
        self._running: dict[str, RunningTurn] = {}
        self._sessions: Counter[tuple[str, str]] = Counter()  # owner and session
        self._starting: dict[str, asyncio.Lock] = {}

    def __len__(self) -> int:
        return len(self._running)

    def get(self, turn_id: str) -> TurnRun | None:
        running = self._running.get(turn_id)
        return running.run if running else None

    @asynccontextmanager
    async def starting(self, turn_id: str) -> AsyncIterator[None]:
        """One start at a time per turn id: of ten equal requests one runs and nine attach."""
        lock = self._starting.setdefault(turn_id, asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked() and self._starting.get(turn_id) is lock:
                del self._starting[turn_id]

    @contextmanager
    def claim(self, session_id: str, owner: str, *, exclusive: bool) -> Iterator[None]:
        """Reserve a place in the session while a turn starts; `start` keeps it, an error gives it back.

        Nobody's place is another owner's: whoever knows a session's id could keep its owner out of it.
        Raises SessionBusyError when another turn runs there and this one has no explicit parent,
        TooManyStreamsError when the server, or this owner's share of it, is full, and ShuttingDownError.
        """
        if self._draining:
            raise ShuttingDownError("The server is shutting down. Send the question again in a moment.")
        if exclusive and self._sessions[owner, session_id]:
            raise SessionBusyError(
                "session_id: another turn is running in this session. Wait, or give parent_turn_id."
            )
        self._seats.check(owner)
        self._seats.take(owner)
        self._sessions[owner, session_id] += 1
        try:
            yield
        except BaseException:
            self._release(session_id, owner)
            raise

    def is_pending(self, session_id: str, owner: str) -> bool:
        """Whether a turn of it runs here, so that `claim` refuses an exclusive one."""
        return self._sessions[owner, session_id] > 0

    def start(self, run: TurnRun) -> None:
        """Run the turn as a task of its own; its claimed place is given back when it ends."""
        task = asyncio.create_task(self._run(run), name=f"turn {run.turn_id}")
        self._running[run.turn_id] = RunningTurn(run, task)
        task.add_done_callback(lambda _: self._ended(run))

    async def _run(self, run: TurnRun) -> None:
        with self._activity.busy():
            await run.run()

    async def ended(self, turn_id: str) -> None:
        """Return once the turn runs no more and its last write is done."""
        running = self._running.get(turn_id)
        if running is not None:
            await asyncio.wait([running.task])

    @property
    def draining(self) -> bool:
        return self._draining

    async def close(self, grace_s: float) -> None:
        """Take no new turn, let open ones finish for `grace_s` seconds, then interrupt and store them.

        `hurry` ends the waiting.
        """
        self._draining = True
        hurried = asyncio.create_task(self._hurried.wait())
        await self._none_left(grace_s, hurried)
        hurried.cancel()
        for running in list(self._running.values()):
            running.run.cut(TurnStatus.INTERRUPTED)
        await self._none_left(STORING_S)

    def hurry(self) -> None:
        """Whoever closes waits no longer for open turns to finish."""
        self._hurried.set()

    async def _none_left(self, limit_s: float, *enough: asyncio.Task[bool]) -> None:
        """Until no turn runs, those included that were just beginning; or until one of `enough` is done."""
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_s
        while (tasks := [running.task for running in self._running.values()]) and loop.time() < end:
            waiting = [*tasks, *enough]
            await asyncio.wait(waiting, timeout=end - loop.time(), return_when=asyncio.FIRST_COMPLETED)
            if any(task.done() for task in enough):
                return
            await asyncio.sleep(0)  # what has ended is taken off the list

    def _ended(self, run: TurnRun) -> None:
        self._running.pop(run.turn_id, None)
        self._release(run.session_id, run.turn.owner)

    def _release(self, session_id: str, owner: str) -> None:
        self._seats.give_back(owner)
        self._sessions[owner, session_id] -= 1
        if self._sessions[owner, session_id] <= 0:
            del self._sessions[owner, session_id]
