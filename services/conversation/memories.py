"""Memories as they are stored: facts kept across sessions, each with the turns that it came from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from services.store.dialect import Filter, Point, Record, VectorStore
from services.store.filters import any_of, by_ids, equals, has_id
from services.store.pages import batches, scroll_all

log = structlog.get_logger()

DENSE = "dense"


@dataclass(frozen=True, slots=True)
class Memory:
    """A fact of an owner. `turn_ids` are the turns it was derived from, none of them gone."""

    memory_id: str
    owner: str
    session_id: str
    text: str
    turn_ids: tuple[str, ...]
    created_us: int


@dataclass(frozen=True, slots=True)
class ForgottenMemories:
    """`changed` remain: they came from other turns, too."""

    deleted: int = 0
    changed: int = 0


class MemoryRecords:
    """The memories collection. The payload of a point is the fields of Memory; its id is the memory's."""

    def __init__(self, store: VectorStore, collection: str) -> None:
        self._store = store
        self._collection = collection

    async def put(self, memory: Memory, vector: Sequence[float] | None = None) -> None:
        """Write the whole memory, over whatever was there. Raises StoreUnavailableError."""
        named: dict[str, Any] = {} if vector is None else {DENSE: list(vector)}
        point = Point(id=memory.memory_id, vector=named, payload=asdict(memory))
        await self._store.upsert(self._collection, [point])

    async def of_owner(self, owner: str) -> list[Memory]:
        """Oldest first; one that cannot be read is left out."""
        of_owner = Filter(must=[equals("owner", owner)])
        memories = [_read(each) async for each in scroll_all(self._store, self._collection, of_owner)]
        return sorted([memory for memory in memories if memory is not None], key=lambda each: each.created_us)

    async def forget_turns(self, turn_ids: Collection[str]) -> ForgottenMemories:
        """Delete what was derived from these turns alone; the others came from them no more.

        Raises StoreUnavailableError; what was done until then is complete, and the rest is done by a repeat.
        """
        ids = list(turn_ids)
        done = [await self._forget(batch) for batch in batches(ids)]
        return ForgottenMemories(sum(each.deleted for each in done), sum(each.changed for each in done))

    async def _forget(self, turn_ids: list[str]) -> ForgottenMemories:
        from_them = any_of("turn_ids", turn_ids)
        deleted, changed = 0, 0
        among = scroll_all(self._store, self._collection, Filter(must=[from_them]))
        for record in [record async for record in among]:
            left = _left(record, frozenset(turn_ids))
            if left:
                await self._store.set_payload(self._collection, {"turn_ids": left}, points=_one(record))
                changed += 1
            else:
                await self._store.delete(self._collection, by_ids([record.id]))
                deleted += 1
        return ForgottenMemories(deleted, changed)


class _Payload(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    owner: str
    session_id: str = ""
    text: str
    turn_ids: list[str] = []
    created_us: int = 0


def _one(record: Record) -> Filter:
    """By filter: one that is erased meanwhile is no mistake."""
    return Filter(must=[has_id([record.id])])


def _left(record: Record, erased: frozenset[str]) -> list[str]:
    """In a damaged record a single id may stand where a list belongs."""
    stored = (record.payload or {}).get("turn_ids")
    return [each for each in stored if each not in erased] if isinstance(stored, list) else []


def _read(record: Record) -> Memory | None:
    try:
        stored = _Payload.model_validate(record.payload or {})
    except ValidationError as error:
        log.warning("memory_unreadable", memory_id=str(record.id), errors=error.error_count())
        return None
    return Memory(memory_id=str(record.id), **stored.model_dump() | {"turn_ids": tuple(stored.turn_ids)})
