from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import pytest

from api.turn.gathering import cancel_on_error
from api.turn.running import RunningTurns, StreamSlots
from core.errors import SessionBusyError, StoreUnavailableError, TooManyStreamsError
from services.store.clock import Activity


def test_the_number_in_all_and_that_of_one_key_are_bounded_and_come_back() -> None:
    slots = StreamSlots(3, per_owner=2)
    slots.take("a")
    with slots.slot("a"):
        with pytest.raises(TooManyStreamsError, match="This key"):
            slots.check("a")
        slots.take("b")
        with pytest.raises(TooManyStreamsError, match="Too many"):
            slots.check("c")
    slots.check("a")


def test_without_keys_only_the_number_in_all_counts() -> None:
    slots = StreamSlots(2)
    slots.take("local")
    slots.take("local")
    with pytest.raises(TooManyStreamsError):
        slots.check("local")


def test_beside_a_turn_of_its_session_another_begins_only_where_it_names_its_parent() -> None:
    """Discriminates: a second question that grows below a turn which is still being answered."""
    running = RunningTurns(StreamSlots(9), Activity())
    with running.claim("session", "a", exclusive=True):
        with pytest.raises(SessionBusyError), running.claim("session", "a", exclusive=True):
            pass
        with running.claim("session", "a", exclusive=False), running.claim("other", "a", exclusive=True):
            pass


def test_visitors_of_all_sites_together_have_half_of_the_seats() -> None:
    """Discriminates: a slot for each number that one client makes up, until no colleague finds one."""
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


async def test_what_goes_on_beside_a_search_ends_with_it_and_its_own_failure_is_heard() -> None:
    """Discriminates: a look into the history that goes on after its turn has failed; and a line of the loop
    about an exception that nobody retrieved."""
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
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
    assert unheard == []
