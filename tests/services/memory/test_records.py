"""Stored memories: read back, searched, ended, and deleted with the turns they are based on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from qdrant_client import models

from core.memory.record import Memory, MemoryType
from core.relevance.sparse import encode_query
from services.memory.records import MemoryRecords, MemorySwitch
from services.store.dialect import Point
from services.store.points import IDS_AT_ONCE
from tests.services.conversation.stores import open_edge, open_memory, payloads, uid
from tests.services.operations.retention.parts import MEMORIES, Parts, a_memory, open_parts


@pytest.fixture(params=["edge", "reference"])
async def parts(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Parts]:
    opened = open_edge(tmp_path) if request.param == "edge" else open_memory()
    async with opened as store:
        yield await open_parts(store)


async def test_memories_are_read_back_oldest_first_and_only_the_owners(parts: Parts) -> None:
    await parts.memories.put(a_memory(2, 1), [1.0, 0.0, 0.0, 0.0])
    await parts.memories.put(a_memory(1, 1, 2))
    await parts.memories.put(a_memory(3, 1, owner="somebody"))
    assert await parts.memories.of_owner("local") == [a_memory(1, 1, 2), a_memory(2, 1)]
    await parts.memories.put(replace(a_memory(1, 1), content="changed"))
    assert [memory.content for memory in await parts.memories.of_owner("local")] == ["changed", "fact 2"]


async def test_a_memory_is_deleted_with_its_last_source_turn(parts: Parts) -> None:
    """Discriminates: deleting a memory of several turns with the first of them; leaving ids of deleted
    turns."""
    for memory in (
        a_memory(1, 10),
        a_memory(2, 10, 11),
        a_memory(3, 11, 12),
        a_memory(4),
        a_memory(5, 10, 20),
    ):
        await parts.memories.put(memory)
    assert await parts.memories.forget_turns([uid(10), uid(11)]) == 2
    assert await parts.memories.of_owner("local") == [a_memory(3, 12), a_memory(4), a_memory(5, 20)]
    assert await parts.memories.forget_turns([uid(10), uid(11)]) == 0
    assert await parts.memories.forget_turns([uid(12), uid(20)]) == 2
    assert await parts.memories.forget_turns([]) == 0


async def test_a_memory_of_turns_in_two_chunks_is_deleted_once(parts: Parts) -> None:
    turns = range(1_000, 1_000 + 2 * IDS_AT_ONCE)
    await parts.memories.put(a_memory(1, *turns))
    await parts.memories.put(a_memory(2, 1, *turns))
    assert await parts.memories.forget_turns([uid(number) for number in turns]) == 1
    assert await parts.memories.of_owner("local") == [a_memory(2, 1)]


async def test_a_damaged_memory_is_omitted_and_can_still_be_forgotten(parts: Parts) -> None:
    await parts.memories.put(a_memory(1, 10))
    await parts.store.set_payload(MEMORIES, {"content": 7, "turn_ids": uid(10)}, points=[uid(1)])
    assert await parts.memories.of_owner("local") == []
    assert await parts.memories.forget_turns([uid(10)]) == 1
    assert await payloads(parts.store, MEMORIES) == {}


async def test_a_memory_of_an_earlier_version_is_read(parts: Parts) -> None:
    """Discriminates: not reading its field `text` as the content."""
    payload = {"memory_id": uid(1), "owner": "local", "session_id": uid(9), "text": "likes tea",
               "turn_ids": [uid(10)], "created_us": 7}  # fmt: skip
    await parts.store.upsert(MEMORIES, [Point(id=uid(1), vector={}, payload=payload)])
    (memory,) = await parts.memories.of_owner("local")
    before = Memory(uid(1), "local", "likes tea", turn_ids=(uid(10),), session_id=uid(9), created_us=7)
    assert memory == before
    assert (memory.type, memory.holds_at(8)) == (MemoryType.FACT, True)


async def test_search_finds_current_memories_of_the_owner_by_meaning_and_words(parts: Parts) -> None:
    """Discriminates: an ended memory, a future one, or somebody else's among the hits."""
    near, far = [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]
    said = replace(a_memory(1, 1), content="The user lives in Lisbon")
    await parts.memories.put(said, far)
    await parts.memories.put(replace(a_memory(2, 1), content="The user keeps bees"), near)
    await parts.memories.put(replace(a_memory(3, 1), content="The user lives in Oslo", valid_until=5), near)
    await parts.memories.put(replace(a_memory(4, 1), content="The user lives in Rome", valid_from=50), near)
    await parts.memories.put(replace(a_memory(5, 1, owner="somebody"), content="lives in Lisbon"), near)
    hits = await parts.memories.search("local", near, encode_query("lives in Lisbon"), 10, now_us=10)
    by_id = {hit.memory.memory_id: hit.cosine for hit in hits}
    assert by_id.keys() == {uid(1), uid(2)}
    assert by_id[uid(2)] == pytest.approx(1.0)
    at_any_time = await parts.memories.search("local", near, encode_query("lives"), 10)
    assert {hit.memory.memory_id for hit in at_any_time} == {uid(1), uid(2), uid(3), uid(4)}
    assert await parts.memories.search("local", None, encode_query("the of"), 10) == []


