"""Writing through the gate: a draft becomes a memory, adds its turns to an existing one, or is refused."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import structlog

from core.conversation.recall import spread_of
from core.errors import MemoryRefusedError
from core.memory.gate import Neighbour, decide, is_same, plain_words, refused_always, statement_of
from core.memory.record import Memory, MemoryCopy, MemoryDraft, MemoryType
from core.relevance.sparse import encode_query
from services.memory.records import MemoryRecords
from services.store.clock import Clock, utc_now_us
from services.store.points import batches

log = structlog.get_logger()

NEIGHBOURS = 20
IMPORT_BATCH = 32
_IDS = uuid.UUID("3b0c8a54-2a5e-4f1e-9d55-6a7c1f2e8b40")

Embed = Callable[[Sequence[str]], Awaitable[list[list[float]]]]
"""Passages to vectors. Raises EmbeddingUnavailableError."""


def ignore_refusal(reason: str) -> None:
    """The default `on_refused`, which does nothing."""


@dataclass(frozen=True, slots=True)
class Written:
    """`is_new` is False if a memory said so already; `ended` are the memories it superseded."""

    memory: Memory
    is_new: bool
    ended: tuple[Memory, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """`known` counts drafts already stored, or repeated in the import; `refused` counts by reason."""

    imported: int
    known: int
    refused: dict[str, int]


class MemoryWriter:
    """One write per owner at a time in this process. Two workers writing at once can store duplicates, but
    never of the same turn: its memories have deterministic ids."""

    def __init__(
        self,
        records: MemoryRecords,
        embed: Embed,
        embedding: str,
        on_refused: Callable[[str], None] = ignore_refusal,
        clock: Clock = utc_now_us,
    ) -> None:
        self._records = records
        self._embed = embed
        self._spread = spread_of(embedding)
        self._on_refused = on_refused
        self._clock = clock
        self._locks: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()

    async def write(self, owner: str, draft: MemoryDraft) -> Written:
        """Write a draft. Raises MemoryRefusedError, EmbeddingUnavailableError, StoreUnavailableError."""
        draft = replace(
            draft, content=" ".join(draft.content.split()), said_us=draft.said_us or self._clock()
        )
        self.check(draft.content)
        async with self._exclusive(owner):
            (vector,) = await self._embed([draft.content])
            return await self._write(owner, draft, vector)

    async def edit(self, memory: Memory, content: str, memory_type: MemoryType) -> Memory:
        """Replace a memory by a person's own wording, which is compared with nothing. Raises as `write`."""
        content = " ".join(content.split())
        self.check(content)
        async with self._exclusive(memory.owner):
            (vector,) = await self._embed([content])
            changed = replace(memory, content=content, type=memory_type)
            await self._records.put(changed, vector)
            return changed

    async def import_many(self, owner: str, copies: Sequence[MemoryCopy]) -> ImportCounts:
        """Write many memories, compared by words and slot with stored ones and each other."""
        async with self._exclusive(owner):
            stored = await self._records.of_owner(owner)
            known, ids = KnownMemories(stored), {each.memory_id: each.memory_id for each in stored}
            refused: Counter[str] = Counter()
            fresh: dict[str, Memory] = {}
            for copy in copies:
                content = " ".join(copy.draft.content.split())
                if refusal := refused_always(content):
                    self.refuse(refusal)
                    refused[refusal] += 1
                elif not known.has(content):
                    memory = _memory_of(owner, copy, content, self._clock())
                    ids |= {copy.memory_id: memory.memory_id} if copy.memory_id else {}
                    fresh |= {each.memory_id: each for each in known.add(memory)}
            ids |= {memory_id: memory_id for memory_id in fresh}
            linked = [
                replace(each, superseded_by=ids.get(each.superseded_by or "")) for each in fresh.values()
            ]
            for batch in batches(linked, IMPORT_BATCH):
                vectors = await self._embed([memory.content for memory in batch])
                await self._records.put_many(list(zip(batch, vectors, strict=True)))
            new = len(known.added)
            return ImportCounts(new, len(copies) - new - refused.total(), dict(refused))

    def check(self, content: str) -> None:
        """Raises MemoryRefusedError."""
        if refusal := refused_always(content):
            self.refuse(refusal)
            raise MemoryRefusedError(refusal)

    def refuse(self, reason: str) -> None:
        self._on_refused(reason)
        log.info("memory_refused", reason=reason)

    async def _write(self, owner: str, draft: MemoryDraft, vector: Sequence[float]) -> Written:
        memory_id = _id_of(owner, draft)
        known = await self._records.get_many([memory_id], owner)
        if known:  # the same turn, read again after a crash
            return Written(known[0], is_new=False)
        decision = decide(draft, await self._neighbours(owner, draft.content, vector))
        if decision.same is not None:
            return Written(await self._confirmed(decision.same, draft), is_new=False)
        later = decision.ended_by
        memory = Memory(
            memory_id,
            owner,
            draft.content,
            draft.type,
            draft.turn_ids,
            draft.session_id,
            created_us=self._clock(),
            valid_from=draft.said_us,
            valid_until=later.valid_from if later else None,
            superseded_by=later.memory_id if later else None,
        )
        await self._records.put(memory, vector)
        for old in decision.ends:
            end = {"valid_until": memory.valid_from, "superseded_by": memory_id}
            await self._records.change(old.memory_id, owner, end)
        return Written(memory, is_new=True, ended=decision.ends)

    async def _confirmed(self, memory: Memory, draft: MemoryDraft) -> Memory:
        """Add the draft's turns to a memory that was stated again, and mark it as just used."""
        turn_ids = tuple(dict.fromkeys((*memory.turn_ids, *draft.turn_ids)))
        fresh = replace(memory, turn_ids=turn_ids, last_used_us=self._clock())
        fields = {"turn_ids": list(turn_ids), "last_used_us": fresh.last_used_us}
        await self._records.change(memory.memory_id, memory.owner, fields)
        return fresh

    async def _neighbours(self, owner: str, content: str, vector: Sequence[float]) -> list[Neighbour]:
        statement = statement_of(content)
        hits = await self._records.search(owner, vector, encode_query(content), NEIGHBOURS)
        near = {hit.memory.memory_id: Neighbour(hit.memory, self._z(hit.cosine)) for hit in hits}
        of_slot = await self._records.of_slot(owner, statement.slot) if statement else []
        return [*near.values(), *[Neighbour(each) for each in of_slot if each.memory_id not in near]]

    def _z(self, cosine: float | None) -> float | None:
        return None if cosine is None else (cosine - self._spread.unrelated) / self._spread.width

    @asynccontextmanager
    async def _exclusive(self, owner: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault(owner, asyncio.Lock())
        self._waiting[owner] += 1
        try:
            async with lock:
                yield
        finally:
            self._waiting[owner] -= 1
            if not self._waiting[owner]:
                del self._waiting[owner], self._locks[owner]


class KnownMemories:
    """An owner's memories during an import: their texts, and the current memory of each slot."""

    def __init__(self, memories: Sequence[Memory]) -> None:
        self._texts = {plain_words(memory.content) for memory in memories}
        self._current: dict[str, Memory] = {}
        self.added: set[str] = set()
        for memory in memories:
            self._add_to_slot(memory)

    def has(self, content: str) -> bool:
        statement = statement_of(content)
        current = self._current.get(statement.slot) if statement and statement.single else None
        return plain_words(content) in self._texts or bool(
            current and is_same(content, current.content, None)
        )

    def add(self, memory: Memory) -> list[Memory]:
        """Add a memory. Returns what to write: itself, and a memory that it ends."""
        self._texts.add(plain_words(memory.content))
        self.added.add(memory.memory_id)
        return self._add_to_slot(memory)

    def _add_to_slot(self, memory: Memory) -> list[Memory]:
        statement = statement_of(memory.content)
        if statement is None or not statement.single or memory.valid_until is not None:
            return [memory]
        other = self._current.get(statement.slot)
        if other is None:
            self._current[statement.slot] = memory
            return [memory]
        older, newer = sorted((other, memory), key=lambda each: each.valid_from)
        older = replace(older, valid_until=newer.valid_from, superseded_by=newer.memory_id)
        self._current[statement.slot] = newer
        return [older, newer]


def _memory_of(owner: str, copy: MemoryCopy, content: str, now_us: int) -> Memory:
    return Memory(
        str(uuid.uuid4()),
        owner,
        content,
        copy.draft.type,
        created_us=now_us,
        valid_from=copy.draft.said_us or now_us,
        valid_until=copy.until_us,
        superseded_by=copy.superseded_by or None,
    )


def _id_of(owner: str, draft: MemoryDraft) -> str:
    """Return the same id for the same words of the same turn, so that a turn read twice writes once."""
    if not draft.turn_ids:
        return str(uuid.uuid4())
    return str(uuid.uuid5(_IDS, "\n".join((owner, draft.turn_ids[0], draft.content))))
