"""Stored memories, and each owner's on/off switch beside them."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cachetools import LRUCache
from pydantic import TypeAdapter

from core.memory.gate import NAME, statement_of
from core.memory.record import Memory, MemoryType
from core.relevance.sparse import SparseTerms, encode_document
from core.text import fold_case
from services.store.collections import SPARSE
from services.store.dialect import Condition, Filter, Point, QueryRequest, Record, ScoredPoint, VectorStore
from services.store.points import (
    PAGE,
    any_of,
    batches,
    by_ids,
    equals,
    has_id,
    in_range,
    matching,
    newest_first,
    read_or_none,
    scroll_all,
    sparse_vector,
)

DENSE = "dense"
CACHED_OWNERS = 10_000
_SWITCHES = uuid.UUID("7d0c3f52-3f0a-4d6a-8b7e-5d7a3c1e9f10")
_MEMORY = TypeAdapter(Memory)
IS_SWITCH = equals("is_switch", True)
_IS_INSTRUCTION = equals("type", MemoryType.INSTRUCTION.value)


@dataclass(frozen=True, slots=True)
class MemorySwitch:
    """Whether an owner wants anything remembered, and since when (0: never changed)."""

    on: bool = True
    changed_us: int = 0


@dataclass(frozen=True, slots=True)
class MemoryHit:
    """A search result; `cosine` is None if its vector was not among the nearest."""

    memory: Memory
    cosine: float | None


class MemoryRecords:
    """The memories collection. A point's payload has the fields of Memory and the kind of statement (`slot`);
    its id is the memory's. Every read is limited to one owner.

    `alone`: nobody else writes to the store, so whether an owner has memories can be cached.
    """

    def __init__(self, store: VectorStore, collection: str, *, alone: bool = False) -> None:
        self._store = store
        self._collection = collection
        self._alone = alone
        self._used: LRUCache[str, bool] = LRUCache(CACHED_OWNERS)
        self._standing: LRUCache[str, list[str]] = LRUCache(CACHED_OWNERS)  # ids: an erased one is not read

    async def put(self, memory: Memory, vector: Sequence[float] | None = None) -> None:
        """Write the whole memory, replacing what was stored. Raises StoreUnavailableError."""
        await self.put_many([(memory, vector)])

    async def put_many(self, memories: Sequence[tuple[Memory, Sequence[float] | None]]) -> None:
        points = [_point(memory, vector) for memory, vector in memories]
        self.forget_known()
        await self._store.upsert(self._collection, points)
        self.forget_known()  # a concurrent reader may have cached that there are none

    def forget_known(self) -> None:
        """Clear the caches; to be called after writing to the collection without these records."""
        self._used.clear()
        self._standing.clear()

    async def is_used_by(self, owner: str) -> bool:
        """Whether this owner may have a memory and has not switched them off."""
        known = self._used.get(owner)
        if known is not None:
            return known
        # only by the owner index: a condition on other fields reads every point (40 ms for ten thousand)
        stored = (await self._store.count(self._collection, Filter(must=[equals("owner", owner)]))).count
        switches = await self._switches(owner) if stored else []
        used = stored > len(switches) and all(switch.on for switch in switches)
        if self._alone:
            self._used[owner] = used
        return used

    async def get_many(self, memory_ids: Sequence[str], owner: str) -> list[Memory]:
        """Return memories in this order, without missing or unreadable ones and those of other owners."""
        records = await self._store.retrieve(self._collection, list(memory_ids)) if memory_ids else []
        memories = {str(record.id): _read(record) for record in records}
        own = [memories.get(memory_id) for memory_id in memory_ids]
        return [memory for memory in own if memory is not None and memory.owner == owner]

    async def of_owner(self, owner: str, *conditions: Condition) -> list[Memory]:
        """Return the owner's memories, oldest first, without unreadable ones."""
        scrolled = scroll_all(self._store, self._collection, _of(owner, *conditions))
        memories = [_read(each) async for each in scrolled]
        return sorted([memory for memory in memories if memory is not None], key=lambda each: each.created_us)

    async def standing(self, owner: str) -> list[Memory]:
        """Return instructions and names, oldest first; their ids are cached."""
        ids = self._standing.get(owner)
        if ids is not None:
            return await self.get_many(ids, owner)
        memories = await self.of_owner(owner, Filter(should=[_IS_INSTRUCTION, equals("slot", NAME)]))
        if self._alone:
            self._standing[owner] = [memory.memory_id for memory in memories]
        return memories

    async def of_slot(self, owner: str, slot: str) -> list[Memory]:
        """Return all memories of this kind of statement, oldest first."""
        return await self.of_owner(owner, equals("slot", slot))

    async def superseded_by(self, owner: str, memory_ids: Collection[str]) -> list[Memory]:
        """Return the memories that one of these superseded, oldest first."""
        return await self.of_owner(owner, any_of("superseded_by", memory_ids))

    async def newest(
        self,
        owner: str,
        limit: int,
        before_us: int | None = None,
        memory_type: MemoryType | None = None,
        text: str = "",
        now_us: int | None = None,
    ) -> tuple[list[Memory], int | None]:
        """Return up to `limit` memories, newest first, and where the next page begins, None at the end. Only
        those that contain `text` (ignoring case and width) and, with `now_us`, are valid then."""
        memories: list[Memory] = []
        async for memory in self._newest(owner, before_us, memory_type):
            if len(memories) == limit:
                return memories, memories[-1].created_us
            holds = now_us is None or memory.holds_at(now_us)
            if holds and fold_case(text) in fold_case(memory.content):
                memories.append(memory)
        return memories, None

    async def _newest(
        self, owner: str, before_us: int | None, memory_type: MemoryType | None
    ) -> AsyncIterator[Memory]:
        conditions = [equals("type", memory_type.value)] if memory_type else []
        while True:
            before = [in_range("created_us", lt=before_us)] if before_us is not None else []
            records, _ = await self._store.scroll(
                self._collection,
                scroll_filter=_of(owner, *conditions, *before),
                limit=PAGE,
                order_by=newest_first("created_us"),
            )
            for record in records:
                memory = _read(record)
                if memory is not None:
                    yield memory
            if len(records) < PAGE:
                return
            before_us = int((records[-1].payload or {}).get("created_us", 0))

    async def search(
        self,
        owner: str,
        vector: Sequence[float] | None,
        words: SparseTerms,
        limit: int,
        now_us: int | None = None,
    ) -> list[MemoryHit]:
        """Search by vector and by words, each up to `limit`; with `now_us`, drop hits not valid then."""
        # only by the owner index: any other condition would be checked for every one of the owner's memories
        # (80 ms for 5,000). A switch has no vector, so it is never a hit.
        requests = _requests(vector, words, Filter(must=[equals("owner", owner)]), limit)
        if not requests:
            return []
        responses = await self._store.query_batch_points(self._collection, requests)
        cosines: dict[str, float] = {}
        memories: dict[str, Memory] = {}
        for request, response in zip(requests, responses, strict=True):
            for point in response.points:
                if request.using == DENSE:
                    cosines[str(point.id)] = point.score
                memory = memories.get(str(point.id)) or _read(point)
                if memory is not None:
                    memories[str(point.id)] = memory
        return [
            MemoryHit(memory, cosines.get(memory_id))
            for memory_id, memory in memories.items()
            if now_us is None or memory.holds_at(now_us)
        ]

    async def change(self, memory_id: str, owner: str, fields: dict[str, Any]) -> bool:
        """Write only these fields. Returns False if the owner's memory no longer exists."""
        mine = Filter(must=[has_id([memory_id]), equals("owner", owner)])
        if not (await self._store.count(self._collection, mine)).count:
            return False
        await self._store.set_payload(self._collection, fields, points=mine)
        return True

    async def delete(self, memory_ids: Sequence[str]) -> None:
        for batch in batches(list(memory_ids)):
            await self._store.delete(self._collection, by_ids(batch))
        self.forget_known()

    async def count_aged(self, before_us: int) -> int:
        """Count all owners' memories neither learned nor used since."""
        return (await self._store.count(self._collection, _aged(before_us))).count

    async def expire(self, before_us: int) -> int:
        """Delete all owners' memories neither learned nor used since. Returns how many."""
        number = await self.count_aged(before_us)
        if number:
            await self._store.delete(self._collection, matching(_aged(before_us)))
            self.forget_known()
        return number

    async def switch_of(self, owner: str) -> MemorySwitch:
        return next(iter(await self._switches(owner)), MemorySwitch())

    async def _switches(self, owner: str) -> list[MemorySwitch]:
        """Return the switch that the owner has set, if any."""
        records = await self._store.retrieve(self._collection, [_switch_id(owner)])
        payloads = [record.payload or {} for record in records]
        return [MemorySwitch(bool(each.get("on", True)), int(each.get("created_us", 0))) for each in payloads]

    async def set_switch(self, owner: str, switch: MemorySwitch) -> None:
        self._used.pop(owner, None)
        payload = {"owner": owner, "is_switch": True, "on": switch.on, "created_us": switch.changed_us}
        await self._store.upsert(self._collection, [Point(id=_switch_id(owner), vector={}, payload=payload)])
        self._used.pop(owner, None)

    async def forget_turns(self, turn_ids: Collection[str]) -> int:
        """Delete memories derived only from these turns; remove the turns from the others. Returns how many
        were deleted.

        Raises StoreUnavailableError; what was done by then is complete, and a repeat does the rest.
        """
        return sum([await self._forget(batch) for batch in batches(list(turn_ids))])

    async def _forget(self, turn_ids: list[str]) -> int:
        deleted = 0
        among = scroll_all(self._store, self._collection, Filter(must=[any_of("turn_ids", turn_ids)]))
        for record in [record async for record in among]:
            rest = _remaining_turns(record, frozenset(turn_ids))
            if rest:
                await self._store.set_payload(self._collection, {"turn_ids": rest}, points=_one(record))
            else:
                await self._store.delete(self._collection, by_ids([record.id]))
                deleted += 1
        return deleted


def _point(memory: Memory, vector: Sequence[float] | None) -> Point:
    statement = statement_of(memory.content)
    named: dict[str, Any] = {} if vector is None else {DENSE: list(vector)}
    words = encode_document(memory.content)
    if words.indices:
        named[SPARSE] = sparse_vector(words)
    payload = {**asdict(memory), "slot": statement.slot if statement else ""}
    return Point(id=memory.memory_id, vector=named, payload=payload)


def _of(owner: str, *conditions: Condition) -> Filter:
    return Filter(must=[equals("owner", owner), *conditions], must_not=[IS_SWITCH])


def _aged(before_us: int) -> Filter:
    return Filter(
        must=[in_range("created_us", lt=before_us)],
        must_not=[IS_SWITCH, in_range("last_used_us", gte=before_us)],
    )


def _requests(
    vector: Sequence[float] | None, words: SparseTerms, point_filter: Filter, limit: int
) -> list[QueryRequest]:
    searched: list[tuple[str, Any]] = [(DENSE, list(vector))] if vector is not None else []
    if words.indices:
        searched.append((SPARSE, sparse_vector(words)))
    return [
        QueryRequest(query=query, using=name, filter=point_filter, limit=limit, with_payload=True)
        for name, query in searched
    ]


def _switch_id(owner: str) -> str:
    return str(uuid.uuid5(_SWITCHES, owner))


def _one(record: Record) -> Filter:
    """Select by filter, so that a record erased meanwhile is not an error."""
    return Filter(must=[has_id([record.id])])


def _remaining_turns(record: Record, erased: frozenset[str]) -> list[str]:
    """Return the record's other turns; a damaged record may have a single id instead of a list."""
    stored = (record.payload or {}).get("turn_ids")
    return [each for each in stored if each not in erased] if isinstance(stored, list) else []


def _read(record: Record | ScoredPoint) -> Memory | None:
    """Parse a memory. An earlier version wrote `text` for `content`, and only owner, session, turns, time."""
    payload = record.payload or {}
    memory_id, content = str(record.id), payload.get("content", payload.get("text"))
    stored = {**payload, "memory_id": memory_id, "content": content}
    return read_or_none(_MEMORY, stored, "memory_unreadable", memory_id=memory_id)
