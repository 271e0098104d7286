"""A consistent copy of the whole store, made while the store is in use."""

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
from services.store.clock import utc_now_us
from services.store.dialect import AnyPointId, ChangeFeed, Record, StoreUpkeep, VectorStore
from services.store.points import batches, scroll_pages

# Spools hold a collection's points during the copy; points that change meanwhile replace their earlier state.
#
# The files are unnamed, so nothing of them stays on the disk, whatever happens.


class CollectionSpool:
    """Blocking. A later state of a point hides earlier ones; `frames` yields the latest of each."""

    def __init__(self, folder: Path) -> None:
        self._copied = _unnamed_file(folder)
        self._changed = _unnamed_file(folder)
        self._latest: dict[PointId, int | None] = {}  # offset in `_changed`; None if deleted

    def copied(self, records: Iterable[PointRecord]) -> None:
        self._copied.writelines(map(framed, records))

    def changed(self, records: Iterable[PointRecord], deleted: Iterable[PointId]) -> None:
        """Record changes; calls come in chronological order."""
        for record in records:
            self._latest[record.id] = self._changed.tell()
            self._changed.write(framed(record))
        self._latest.update(dict.fromkeys(deleted))

    def frames(self) -> Iterator[bytes]:
        """Yield the latest state of every point, framed."""
        self._copied.seek(0)
        for body in bodies(self._copied):
            if id_of(body) not in self._latest:
                yield LENGTH.pack(len(body)) + body
        for offset in self._latest.values():
            if offset is not None:
                self._changed.seek(offset)
                body = next(bodies(self._changed))
                yield LENGTH.pack(len(body)) + body

    def close(self) -> None:
        self._copied.close()
        self._changed.close()


def _unnamed_file(folder: Path) -> BinaryIO:
    return cast(BinaryIO, tempfile.TemporaryFile(dir=folder))


def check_room(folder: Path, needed_bytes: int, reserve_bytes: int) -> None:
    """Raise DiskFullError if less than the reserve would stay free."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes - needed_bytes < reserve_bytes:
        raise DiskFullError(
            f"not enough space for a backup: {free_bytes >> 20} MB are free, up to "
            f"{(needed_bytes >> 20) + 1} MB are needed, and {reserve_bytes >> 20} MB are kept free"
        )


PAGE = 64  # points with vectors; decoding them takes at most 10 ms of the event loop
_MAX_ROUNDS = 60
_FIRST_LIMIT, _MAX_LIMIT = 32, 512  # points in the last round


@dataclass(frozen=True, slots=True)
class CopiedCollection:
    role: Role
    name: str
    shape: Shape
    spool: CollectionSpool


@dataclass(frozen=True, slots=True)
class CopiedStore:
    """The store as of `moment_us`: with every write acknowledged by then, without anything erased by then."""

    collections: tuple[CopiedCollection, ...]
    moment_us: int


@dataclass(frozen=True, slots=True)
class StoreCopier:
    """Copies into nameless files in `folder`; `reserve_bytes` of its disk stay free."""

    store: VectorStore
    names: Mapping[Role, str]
    folder: Path
    reserve_bytes: int

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
        """Check for space for both the copy and the archive, which coexist; compression is not counted on."""
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
        """Check the disk first: the store may share it, and must not be the one to find it full."""
        check_room(self.folder, 0, self.reserve_bytes)
        spool.copied(records_of(_without_leases(page)))

    async def _catch_up(self, feed: ChangeFeed, spools: Mapping[str, CollectionSpool]) -> int:
        """Copy changes in ever shorter rounds until the rest fits into one request. Returns `moment_us`."""
        limit = _FIRST_LIMIT
        for _ in range(_MAX_ROUNDS):
            moment_us = utc_now_us()
            last = await feed.last(limit)
            if last is not None:
                for name in last.keys() & spools.keys():
                    changed = last[name]
                    await asyncio.to_thread(_spool_changes, spools[name], changed.points, changed.deleted)
                return moment_us
            for name, ids in (await feed.changed()).items():
                if name in spools:
                    await self._read_again(name, [_plain(point_id) for point_id in ids], spools[name])
            limit = min(2 * limit, _MAX_LIMIT)
        raise StoreUnavailableError(
            "the store changes faster than it can be copied; try again when it is less busy"
        )

    async def _read_again(self, name: str, ids: Sequence[PointId], spool: CollectionSpool) -> None:
        for batch in batches(ids, PAGE):
            points = await self.store.retrieve(name, batch, with_payload=True, with_vectors=True)
            deleted = set(batch) - {_plain(point.id) for point in points}
            await asyncio.to_thread(_spool_changes, spool, points, deleted)


def _spool_changes(spool: CollectionSpool, points: Iterable[Record], deleted: Iterable[AnyPointId]) -> None:
    spool.changed(records_of(_without_leases(points)), map(_plain, deleted))


def _without_leases(points: Iterable[Record]) -> list[Record]:
    """Drop the lease: a restored store has missed no clean-up, and must not catch one up when it starts."""
    return [point for point in points if (point.payload or {}).get("record") != LEASE]


def _plain(point_id: AnyPointId) -> PointId:
    return point_id if isinstance(point_id, int) else str(point_id)
