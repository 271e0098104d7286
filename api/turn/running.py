"""The turns running in this process: how many may run, which sessions are busy, how to stop them."""

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

STORING_S = 3.0  # for storing turns that were cut


class StreamSlots:
    """`per_owner` None: only the total is bounded (without keys, every caller is the same owner). Visitors of
    sites, of whom one client can invent any number, share half of all slots."""

    def __init__(self, limit: int, per_owner: int | None = None) -> None:
        self._limit = limit
        self._per_owner = per_owner
        self._owners: Counter[str] = Counter()
        self._taken = self._visitors = 0

    def check(self, owner: str) -> None:
        """Raises TooManyStreamsError when no slot is free."""
        if self._taken >= self._limit or (_is_visitor(owner) and self._visitors >= max(1, self._limit // 2)):
            raise TooManyStreamsError("Too many answers are being written right now. Try again shortly.")
        if self._per_owner is not None and self._owners[owner] >= self._per_owner:
            raise TooManyStreamsError(
                f"This key has {self._per_owner} answers running, the most it may have. Wait for one to end."
            )

    def take(self, owner: str) -> None:
        """Take a slot until `give_back`, even if none is free: call `check` first."""
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
    def slot(self, owner: str) -> Iterator[None]:
        """Taken on entry."""
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
    def __init__(self, slots: StreamSlots, activity: Activity) -> None:
        self._slots = slots
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
        """Reserve a place in the session while a turn starts; `start` keeps it, an error releases it.

        Places are counted per owner, so that knowing a session's id does not let others block its owner.
        Raises SessionBusyError when another turn runs there and this one has no explicit parent,
        TooManyStreamsError when the server, or this owner's share of it, is full, and ShuttingDownError.
        """
        if self._draining:
            raise ShuttingDownError("The server is shutting down. Send the question again in a moment.")
        if exclusive and self._sessions[owner, session_id]:
            raise SessionBusyError(
                "session_id: another turn is running in this session. Wait, or give parent_turn_id."
            )
        self._slots.check(owner)
        self._slots.take(owner)
        self._sessions[owner, session_id] += 1
        try:
            yield
        except BaseException:
            self._release(session_id, owner)
            raise

    def is_pending(self, session_id: str, owner: str) -> bool:
        """Whether a turn of the session runs here, so that `claim` refuses an exclusive one."""
        return self._sessions[owner, session_id] > 0

    def start(self, run: TurnRun) -> None:
        """Run the turn as a task of its own; its claimed place is released when it ends."""
        task = asyncio.create_task(self._run(run), name=f"turn {run.turn_id}")
        self._running[run.turn_id] = RunningTurn(run, task)
        task.add_done_callback(lambda _: self._ended(run))

    async def _run(self, run: TurnRun) -> None:
        with self._activity.busy():
            await run.run()

    async def ended(self, turn_id: str) -> None:
        """Return once the turn has stopped running and its last write is done."""
        running = self._running.get(turn_id)
        if running is not None:
            await asyncio.wait([running.task])

    @property
    def draining(self) -> bool:
        return self._draining

    async def close(self, grace_s: float) -> None:
        """Accept no new turns, let open ones finish for `grace_s` seconds, then interrupt and store them.

        `hurry` ends the wait.
        """
        self._draining = True
        hurried = asyncio.create_task(self._hurried.wait())
        await self._none_left(grace_s, hurried)
        hurried.cancel()
        for running in list(self._running.values()):
            running.run.cut(TurnStatus.INTERRUPTED)
        await self._none_left(STORING_S)

    def hurry(self) -> None:
        """Stop waiting for open turns to finish."""
        self._hurried.set()

    async def _none_left(self, limit_s: float, *enough: asyncio.Task[bool]) -> None:
        """Wait until no turn runs, including those just starting, or until one of `enough` is done."""
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_s
        while (tasks := [running.task for running in self._running.values()]) and loop.time() < end:
            waiting = [*tasks, *enough]
            await asyncio.wait(waiting, timeout=end - loop.time(), return_when=asyncio.FIRST_COMPLETED)
            if any(task.done() for task in enough):
                return
            await asyncio.sleep(0)  # lets ended turns leave the list

    def _ended(self, run: TurnRun) -> None:
        self._running.pop(run.turn_id, None)
        self._release(run.session_id, run.turn.owner)
        run.release()

    def _release(self, session_id: str, owner: str) -> None:
        self._slots.give_back(owner)
        self._sessions[owner, session_id] -= 1
        if self._sessions[owner, session_id] <= 0:
            del self._sessions[owner, session_id]
