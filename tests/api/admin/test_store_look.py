from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from api.admin.store_look import StoreFigures, StoreLook
from core.errors import StoreUnavailableError, WenmaiError
from tests.support.waiting import until


@dataclass
class Store:
    """Says what it is set to; `away` raises, `silent` never answers."""

    turns: int = 1
    away: WenmaiError | None = None
    silent: bool = False
    payloads: dict[str, str] = field(default_factory=dict)
    asked: int = 0

    async def problems(self) -> dict[str, str]:
        self.asked += 1
        if self.silent:
            await asyncio.Event().wait()
        return self.payloads

    async def figures(self) -> StoreFigures:
        if self.away:
            raise self.away
        return StoreFigures(self.turns, 0, 0, 0)


async def test_beginning_to_look_waits_for_nothing_and_the_next_scrape_has_the_figures() -> None:
    look = StoreLook(Store(turns=7))
    look.begin()
    assert look.figures is None
    await until(lambda: look.figures is not None)
    assert look.figures is not None
    assert look.figures.turns == 7


async def test_many_scrapes_ask_the_store_once_in_a_while() -> None:
    """Discriminates: looking at every scrape."""
    store = Store()
    look = StoreLook(store, every_s=60)
    for _ in range(20):
        look.begin()
        await asyncio.sleep(0)
    assert store.asked == 1


async def test_a_look_that_still_waits_is_not_joined_by_another() -> None:
    store = Store(silent=True)
    look = StoreLook(store, every_s=0)
    for _ in range(5):
        look.begin()
        await asyncio.sleep(0)
    assert store.asked == 1
    await look.close()


async def test_a_store_that_does_not_answer_is_not_ready_and_what_it_held_last_stays() -> None:
    """Discriminates: waiting for a silent store without end."""
    store = Store(turns=3)
    look = StoreLook(store, patience_s=0.02)
    await look.look()
    store.silent = True
    async with asyncio.timeout(10):
        await look.look()
    assert look.problems == {"store"}
    assert look.figures == StoreFigures(3, 0, 0, 0)
    store.silent = False
    await look.look()
    assert look.problems == frozenset()


async def test_a_store_that_goes_away_half_way_is_not_ready_and_a_refused_request_is_no_outage() -> None:
    store = Store(away=StoreUnavailableError("gone"))
    look = StoreLook(store)
    await look.look()
    assert look.problems == {"store"}
    assert look.figures is None
    store.away = WenmaiError("no such collection")
    await look.look()
    assert look.problems == frozenset()


async def test_who_asks_for_readiness_brings_the_scrape_up_to_date() -> None:
    store = Store(payloads={"disk": "full"})
    look = StoreLook(store)
    assert await look.health() == {"disk": "full"}
    assert look.problems == {"disk"}


async def test_closing_ends_a_look_under_way() -> None:
    look = StoreLook(Store(silent=True))
    look.begin()
    await asyncio.sleep(0)
    began = time.monotonic()
    await look.close()
    assert time.monotonic() - began < 5
