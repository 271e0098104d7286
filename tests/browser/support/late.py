"""Requests that a test holds up: their replies arrive when the test says so."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field

from playwright.async_api import Page, Route

from tests.browser.support.driving import DRAWN


@dataclass(frozen=True)
class Held:
    """`started` is released by each request that is held up; `release` lets all of them continue."""

    address: re.Pattern[str]
    started: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def arrive(self, page: Page) -> None:
        """Let the reply arrive, and wait until the page has processed it."""
        async with page.expect_response(self.address):
            self.release.set()
        await page.evaluate(DRAWN)


async def hold(
    page: Page, address: str, *, method: str = "GET", times: int = 1, reaches: bool = True
) -> Held:
    """Hold up the next `times` requests to the address (a pattern); the server gets them at once if
    `reaches`."""
    held = Held(re.compile(address))
    left = times

    async def late(route: Route) -> None:
        nonlocal left
        if route.request.method != method or left == 0:
            await route.fallback()
            return
        left -= 1
        reply = await route.fetch() if reaches else None
        held.started.release()
        await held.release.wait()
        await (route.fulfill(response=reply) if reply else route.fallback())

    await page.route(held.address, late)
    return held


def turns_of(session_id: str) -> str:
    return rf"/sessions/{session_id}/turns"


def tree_of(session_id: str) -> str:
    return rf"/sessions/{session_id}/tree$"


def session_at(session_id: str) -> str:
    """The address of a session's record, which includes its persona."""
    return rf"/sessions/{session_id}$"
