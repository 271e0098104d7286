"""Whether answers are being written just now: background work waits for a quiet moment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Activity:
    """Counts what is going on; `quiet` waits until nothing is."""

    def __init__(self) -> None:
        self._going_on = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        self._going_on += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._going_on -= 1
            if not self._going_on:
                self._quiet.set()

    async def quiet(self, limit_s: float) -> None:
        """Return when nothing is going on, after `limit_s` seconds at the latest."""
        try:
            async with asyncio.timeout(limit_s):
                await self._quiet.wait()
        except TimeoutError:
            return
