"""The words of a long answer are read in pieces, and are the same words.

Discriminates: reading 200,000 characters in one go, which blocks every other reader for 100 ms (F16).
"""

from __future__ import annotations

import asyncio
import time

import pytest

from core.conversation.turns import Turn, TurnStatus
from services.conversation.recall import read_words, words_of

LONG = {
    "English": "The store keeps every turn, its parent and what was cited. " * 2_000,
    "Chinese": "知识库保存每一轮对话，以及它的上一轮。引用的来源也一并保存。" * 3_000,
    "no end of a word": "x" * 120_000,
}


def turn(text: str) -> Turn:
    return Turn("t", "s", "local", "", 1, status=TurnStatus.COMPLETED, answer=text)


@pytest.mark.parametrize("kind", ["English", "Chinese"])
async def test_read_in_pieces_or_at_once_the_words_are_the_same(kind: str) -> None:
    assert await read_words(turn(LONG[kind])) == words_of(turn(LONG[kind]))


@pytest.mark.parametrize("kind", LONG)
async def test_other_tasks_run_while_a_long_answer_is_read(kind: str) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    began = time.perf_counter()
    await read_words(turn(LONG[kind]))
    beside.cancel()
    assert turns >= 20, f"only {turns} in {time.perf_counter() - began:.2f} s"


async def test_a_turn_without_an_answer_has_no_words() -> None:
    assert await read_words(Turn("t", "s", "local", "x " * 9_000, 1, status=TurnStatus.FAILED)) is None
