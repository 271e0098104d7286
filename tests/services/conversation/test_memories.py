"""Memories go with the turns that they came from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from services.conversation.memories import ForgottenMemories
from services.store.pages import IDS_AT_ONCE
from tests.services.conversation.stores import open_edge, open_memory, payloads, uid
from tests.services.operations.retention.parts import MEMORIES, Parts, a_memory, open_parts


@pytest.fixture(params=["edge", "reference"])
async def parts(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Parts]:
    opened = open_edge(tmp_path) if request.param == "edge" else open_memory()
    async with opened as store:
        yield await open_parts(store)


async def test_what_is_put_is_read_back_oldest_first_and_nobody_elses(parts: Parts) -> None:
    await parts.memories.put(a_memory(2, 1), [1.0, 0.0, 0.0, 0.0])
    await parts.memories.put(a_memory(1, 1, 2))
    await parts.memories.put(a_memory(3, 1, owner="somebody"))
    assert await parts.memories.of_owner("local") == [a_memory(1, 1, 2), a_memory(2, 1)]
    await parts.memories.put(replace(a_memory(1, 1), text="changed"))
    assert [memory.text for memory in await parts.memories.of_owner("local")] == ["changed", "fact 2"]


async def test_a_memory_goes_with_the_last_turn_that_it_came_from(parts: Parts) -> None:
    """Discriminates: a memory of several turns deleted with the first of them; ids of gone turns left."""
    for memory in (
        a_memory(1, 10),
        a_memory(2, 10, 11),
        a_memory(3, 11, 12),
        a_memory(4),
        a_memory(5, 10, 20),
    ):
        await parts.memories.put(memory)
    assert await parts.memories.forget_turns([uid(10), uid(11)]) == ForgottenMemories(2, 2)
    assert await parts.memories.of_owner("local") == [a_memory(3, 12), a_memory(4), a_memory(5, 20)]
    assert await parts.memories.forget_turns([uid(10), uid(11)]) == ForgottenMemories()
    assert await parts.memories.forget_turns([uid(12), uid(20)]) == ForgottenMemories(2, 0)
    assert await parts.memories.forget_turns([]) == ForgottenMemories()


async def test_a_memory_of_turns_in_two_chunks_is_deleted_once(parts: Parts) -> None:
    turns = range(1_000, 1_000 + 2 * IDS_AT_ONCE)
    await parts.memories.put(a_memory(1, *turns))
    await parts.memories.put(a_memory(2, 1, *turns))
    assert await parts.memories.forget_turns([uid(number) for number in turns]) == ForgottenMemories(1, 3)
    assert await parts.memories.of_owner("local") == [a_memory(2, 1)]


async def test_a_damaged_memory_is_left_out_and_still_forgotten(parts: Parts) -> None:
    await parts.memories.put(a_memory(1, 10))
    await parts.store.set_payload(MEMORIES, {"text": 7, "turn_ids": uid(10)}, points=[uid(1)])
    assert await parts.memories.of_owner("local") == []
    assert await parts.memories.forget_turns([uid(10)]) == ForgottenMemories(1, 0)
    assert await payloads(parts.store, MEMORIES) == {}
