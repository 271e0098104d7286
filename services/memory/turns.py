"""Memories in a turn: recall for its prompt, and learning after it, in the background: by rule from plain
statements about oneself, and from what a model proposes for turns that it has not read yet."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import structlog

from config.settings import ConversationSettings
from core.conversation.recall import spread_of
from core.conversation.turns import Turn, TurnStatus
from core.errors import MemoryRefusedError, WenmaiError
from core.memory.record import Memory, MemoryDraft, MemoryType
from core.memory.relevance import THRESHOLD, MemoryRelevance
from core.memory.statements import declines, explicit_request, self_statements, type_of
from core.relevance.query import Query
from services.memory.extraction import Extraction, UnreadTurns
from services.memory.records import MemoryRecords
from services.memory.writing import MemoryWriter
from services.store.clock import Activity, utc_now_us

log = structlog.get_logger()

DEPTH = 24  # hits per list, including memories that are no longer valid
MAX_RECALLED = 5  # per prompt
MAX_INSTRUCTIONS = 2  # of these: they apply to every question
BUSY_WAIT_S = 5.0  # while answers are written, which need the model more
CATCH_UP_S = 24 * 3600.0  # older turns are from before there was memory, or from when no model read them
CLOSE_S = 2.0


@dataclass(frozen=True, slots=True)
class RecallScope:
    """Whose memories, and for which session; `is_new` while it has no history."""

    owner: str
    session_id: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class RecalledMemory:
    """A memory and the probability that the question is about it; 1 if it applies to every question."""

    memory: Memory
    chance: float


@dataclass(frozen=True, slots=True)
class Recalled:
    """Best first. `in_history` are left out because all their turns are already in the prompt."""

    memories: tuple[RecalledMemory, ...] = ()
    in_history: tuple[Memory, ...] = ()


class MemoryRecall:
    """`embedding` is the embedder's name, by which its cosines are interpreted."""

    def __init__(
        self,
        records: MemoryRecords,
        settings: ConversationSettings,
        embedding: str,
    ) -> None:
        self.records = records
        self._when = settings.memory_recall
        self._names_person = settings.context_lines
        self._spread = spread_of(embedding)
        self._noting: set[asyncio.Task[None]] = set()

    async def has_any(self, owner: str) -> bool:
        """Whether to search at all: without a memory, turns cost nothing. Raises StoreUnavailableError."""
        return self._when != "off" and await self.records.is_used_by(owner)

    async def is_allowed_for(self, owner: str) -> bool:
        """Whether this owner's prompts may use other conversations. Raises StoreUnavailableError."""
        return self._when != "off" and (await self.records.switch_of(owner)).on

    def recalls_in(self, *, is_new: bool) -> bool:
        """Whether memories are recalled in such a session."""
        return is_new or self._when != "new_session"

    async def candidates(self, query: Query | None, scope: RecallScope) -> list[RecalledMemory]:
        """Return the memories to choose from, best first; without a query only those that always apply.

        Raises StoreUnavailableError.
        """
        if not self.recalls_in(is_new=scope.is_new):
            return []
        standing, asked = await asyncio.gather(self._standing(scope.owner), self._asked(query, scope.owner))
        own = scope.session_id if self._when != "always" else None
        ids = {each.memory.memory_id for each in standing}
        among = [*standing, *(each for each in asked if each.memory.memory_id not in ids)]
        return [each for each in among if not own or each.memory.session_id != own]

    def choose(self, candidates: Sequence[RecalledMemory], shown: frozenset[str]) -> Recalled:
        """Choose the best; none whose turns are all among `shown`, the turns of the history in the prompt."""
        repeated = [
            each.memory
            for each in candidates
            if each.memory.turn_ids and shown.issuperset(each.memory.turn_ids)
        ]
        ids = {memory.memory_id for memory in repeated}
        fresh = [each for each in candidates if each.memory.memory_id not in ids]
        return Recalled(tuple(fresh[:MAX_RECALLED]), tuple(repeated[:MAX_RECALLED]))

    def note_used(self, memories: Sequence[Memory]) -> None:
        """Record in the background that these memories are used in a prompt."""
        stored = [memory for memory in memories if memory.type is not MemoryType.EPISODE]
        task = asyncio.create_task(self._note(stored), name="memories used")
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)

    async def close(self) -> None:
        if self._noting:
            await asyncio.wait(self._noting, timeout=CLOSE_S)

    async def _standing(self, owner: str) -> list[RecalledMemory]:
        """Return what now applies to every question: the newest instructions, and the person's name."""
        now = utc_now_us()
        holding = [each for each in await self.records.standing(owner) if each.holds_at(now)]
        instructions = [each for each in holding if each.type is MemoryType.INSTRUCTION]
        names = [each for each in holding if each.type is not MemoryType.INSTRUCTION and self._names_person]
        chosen = [*instructions[: -MAX_INSTRUCTIONS - 1 : -1], *names[-1:]]
        return [RecalledMemory(memory, 1.0) for memory in chosen]

    async def _asked(self, query: Query | None, owner: str) -> list[RecalledMemory]:
        if query is None:
            return []
        form = query.forms[0]
        hits = await self.records.search(owner, form.dense, form.sparse, DEPTH, utc_now_us())
        relevance = MemoryRelevance(query.question, self._spread.unrelated, self._spread.width)
        chances = relevance.chances([(hit.memory, hit.cosine) for hit in hits])
        judged = [RecalledMemory(hit.memory, chance) for hit, chance in zip(hits, chances, strict=True)]
        good = [
            each
            for each in judged
            if each.chance >= THRESHOLD and each.memory.type is not MemoryType.INSTRUCTION
        ]
        return sorted(good, key=lambda each: -each.chance)

    async def _note(self, memories: Sequence[Memory]) -> None:
        now = utc_now_us()
        try:
            for memory in memories:
                fields = {"last_used_us": now, "uses": memory.uses + 1}
                await self.records.change(memory.memory_id, memory.owner, fields)
        except WenmaiError as error:  # a lost usage count is worth no more than a log line
            log.warning("memory_use_not_noted", error=error.code)


