"""What an engine that keeps its own files can do besides the dialect: tell its size, give space back, and
say which points changed while it was copied. A Qdrant server sees to the first two itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from qdrant_client import models


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """Bytes that are free, and how many of them are never written by the store."""

    free_bytes: int
    reserve_bytes: int


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """Bytes on the disk before and after a compaction."""

    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class Changed:
    """The points of one collection that changed, as they are now: whole, or gone (by id)."""

    points: Sequence[models.Record]
    gone: Sequence[models.ExtendedPointId]


class ChangeFeed(Protocol):
    """Which points were written or deleted since the feed began."""

    async def changed(self) -> Mapping[str, Sequence[models.ExtendedPointId]]:
        """By collection, those since the last call; each once. Raises StoreUnavailableError."""
        ...

    async def last(self, most: int) -> Mapping[str, Changed] | None:
        """All that changed since the last call, as it is at one moment in every collection, and the feed
        ends; None, and nothing is taken, while more than `most` points changed.

        Points come with payload and vectors. Raises StoreUnavailableError, also when the engine was started
        again meanwhile: then the copy must begin anew.
        """
        ...


@runtime_checkable
class StoreUpkeep(Protocol):
    """The embedded engine; one is asked for by `isinstance(store, StoreUpkeep)`."""

    async def size_bytes(self) -> int:
        """What the store takes on the disk."""
        ...

    async def room(self) -> DiskRoom: ...

    async def compact(self, collection_name: str) -> Reclaimed:
        """Write the collection anew, without what was deleted, while it goes on being used.

        Raises StoreUnavailableError; then the collection is as it was.
        """
        ...

    def follow(self, collections: Sequence[str] | None = None) -> AbstractAsyncContextManager[ChangeFeed]:
        """From now on changes of these collections (None: all) are noted; several may follow at once."""
        ...


class Space(Protocol):
    """Space as retention sees it."""

    async def size_bytes(self) -> int | None:
        """None: the engine does not say."""
        ...

    async def reclaim(self) -> Reclaimed | None:
        """Give the disk back what deletion left, where it is worth the work; None: nothing was done."""
        ...
