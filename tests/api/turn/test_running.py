from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from api.turn.gathering import cancel_on_error
from api.turn.run import TurnRun
from api.turn.running import RunningTurns, StreamSlots
from core.errors import SessionBusyError, StoreUnavailableError, TooManyStreamsError
from services.store.clock import Activity
from tests.support.servers.app import make_settings, open_app, scripted
from tests.support.waiting import until


def test_the_limits_in_total_and_per_key_hold_and_slots_are_returned() -> None:
    slots = StreamSlots(3, per_owner=2)
    slots.take("a")
    with slots.slot("a"):
        with pytest.raises(TooManyStreamsError, match="This key"):
            slots.check("a")
        slots.take("b")
        with pytest.raises(TooManyStreamsError, match="Too many"):
            slots.check("c")
    slots.check("a")


def test_without_keys_only_the_total_limit_counts() -> None:
    slots = StreamSlots(2)
    slots.take("local")
    slots.take("local")
    with pytest.raises(TooManyStreamsError):
        slots.check("local")


def test_while_a_turn_runs_its_session_accepts_another_only_if_it_names_its_parent() -> None:
    """Discriminates: a second question that grows below a turn which is still being answered."""
    running = RunningTurns(StreamSlots(9), Activity())
    with running.claim("session", "a", exclusive=True):
        with pytest.raises(SessionBusyError), running.claim("session", "a", exclusive=True):
            pass
        with running.claim("session", "a", exclusive=False), running.claim("other", "a", exclusive=True):
            pass


def test_visitors_of_all_sites_together_get_half_of_the_slots() -> None:
    """Discriminates: a slot for each number that one client invents, until no colleague finds one."""
    slots = StreamSlots(5, per_owner=5)
    with slots.slot("site-1"):
        slots.take("site-2")
        with pytest.raises(TooManyStreamsError, match="Too many"):
            slots.check("site-3")
        for _ in range(3):
            slots.check("key-a")
            slots.take("key-a")
        with pytest.raises(TooManyStreamsError):
            slots.check("key-a")
    slots.check("site-3")
    StreamSlots(1).check("site-1")


async def test_work_beside_a_search_ends_with_it_and_its_own_failure_is_retrieved() -> None:
    """Discriminates: a look into the history that continues after its turn has failed; and asyncio's log line
    about an exception that was never retrieved."""
    unretrieved: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unretrieved.append(context))
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waiting")

    async def fails() -> None:
        raise StoreUnavailableError("The history cannot be read.")

    async def search(*work: Coroutine[Any, Any, None]) -> None:
        async with cancel_on_error(asyncio.gather(*work)):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            raise StoreUnavailableError("The search failed.")

    for work in (waits, fails):
        outcomes = await asyncio.gather(search(work()), return_exceptions=True)
        assert [str(each) for each in outcomes] == ["The search failed."]
        assert ended == ["waiting"]
        del outcomes
        gc.collect()
    assert unretrieved == []


async def test_an_ended_turn_leaves_memory_without_a_garbage_collection(tmp_path: Path) -> None:
    """Discriminates: a turn that its parts refer to; its passages and prompt wait for a full collection."""
    settings = make_settings(tmp_path, models={"llms": {"default": scripted("Twenty days [1].")}})
    async with open_app(settings) as app:
        await app.add_text("leave.md", "Annual leave is twenty days.")
        gc.collect()
        gc.disable()
        try:
            assert "Twenty" in (await app.ask("How long is annual leave?")).answer
            await until(lambda: TurnRun not in map(type, gc.get_objects()))
        finally:
            gc.enable()