@dataclass(frozen=True, slots=True)
class Reading:
    """How a model reads turns: once a session has `min_turns` turns."""

    unread: UnreadTurns
    extraction: Extraction
    activity: Activity
    min_turns: int


class MemoryLearning:
    """`after_turn` returns at once. Nothing is learned from cancelled or failed turns, commands (executed
    elsewhere), and turns asked without memory or not to be remembered. `on`: MEMORY_RECALL is not off;
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

    def after_turn(self, turn: Turn, earlier: Iterable[object] = ()) -> None:
        """Learn from a turn; `earlier` are those before it on its branch, counted only as far as needed."""
        if not self._on or not teaches(turn):
            return
        drafts = list(stated(turn))
        if drafts:
            self._begin(self._learn(turn.owner, drafts))
        if self._reading is not None and _has_at_least(earlier, self._reading.min_turns - 1):
            self._read_later(self._reading, turn.owner, turn.session_id)

    async def catch_up(self) -> None:
        """At startup, read what an earlier process left unread, also in sessions that nobody continues."""
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
        """Wait briefly for writes to finish; the rest is read after the next start."""
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
        if crash is not None:  # a third-party model class may raise anything
            log.error("memory_learning_crashed", exc_info=crash)

    async def _learn(self, owner: str, drafts: Sequence[MemoryDraft]) -> None:
        try:
            if (await self._records.switch_of(owner)).on:
                await self._write(owner, drafts)
        except WenmaiError as error:  # the answer has been sent; only a memory is lost
            log.warning("memory_not_written", error=error.code)

    async def _read(self, reading: Reading, owner: str, session_id: str) -> None:
        """Read until nothing is unread; turns that end meanwhile are read in the next round."""
        key = (owner, session_id)
        try:
            while key in self._again:
                self._again.discard(key)
                async with self._slot:
                    await reading.activity.quiet(BUSY_WAIT_S)
                    while await self._read_some(reading, owner, session_id):
                        pass
        except WenmaiError as error:  # retried after the session's next turn
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
        except (WenmaiError, asyncio.CancelledError):  # no model answered, or the server is closing
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


def _has_at_least(each: Iterable[object], least: int) -> bool:
    return sum(1 for _ in islice(each, least)) == least


def teaches(turn: Turn) -> bool:
    asked = turn.request is None or turn.request.memory
    return asked and turn.status is TurnStatus.COMPLETED and not turn.command and not declines(turn.question)


def stated(turn: Turn) -> Iterator[MemoryDraft]:
    """Yield what the rules find in the question: a request to remember something, and statements."""
    request = explicit_request(turn.question)
    asked = [MemoryDraft(request.content, type_of(request.content))] if request and not request.forget else []
    for draft in (*asked, *self_statements(turn.question)):
        yield replace(draft, turn_ids=(turn.turn_id,), session_id=turn.session_id, said_us=turn.created_us)
