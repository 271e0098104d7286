"""The whole store at one moment, copied while it is used."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from core.errors import DiskFullError, StoreUnavailableError
from core.operations.archive import LENGTH, PointId, PointRecord, Role, Shape
from services.operations.backup.records import bodies, framed, id_of, read_shape, record_of, records_of
from services.operations.schedule.lease import RECORD as LEASE
from services.store.clock import Clock
from services.store.dialect import AnyPointId, ChangeFeed, Record, StoreUpkeep, VectorStore
from services.store.points import batches, scroll_pages

# Where a collection's points wait while the store is copied; what changed meanwhile takes their place.
#
# The files have no name: whatever happens, nothing of them stays on the disk.


class CollectionSpool:
    """Blocking. A later state of a point hides its earlier ones; `frames` gives what is left."""

    def __init__(self, folder: Path) -> None:
        self._copied = _nameless(folder)
        self._changed = _nameless(folder)
        self._latest: dict[PointId, int | None] = {}  # where in `_changed`; None: it is gone

    def copied(self, records: Iterable[PointRecord]) -> None:
        self._copied.writelines(map(framed, records))

    def changed(self, records: Iterable[PointRecord], deleted: Iterable[PointId]) -> None:
        """In the order of time."""
        for record in records:
            self._latest[record.id] = self._changed.tell()
            self._changed.write(framed(record))
        self._latest.update(dict.fromkeys(deleted))

    def frames(self) -> Iterator[bytes]:
        """Each point once, as it was last, framed."""
        self._copied.seek(0)
        for body in bodies(self._copied):
            if id_of(body) not in self._latest:
                yield LENGTH.pack(len(body)) + body
        for place in self._latest.values():
            if place is not None:
                self._changed.seek(place)
                body = next(bodies(self._changed))
                yield LENGTH.pack(len(body)) + body

    def close(self) -> None:
        self._copied.close()
        self._changed.close()


def _nameless(folder: Path) -> BinaryIO:
    return cast(BinaryIO, tempfile.TemporaryFile(dir=folder))


def check_room(folder: Path, needed_bytes: int, reserve_bytes: int) -> None:
    """Raises DiskFullError when less than the reserve would be left."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes - needed_bytes < reserve_bytes:
        raise DiskFullError(
            f"there is not enough room for a backup: {free_bytes >> 20} MB are free, up to "
            f"{(needed_bytes >> 20) + 1} MB are needed, and {reserve_bytes >> 20} MB are kept free"
        )


PAGE = 64  # points with vectors; what is read is decoded on the event loop, 10 ms at most
_MOST_ROUNDS = 60
_LAST_AT_FIRST, _LAST_AT_MOST = 32, 512


@dataclass(frozen=True, slots=True)
class CopiedCollection:
    role: Role
    name: str
    shape: Shape
    spool: CollectionSpool


@dataclass(frozen=True, slots=True)
class CopiedStore:
    """As it was at `moment_us`: what was acknowledged before is in it, what was erased before is not."""

    collections: tuple[CopiedCollection, ...]
    moment_us: int


@dataclass(frozen=True, slots=True)
class StoreCopier:
    """Copies into nameless files in `folder`; `reserve_bytes` of its disk stay free."""

    store: VectorStore
    names: Mapping[Role, str]
    folder: Path
    reserve_bytes: int
    clock: Clock

    async def copy(self, followed: StoreUpkeep, stack: ExitStack) -> CopiedStore:
        """The spools are closed with `stack`. Raises DiskFullError, StoreUnavailableError."""
        await self._check_room()
        async with followed.follow(list(self.names.values())) as feed:
            collections = tuple([await self._open(role, name, stack) for role, name in self.names.items()])
            for collection in collections:
                await self._copy(collection)
            moment_us = await self._catch_up(feed, {each.name: each.spool for each in collections})
        return CopiedStore(collections, moment_us)

    async def _check_room(self) -> None:
        """The copy and the archive lie beside each other for a while; compression is not counted on."""
        sizes = [await self._estimated_bytes(name) for name in self.names.values()]
        await asyncio.to_thread(check_room, self.folder, 2 * sum(sizes), self.reserve_bytes)

    async def _estimated_bytes(self, name: str) -> int:
        points = (await self.store.count(name)).count
        sample, _ = await self.store.scroll(name, limit=PAGE, with_payload=True, with_vectors=True)
        size = sum(len(framed(record_of(point))) for point in sample)
        return size * points // len(sample) if sample else 0

    async def _open(self, role: Role, name: str, stack: ExitStack) -> CopiedCollection:
        spool = await asyncio.to_thread(CollectionSpool, self.folder)
        stack.callback(spool.close)
        return CopiedCollection(role, name, await read_shape(self.store, name), spool)

    async def _copy(self, collection: CopiedCollection) -> None:
        async for page in scroll_pages(self.store, collection.name, size=PAGE, with_vectors=True):
            await asyncio.to_thread(self._spool_page, collection.spool, page)

    def _spool_page(self, spool: CollectionSpool, page: Iterable[Record]) -> None:
        """The store, which may be on the same disk, must not be what finds it full."""
        check_room(self.folder, 0, self.reserve_bytes)
        spool.copied(records_of(_without_leases(page)))

    async def _catch_up(self, feed: ChangeFeed, spools: Mapping[str, CollectionSpool]) -> int:
        """Rounds become shorter until what is left fits into one request. Returns the moment."""
        most = _LAST_AT_FIRST
        for _ in range(_MOST_ROUNDS):
            moment_us = self.clock()
            last = await feed.last(most)
            if last is not None:
                for name in last.keys() & spools.keys():
                    changed = last[name]
                    await asyncio.to_thread(_spool_changes, spools[name], changed.points, changed.deleted)
                return moment_us
            for name, ids in (await feed.changed()).items():
                if name in spools:
                    await self._read_again(name, [_plain(point_id) for point_id in ids], spools[name])
            most = min(2 * most, _LAST_AT_MOST)
        raise StoreUnavailableError(
            "the store changes faster than it can be copied; try again when it is quieter"
        )

    async def _read_again(self, name: str, ids: Sequence[PointId], spool: CollectionSpool) -> None:
        for batch in batches(ids, PAGE):
            points = await self.store.retrieve(name, batch, with_payload=True, with_vectors=True)
            deleted = set(batch) - {_plain(point.id) for point in points}
            await asyncio.to_thread(_spool_changes, spool, points, deleted)


def _spool_changes(spool: CollectionSpool, points: Iterable[Record], deleted: Iterable[AnyPointId]) -> None:
    spool.changed(records_of(_without_leases(points)), map(_plain, deleted))


def _without_leases(points: Iterable[Record]) -> list[Record]:
    """Without the lease: a restored store has missed no clean-up, and must not catch one up at its start."""
    return [point for point in points if (point.payload or {}).get("record") != LEASE]


def _plain(point_id: AnyPointId) -> PointId:
    return point_id if isinstance(point_id, int) else str(point_id)
