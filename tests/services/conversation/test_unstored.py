"""A turn that could not be written when it ended is written when the store is back."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from core.conversation.turns import Turn, TurnStatus
from core.errors import StoreUnavailableError
from services.adapters.edge.client import EdgeClient
from services.conversation.turns import TurnVectors
from services.conversation_manager import UnstoredTurns
from services.store.durable import LOCK_FILE, try_lock
from tests.services.conversation.stores import open_edge, turn_store, uid

RUNNING = Turn(uid(1), uid(9), "local", "What is lit?", 1, TurnStatus.RUNNING)
ANSWERED = replace(RUNNING, status=TurnStatus.COMPLETED, answer="The lamp.")
VECTORS = TurnVectors(question=[1.0, 0.0, 0.0, 0.0])


class DeadStore:
    """The store process is dead, and cannot be started again, within the body."""

    def __init__(self, store: EdgeClient, folder: Path) -> None:
        self._store, self._lock = store, folder / LOCK_FILE

    def __enter__(self) -> None:
        os.kill(self._store.process_id, signal.SIGKILL)
        self._descriptor = os.open(self._lock, os.O_RDWR)
        while not try_lock(self._descriptor):
            pass

    def __exit__(self, *error: object) -> None:
        os.close(self._descriptor)


async def test_it_is_written_whole_when_the_store_is_back(tmp_path: Path) -> None:
    """Discriminates: a turn that says running for ever."""
    async with open_edge(tmp_path) as store:
        assert isinstance(store, EdgeClient)
        turns = turn_store(store)
        unstored = UnstoredTurns(turns)
        await turns.put(RUNNING, TurnVectors())
        with DeadStore(store, tmp_path / "store"):
            with pytest.raises(StoreUnavailableError):
                await turns.put(ANSWERED, VECTORS)
            unstored.keep(ANSWERED, VECTORS)
            with pytest.raises(StoreUnavailableError):
                await unstored.store()
            assert len(unstored) == 1
        assert await unstored.store() == [ANSWERED]
        assert len(unstored) == 0
        assert await turns.get(RUNNING.turn_id) == ANSWERED
        (record,) = await store.retrieve("conversations", [RUNNING.turn_id], with_vectors=["question"])
        assert record.vector == {"question": VECTORS.question}


async def test_what_was_erased_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    """Discriminates: a write that makes the turn anew."""
    async with open_edge(tmp_path) as store:
        turns = turn_store(store)
        unstored = UnstoredTurns(turns)
        unstored.keep(ANSWERED)
        assert await unstored.store() == []
        assert len(unstored) == 0
        assert await turns.get(RUNNING.turn_id) is None


async def test_without_room_only_that_it_was_cut_is_kept(tmp_path: Path) -> None:
    """Discriminates: memory without a bound."""
    async with open_edge(tmp_path) as store:
        turns = turn_store(store)
        unstored = UnstoredTurns(turns, max_bytes=3_000)
        second = replace(ANSWERED, turn_id=uid(2), answer="long " * 600)
        await turns.put(RUNNING, TurnVectors())
        await turns.put(replace(RUNNING, turn_id=uid(2)), TurnVectors())
        unstored.keep(ANSWERED)
        unstored.keep(second)
        assert {turn.turn_id for turn in await unstored.store(uid(1))} == {uid(1)}
        assert len(unstored) == 1
        await unstored.store()
        cut = await turns.get(uid(2))
        assert cut is not None
        assert (cut.status, cut.answer) == (TurnStatus.INTERRUPTED, "")
