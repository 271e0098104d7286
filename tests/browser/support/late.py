"""Requests that a test holds up: their replies come when it says so."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field

from playwright.async_api import Page, Route

from tests.browser.support.driving import DRAWN


@dataclass(frozen=True)
class Held:
    """`begun` is released by each request that is held up; `let_go` ends the waiting of all of them."""

    address: re.Pattern[str]
    begun: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    let_go: asyncio.Event = field(default_factory=asyncio.Event)

    async def arrive(self, page: Page) -> None:
        """The reply comes, and the page has made of it what it makes of it."""
        async with page.expect_response(self.address):
            self.let_go.set()
        await page.evaluate(DRAWN)


async def hold(
    page: Page, address: str, *, method: str = "GET", times: int = 1, reaches: bool = True
) -> Held:
    """The next `times` requests to the address (a pattern); the server gets them at once if `reaches`."""
    held = Held(re.compile(address))
    left = times

    async def late(route: Route) -> None:
        nonlocal left
        if route.request.method != method or left == 0:
            await route.fallback()
            return
        left -= 1
        reply = await route.fetch() if reaches else None
        held.begun.release()
        await held.let_go.wait()
        await (route.fulfill(response=reply) if reply else route.fallback())

    await page.route(held.address, late)
    return held


def turns_of(session_id: str) -> str:
    return rf"/sessions/{session_id}/turns"


def tree_of(session_id: str) -> str:
    return rf"/sessions/{session_id}/tree$"


def session_at(session_id: str) -> str:
    """What is known of it, its persona among it."""
    return rf"/sessions/{session_id}$"
