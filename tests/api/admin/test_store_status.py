from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from api.admin.store_status import StoreFigures, StoreStatus
from core.errors import StoreUnavailableError, WenmaiError
from tests.support.waiting import until


@dataclass
class Store:
    """A store with configured behaviour: `away` is raised, `silent` never answers."""

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


async def test_starting_a_look_does_not_block_and_the_next_scrape_has_the_figures() -> None:
    status = StoreStatus(Store(turns=7))
    status.begin()
    assert status.figures is None
    await until(lambda: status.figures is not None)
    assert status.figures is not None
    assert status.figures.turns == 7


async def test_many_scrapes_query_the_store_once_per_interval() -> None:
    """Discriminates: querying the store at every scrape."""
    store = Store()
    status = StoreStatus(store, every_s=60)
    for _ in range(20):
        status.begin()
        await asyncio.sleep(0)
    assert store.asked == 1


async def test_no_second_look_starts_while_one_is_waiting() -> None:
    store = Store(silent=True)
    status = StoreStatus(store, every_s=0)
    for _ in range(5):
        status.begin()
        await asyncio.sleep(0)
    assert store.asked == 1
    await status.close()


async def test_a_store_that_does_not_answer_is_not_ready_and_its_last_figures_stay() -> None:
    """Discriminates: waiting for a silent store forever."""
    store = Store(turns=3)
    status = StoreStatus(store, patience_s=0.02)
    await status.refresh()
    store.silent = True
    async with asyncio.timeout(10):
        await status.refresh()
    assert status.problems == {"store"}
    assert status.figures == StoreFigures(3, 0, 0, 0)
    store.silent = False
    await status.refresh()
    assert status.problems == frozenset()


async def test_a_store_that_fails_half_way_is_not_ready_and_a_refused_request_is_not_an_outage() -> None:
    store = Store(away=StoreUnavailableError("gone"))
    status = StoreStatus(store)
    await status.refresh()
    assert status.problems == {"store"}
    assert status.figures is None
    store.away = WenmaiError("no such collection")
    await status.refresh()
    assert status.problems == frozenset()


async def test_a_readiness_request_updates_the_next_scrape() -> None:
    store = Store(payloads={"disk": "full"})
    status = StoreStatus(store)
    assert await status.health() == {"disk": "full"}
    assert status.problems == {"disk"}


async def test_closing_cancels_a_running_look() -> None:
    status = StoreStatus(Store(silent=True))
    status.begin()
    await asyncio.sleep(0)
    began = time.monotonic()
    await status.close()
    assert time.monotonic() - began < 5
