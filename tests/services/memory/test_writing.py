"""Writing through the gate on a real store: new, repeated, contradicting and refused memories."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from api.memories import MemoriesHandler
from core.errors import MemoryRefusedError
from core.memory.record import Memory, MemoryDraft
from tests.services.conversation.stores import open_edge, open_memory, uid
from tests.services.memory.parts import make_collection, memories_of

NOW = 1_000


@dataclass
class Bench:
    memories: MemoriesHandler
    refused: list[str] = field(default_factory=list)

    async def write(self, content: str, turn: int, said_us: int = NOW, owner: str = "local") -> bool:
        draft = MemoryDraft(content, turn_ids=(uid(turn),), session_id=uid(100), said_us=said_us)
        return (await self.memories.writer.write(owner, draft)).is_new

    async def all(self) -> list[Memory]:
        memories, _ = await self.memories.page("local", 100)
        return memories

    async def current(self) -> list[str]:
        memories, _ = await self.memories.page("local", 100, current=True)
        return sorted(memory.content for memory in memories)


@pytest.fixture(params=["edge", "reference"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    opened = open_edge(tmp_path) if request.param == "edge" else open_memory()
    async with opened as store:
        await make_collection(store)
        refused: list[str] = []
        yield Bench(memories_of(store, refused.append), refused)


async def test_the_same_fact_gains_a_turn_and_no_second_record(bench: Bench) -> None:
    """Discriminates: a point for each time something is said."""
    assert await bench.write("用户的名字是张三", 1)
    assert not await bench.write("我叫张三。", 2)
    assert not await bench.write("用户叫张三", 2)
    (memory,) = await bench.all()
    assert memory.turn_ids == (uid(1), uid(2))


async def test_a_contradiction_ends_the_old_memory_and_records_its_replacement(bench: Bench) -> None:
    await bench.write("用户的名字是张三", 1, 5)
    await bench.write("用户的名字是李四", 2, 9)
    assert await bench.current() == ["用户的名字是李四"]
    new, old = await bench.all()
    assert (old.valid_from, old.valid_until, old.superseded_by) == (5, 9, new.memory_id)
    await bench.write("用户的名字是张三", 3, 12)  # and back again
    assert await bench.current() == ["用户的名字是张三"]
    assert len(await bench.all()) == 3


async def test_turns_read_late_restore_nothing_old(bench: Bench) -> None:
    await bench.write("用户的名字是李四", 2, 9)
    await bench.write("用户的名字是张三", 1, 5)
    assert await bench.current() == ["用户的名字是李四"]
    old = next(memory for memory in await bench.all() if memory.content.endswith("张三"))
    assert (old.valid_from, old.valid_until) == (5, 9)


async def test_reading_a_turn_again_writes_nothing_new(bench: Bench) -> None:
    """Discriminates: a crash between the write and its note that duplicates what was learned."""
    await bench.write("用户的名字是张三", 1, 5)
    await bench.write("用户的名字是李四", 2, 9)
    assert not await bench.write("用户的名字是张三", 1, 5)
    assert await bench.current() == ["用户的名字是李四"]
    assert len(await bench.all()) == 2


async def test_owners_are_separate(bench: Bench) -> None:
    await bench.write("用户的名字是张三", 1)
    assert await bench.write("用户的名字是张三", 1, owner="somebody")
    assert await bench.write("用户的名字是李四", 2, owner="somebody")
    assert await bench.current() == ["用户的名字是张三"]


async def test_refused_memories_are_counted_and_not_written(bench: Bench) -> None:
    for content in ("我的密码是hunter2", " \n ", "长" * 501):
        with pytest.raises(MemoryRefusedError):
            await bench.write(content, 1)
    assert bench.refused == ["secret", "empty", "too_long"]
    assert await bench.all() == []


async def test_concurrent_writes_are_compared_with_each_other(bench: Bench) -> None:
    """Discriminates: ten writers that each check before any has written."""
    await asyncio.gather(*(bench.write("用户的名字是张三", number) for number in range(1, 11)))
    (memory,) = await bench.all()
    assert set(memory.turn_ids) == {uid(number) for number in range(1, 11)}


async def test_only_memories_named_by_the_words_are_forgotten(bench: Bench) -> None:
    await bench.write("The user's name is Alex", 1)
    await bench.write("The user lives in Berlin", 2)
    await bench.write("The user keeps bees in Berlin", 3)
    forgotten = await bench.memories.forget("local", "my address")
    assert [memory.content for memory in forgotten] == ["The user lives in Berlin"]
    assert await bench.memories.forget("local", "the of my") == []
    assert await bench.memories.forget("somebody", "bees") == []
    forgotten = await bench.memories.forget("local", "bees Berlin")
    assert [memory.content for memory in forgotten] == ["The user keeps bees in Berlin"]
    assert await bench.current() == ["The user's name is Alex"]
