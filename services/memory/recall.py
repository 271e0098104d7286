"""Recall: what of an owner's memories a question is told, each turn anew."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from config.settings import ConversationSettings
from core.conversation.recall import spread_of
from core.errors import WenmaiError
from core.memory.record import Memory, MemoryType
from core.memory.relevance import THRESHOLD, MemoryRelevance
from core.relevance.query import Query
from services.memory.records import MemoryRecords
from services.store.clock import Clock, utc_now_us

log = structlog.get_logger()

DEPTH = 24  # of each list, what no longer holds among it
MOST_TOLD = 5  # by one prompt
MOST_INSTRUCTIONS = 2  # of the places: they hold whatever is asked
CLOSE_S = 2.0


@dataclass(frozen=True, slots=True)
class RecallScope:
    """Whose memories, and where they are told: `is_new` while the session has no history."""

    owner: str
    session_id: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class RecalledMemory:
    """A memory and the probability that the question is about it; 1 for what holds whatever is asked."""

    memory: Memory
    chance: float


@dataclass(frozen=True, slots=True)
class Recalled:
    """Best first. `in_history` would have been told, but all its turns stand in the prompt."""

    memories: tuple[RecalledMemory, ...] = ()
    in_history: tuple[Memory, ...] = ()


class MemoryRecall:
    """`embedding` is the embedder's name, which says what its cosines mean."""

    def __init__(
        self,
        records: MemoryRecords,
        settings: ConversationSettings,
        embedding: str,
        clock: Clock = utc_now_us,
    ) -> None:
        self.records = records
        self._when = settings.memory_recall
        self._names_person = settings.context_lines
        self._spread = spread_of(embedding)
        self._clock = clock
        self._noting: set[asyncio.Task[None]] = set()

    async def has_any(self, owner: str) -> bool:
        """Whether looking is worth it: without a memory, turns cost nothing. Raises StoreUnavailableError."""
        return self._when != "off" and await self.records.is_used_by(owner)

    async def is_wanted_by(self, owner: str) -> bool:
        """Whether this owner may be told of other conversations. Raises StoreUnavailableError."""
        return self._when != "off" and (await self.records.switch_of(owner)).on

    def suits(self, *, is_new: bool) -> bool:
        """Whether anything is told in such a session."""
        return is_new or self._when != "new_session"

    async def candidates(self, query: Query | None, scope: RecallScope) -> list[RecalledMemory]:
        """What may be told, best first, more than has a place; without a query only what always holds.

        Raises StoreUnavailableError.
        """
        if not self.suits(is_new=scope.is_new):
            return []
        standing, asked = await asyncio.gather(self._standing(scope.owner), self._asked(query, scope.owner))
        own = scope.session_id if self._when != "always" else None
        ids = {each.memory.memory_id for each in standing}
        among = [*standing, *(each for each in asked if each.memory.memory_id not in ids)]
        return [each for each in among if not own or each.memory.session_id != own]

    def choose(self, candidates: Sequence[RecalledMemory], shown: frozenset[str]) -> Recalled:
        """As many as have a place; none whose turns are all among those `shown`, the history that is sent."""
        repeated = [
            each.memory
            for each in candidates
            if each.memory.turn_ids and shown.issuperset(each.memory.turn_ids)
        ]
        ids = {memory.memory_id for memory in repeated}
        fresh = [each for each in candidates if each.memory.memory_id not in ids]
        return Recalled(tuple(fresh[:MOST_TOLD]), tuple(repeated[:MOST_TOLD]))

    def note_used(self, memories: Sequence[Memory]) -> None:
        """They stand in a prompt; noted beside the answer."""
        stored = [memory for memory in memories if memory.type is not MemoryType.EPISODE]
        task = asyncio.create_task(self._note(stored), name="memories used")
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)

    async def close(self) -> None:
        if self._noting:
            await asyncio.wait(self._noting, timeout=CLOSE_S)

    async def _standing(self, owner: str) -> list[RecalledMemory]:
        """What holds whatever is asked, as of now: the newest instructions, and the person's name."""
        now = self._clock()
        holding = [each for each in await self.records.standing(owner) if each.holds_at(now)]
        instructions = [each for each in holding if each.type is MemoryType.INSTRUCTION]
        names = [each for each in holding if each.type is not MemoryType.INSTRUCTION and self._names_person]
        chosen = [*instructions[: -MOST_INSTRUCTIONS - 1 : -1], *names[-1:]]
        return [RecalledMemory(memory, 1.0) for memory in chosen]

    async def _asked(self, query: Query | None, owner: str) -> list[RecalledMemory]:
        if query is None:
            return []
        form = query.forms[0]
        hits = await self.records.search(owner, form.dense, form.sparse, DEPTH, self._clock())
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
        now = self._clock()
        try:
            for memory in memories:
                fields = {"last_used_us": now, "uses": memory.uses + 1}
                await self.records.change(memory.memory_id, memory.owner, fields)
        except WenmaiError as error:  # how often it was used is not worth more than a line
            log.warning("memory_use_not_noted", error=error.code)