async def test_memories_are_listed_newest_first_in_pages_by_type_and_text(parts: Parts) -> None:
    ordered = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=False, range=True)
    await parts.store.create_payload_index(MEMORIES, "created_us", ordered)
    for number in range(1, 8):
        kind = MemoryType.PREFERENCE if number % 2 else MemoryType.FACT
        await parts.memories.put(replace(a_memory(number, 1), type=kind, content=f"Fact {number % 3}"))
    await parts.memories.set_switch("local", MemorySwitch(False, 9))
    first, before = await parts.memories.newest("local", 4)
    rest, end = await parts.memories.newest("local", 4, before)
    assert [memory.memory_id for memory in (*first, *rest)] == [uid(number) for number in range(7, 0, -1)]
    assert end is None
    typed, _ = await parts.memories.newest("local", 10, memory_type=MemoryType.FACT)
    assert [memory.memory_id for memory in typed] == [uid(6), uid(4), uid(2)]
    matching, _ = await parts.memories.newest("local", 10, text="ＦＡＣＴ 2")
    assert [memory.memory_id for memory in matching] == [uid(5), uid(2)]


async def test_an_owner_without_memories_is_cached_until_one_is_written(parts: Parts) -> None:
    """Discriminates: an owner's first memory hidden by the cache; a switch taken for a memory."""
    alone = MemoryRecords(parts.store, MEMORIES, alone=True)
    await alone.set_switch("local", MemorySwitch(True, 1))
    assert not await alone.is_used_by("local")
    await parts.memories.put(a_memory(1, 1))  # bypassing it: it need not notice
    assert not await alone.is_used_by("local")
    await alone.put(a_memory(2, 1))
    assert await alone.is_used_by("local")
    assert not await parts.memories.is_used_by("somebody")
    await alone.set_switch("local", MemorySwitch(False, 2))
    assert not await alone.is_used_by("local")


async def test_the_switch_is_stored_separately_from_the_memories(parts: Parts) -> None:
    assert await parts.memories.switch_of("local") == MemorySwitch()
    await parts.memories.put(a_memory(1, 1))
    await parts.memories.set_switch("local", MemorySwitch(False, 9))
    assert await parts.memories.switch_of("local") == MemorySwitch(False, 9)
    assert await parts.memories.switch_of("somebody") == MemorySwitch()
    assert await parts.memories.of_owner("local") == [a_memory(1, 1)]
    await parts.memories.delete([a_memory(1, 1).memory_id])
    assert await parts.memories.of_owner("local") == []
    assert await parts.memories.switch_of("local") == MemorySwitch(False, 9)


async def test_a_memory_neither_learned_nor_used_recently_expires(parts: Parts) -> None:
    """Discriminates: expiring one that is still used; expiring the switch."""
    await parts.memories.put(replace(a_memory(1, 1), created_us=5))
    await parts.memories.put(replace(a_memory(2, 1), created_us=5, last_used_us=20))
    await parts.memories.put(replace(a_memory(3, 1), created_us=15))
    await parts.memories.set_switch("local", MemorySwitch(False, 1))
    assert await parts.memories.expire(10) == 1
    assert [memory.memory_id for memory in await parts.memories.of_owner("local")] == [uid(2), uid(3)]
    assert not (await parts.memories.switch_of("local")).on


async def test_only_the_owner_can_change_a_memory(parts: Parts) -> None:
    await parts.memories.put(a_memory(1, 1))
    assert not await parts.memories.change(uid(1), "somebody", {"uses": 3})
    assert await parts.memories.change(uid(1), "local", {"uses": 3})
    assert [memory.uses for memory in await parts.memories.get_many([uid(1)], "local")] == [3]
    assert await parts.memories.get_many([uid(1)], "somebody") == []


async def test_permanent_memories_are_cached_by_id_and_an_erased_one_is_not_read(parts: Parts) -> None:
    """Discriminates: a text cached past its erasure, which another part of the server performs."""
    alone = MemoryRecords(parts.store, MEMORIES, alone=True)
    await alone.put(replace(a_memory(1, 1), type=MemoryType.INSTRUCTION))
    await alone.put(a_memory(2, 1))
    assert [memory.memory_id for memory in await alone.standing("local")] == [uid(1)]
    await alone.put(replace(a_memory(3, 2), type=MemoryType.INSTRUCTION))
    assert [memory.memory_id for memory in await alone.standing("local")] == [uid(1), uid(3)]
    await parts.memories.forget_turns([uid(1)])  # past it
    assert [memory.memory_id for memory in await alone.standing("local")] == [uid(3)]
