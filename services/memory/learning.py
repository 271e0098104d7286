"""What is learned after a turn, in the background: by rule from what a person plainly says of themselves,
and from what a model proposes of turns that it has not read yet."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import structlog

from core.conversation.turns import Turn, TurnStatus
from core.errors import MemoryRefusedError, WenmaiError
from core.memory.record import MemoryDraft
from core.memory.requests import explicit_request, type_of
from core.memory.statements import self_statements
from services.memory.extraction import Extraction, UnreadTurns
from services.memory.records import MemoryRecords
from services.memory.writing import MemoryWriter
from services.store.clock import Activity

log = structlog.get_logger()

CLOSE_S = 2.0
BUSY_WAIT_S = 5.0  # while answers are written, which need the model more
CATCH_UP_S = 24 * 3600.0  # what is older was said before there was memory, or while no model read


@dataclass(frozen=True, slots=True)
class Reading:
    """How a model reads turns: from `min_turns` turns of a session on."""

    unread: UnreadTurns
    extraction: Extraction
    activity: Activity
    min_turns: int


class MemoryLearning:
    """`after_turn` returns at once. Cancelled and failed turns teach nothing, nor do commands, which are
    carried out by themselves, and turns that were asked without memory. `on`: MEMORY_RECALL is not off;
    `reading` None: no model proposes anything."""

    def __init__(
        self, records: MemoryRecords, writer: MemoryWriter, *, on: bool, reading: Reading | None = None
    ) -> None:
        self._records = records
        self._writer = writer
        self._on = on
        self._reading = reading
        self._jobs: set[asyncio.Task[None]] = set()
        self._sessions: set[tuple[str, str]] = set()  # being read: owner and session
        self._again: set[tuple[str, str]] = set()
        self._slot = asyncio.Semaphore(1)

    def after_turn(self, turn: Turn, earlier: int = 0) -> None:
        """`earlier` is how many turns of its branch were answered before it."""
        if not self._on or not teaches(turn):
            return
        drafts = list(stated(turn))
        if drafts:
            self._begin(self._learn(turn.owner, drafts))
        if self._reading is not None and earlier + 1 >= self._reading.min_turns:
            self._read_later(self._reading, turn.owner, turn.session_id)

    async def catch_up(self) -> None:
        """What the end of a process left unread, also of sessions that do not go on; at the start."""
        if self._reading is None or not self._on:
            return
        since_us = self._reading.unread.now_us() - int(CATCH_UP_S * 1_000_000)
        for owner, session_id in await self._reading.unread.sessions_left(since_us, self._reading.min_turns):
            self._read_later(self._reading, owner, session_id)

    async def idle(self) -> None:
        """Return once nothing is being learned."""
        while self._jobs:
            await asyncio.wait(self._jobs)

    async def close(self) -> None:
        """What is being written is finished, briefly; the rest is read after the next start."""
        if self._jobs:
            _, left = await asyncio.wait(self._jobs, timeout=CLOSE_S)
            for job in left:
                job.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    def _read_later(self, reading: Reading, owner: str, session_id: str) -> None:
        key = (owner, session_id)
        self._again.add(key)
        if key not in self._sessions:
            self._sessions.add(key)
            self._begin(self._read(reading, *key))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        job = asyncio.create_task(work, name="learn from a turn")
        self._jobs.add(job)
        job.add_done_callback(self._ended)

    def _ended(self, job: asyncio.Task[None]) -> None:
        self._jobs.discard(job)
        crash = None if job.cancelled() else job.exception()
        if crash is not None:  # a model's class of somebody else's may raise anything
            log.error("memory_learning_crashed", exc_info=crash)

    async def _learn(self, owner: str, drafts: Sequence[MemoryDraft]) -> None:
        try:
            if (await self._records.switch_of(owner)).on:
                await self._write(owner, drafts)
        except WenmaiError as error:  # the answer has been sent; what is lost is one memory
            log.warning("memory_not_written", error=error.code)

    async def _read(self, reading: Reading, owner: str, session_id: str) -> None:
        """Until nothing is unread; turns that end meanwhile are read in the next round."""
        key = (owner, session_id)
        try:
            while key in self._again:
                self._again.discard(key)
                async with self._slot:
                    await reading.activity.quiet(BUSY_WAIT_S)
                    while await self._read_some(reading, owner, session_id):
                        pass
        except WenmaiError as error:  # read after the session's next turn
            log.warning("memory_not_read", session_id=session_id, error=error.code)
        finally:
            self._sessions.discard(key)

    async def _read_some(self, reading: Reading, owner: str, session_id: str) -> bool:
        switch = await self._records.switch_of(owner)
        if not switch.on:
            return False
        turns = await reading.unread.claim(session_id, owner, switch.changed_us)
        if not turns:
            return False
        try:
            proposals = await reading.extraction.propose(session_id, turns)
        except (WenmaiError, asyncio.CancelledError):  # no model answered, or the server closes
            await reading.unread.release(turns)
            raise
        for refusal in proposals.refused:
            self._writer.refuse(refusal)
        await self._write(owner, proposals.drafts)
        log.info("turns_read", session_id=session_id, turns=len(turns), proposals=len(proposals.drafts))
        return True

    async def _write(self, owner: str, drafts: Sequence[MemoryDraft]) -> None:
        for draft in drafts:
            with suppress(MemoryRefusedError):  # counted by the writer
                await self._writer.write(owner, draft)


def teaches(turn: Turn) -> bool:
    asked = turn.request is None or turn.request.memory
    return asked and turn.status is TurnStatus.COMPLETED and not turn.command


def stated(turn: Turn) -> Iterator[MemoryDraft]:
    """By rule; a request to remember beside a question, too."""
    request = explicit_request(turn.question)
    asked = [MemoryDraft(request.content, type_of(request.content))] if request and not request.forget else []
    for draft in (*asked, *self_statements(turn.question)):
        yield replace(draft, turn_ids=(turn.turn_id,), session_id=turn.session_id, said_us=turn.created_us)
