"""One lock for each name, kept only while somebody holds or awaits it."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary


class Locks:
    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, name: str) -> asyncio.Lock:
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock
