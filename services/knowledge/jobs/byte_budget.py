"""How many bytes of documents are in memory at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ByteBudget:
    """First come, first served: one that is large is not passed by for ever."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held = 0
        self._line = asyncio.Lock()
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def hold(self, size_bytes: int) -> AsyncIterator[None]:
        """Waits until there is room."""
        size_bytes = min(size_bytes, self._most)
        async with self._line, self._changed:
            await self._changed.wait_for(lambda: self._held + size_bytes <= self._most)
            self._held += size_bytes
        try:
            yield
        finally:
            self._held -= size_bytes
            async with self._changed:
                self._changed.notify_all()
