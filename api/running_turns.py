"""The turns that run in this process: who may attach, which session is busy, what a stop reaches."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from api.turn_run import TurnRun
from core.errors import SessionBusyError, TooManyStreamsError
from core.turns import TurnStatus


@dataclass(frozen=True, slots=True)
class RunningTurn:
    run: TurnRun
    task: asyncio.Task[None]


class RunningTurns:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._running: dict[str, RunningTurn] = {}
        self._sessions: Counter[str] = Counter()
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
    def claim(self, session_id: str, *, exclusive: bool) -> Iterator[None]:
        """Reserve a place in the session while a turn starts; `start` keeps it, an error gives it back.

        Raises SessionBusyError when another turn runs there and this one has no explicit parent,
        TooManyStreamsError when the server is full.
        """
        if len(self._running) >= self._limit:
            raise TooManyStreamsError("Too many answers are being written just now. Try again shortly.")
        if exclusive and self._sessions[session_id]:
            raise SessionBusyError(
                "session_id: another turn is running in this session. Wait, or give parent_turn_id."
            )
        self._sessions[session_id] += 1
        try:
            yield
        except BaseException:
            self._release(session_id)
            raise

    def start(self, run: TurnRun) -> None:
        """Run the turn as a task of its own; its claimed place is given back when it ends."""
        task = asyncio.create_task(run.run(), name=f"turn {run.turn_id}")
        self._running[run.turn_id] = RunningTurn(run, task)
        task.add_done_callback(lambda _: self._ended(run))

    async def ended(self, turn_id: str) -> None:
        """Return once the turn runs no more and its last write is done."""
        running = self._running.get(turn_id)
        if running is not None:
            await asyncio.wait([running.task])

    async def close(self, grace_s: float) -> None:
        """Let open turns finish for `grace_s` seconds, then interrupt them and wait for their storing."""
        tasks = [running.task for running in self._running.values()]
        if not tasks:
            return
        await asyncio.wait(tasks, timeout=grace_s)
        for running in list(self._running.values()):
            running.run.cut(TurnStatus.INTERRUPTED)
        await asyncio.wait(tasks, timeout=5)

    def _ended(self, run: TurnRun) -> None:
        self._running.pop(run.turn_id, None)
        self._release(run.session_id)

    def _release(self, session_id: str) -> None:
        self._sessions[session_id] -= 1
        if self._sessions[session_id] <= 0:
            del self._sessions[session_id]
