"""Rewrites a collection in a second store process while it stays in use. Runs in the server.

Deleted data cannot be cut out of the engine's files, but a copy of the existing points does not contain it.
The copy is made in pages that block the store for a few milliseconds each; changes in the meantime are
tracked and copied again; the last of them are written in the same step that swaps the copy in.
"""

from __future__ import annotations

import asyncio
import tempfile
import zlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec.msgpack import Decoder

from core.errors import DiskFullError, StartRefusedError, StoreUnavailableError
from core.failpoints import failpoint
from services.adapters.edge import wire
from services.adapters.edge.channel import EdgeChannel, EdgeFeed, open_channel
from services.adapters.edge.wire import COPIES, RESERVE_BYTES, remove_copies
from services.store.dialect import Reclaimed, StoreRequestError
from services.store.durable import allocated_bytes, free_bytes

_PAGE = 32
_SAMPLE = 128
_FEW_CHANGED = 64
"""Up to this many changed points may be written in the step that blocks all requests."""
_MAX_CHANGED = 1_000
_MAX_ROUNDS = 50
# Measured on 300 and more points of nine kinds: within a fifth of the real size (full log: a third above).
_BYTES_PER_POINT = 300
_EMPTY_BYTES = 128 << 10
_LOG_PER_WIRE_BYTE = 1.1
_MAX_LOG_BYTES = 64 << 20
_SIZE_VS_ZLIB = 1.4
"""The engine compresses each payload with a faster, weaker algorithm."""

DESCRIPTION = Decoder(wire.Description)
RECORDS = Decoder(list[wire.Record])
PAGE = Decoder(wire.Page)
FLAG = Decoder(bool)


async def estimated_size(store: EdgeChannel, collection: str) -> int:
    """The collection's size in bytes if it were rewritten, estimated from a sample of its points."""
    points = DESCRIPTION.decode(await store.exchange(wire.Describe(collection))).points
    page = await store.exchange(wire.Scroll(collection, _SAMPLE, with_vectors=True))
    sampled, files_bytes = await asyncio.to_thread(_size_in_files, page)
    log_bytes = int(len(page) * _LOG_PER_WIRE_BYTE * points / max(sampled, 1))
    return _EMPTY_BYTES + files_bytes * points // max(sampled, 1) + min(log_bytes, _MAX_LOG_BYTES)


def _size_in_files(page: bytes) -> tuple[int, int]:
    """The number of points, and their size in the engine's files, without its log."""
    records = PAGE.decode(page).records
    payloads = [msgspec.msgpack.encode(record.payload) for record in records]
    compressed = sum(min(len(each), int(len(zlib.compress(each, 1)) * _SIZE_VS_ZLIB)) for each in payloads)
    vectors = len(page) - sum(map(len, payloads))
    return len(records), vectors + compressed + _BYTES_PER_POINT * len(records)


async def compact(
    folder: Path, collection: str, feed: EdgeFeed, reserve_bytes: int = RESERVE_BYTES
) -> Reclaimed:
    """`feed` must follow this collection; only one compaction of `folder` may run at a time.

    Raises StoreRequestError when there is no such collection, StoreUnavailableError, and DiskFullError when
    there is no space for the copy; the collection is then unchanged.
    """
    store = feed.channel
    before = await asyncio.to_thread(allocated_bytes, folder / collection)
    await _check_room(folder, await estimated_size(store, collection) + reserve_bytes)
    async with _copies_folder(folder) as copies:
        await _copy(copies, collection, feed)
        failpoint("compact.copied")
        await _to_completion(_adopt(store, wire.Adopt(collection, feed.number, copies.name, _MAX_CHANGED)))
    return Reclaimed(before, await asyncio.to_thread(allocated_bytes, folder / collection))


async def _check_room(folder: Path, needed_bytes: int) -> None:
    left = await asyncio.to_thread(free_bytes, folder)
    if left < needed_bytes:
        raise DiskFullError(
            f"compacting needs room for a copy: about {needed_bytes >> 20} MB must be free on the data "
            f"folder's disk, and {left >> 20} MB are"
        )


@asynccontextmanager
async def _copies_folder(folder: Path) -> AsyncIterator[Path]:
    """A temporary folder beside the collections; leftovers of a crash go here or at the next start."""
    await asyncio.to_thread(remove_copies, folder)
    copies = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=COPIES, dir=folder))
    try:
        yield copies
    finally:
        await asyncio.to_thread(remove_copies, folder)


@asynccontextmanager
async def _second_process(copies: Path) -> AsyncIterator[EdgeChannel]:
    """Killed on any failure, since unfinished work is worthless."""
    try:
        second = await open_channel(copies, wire.COPIES_FLAG)
    except StartRefusedError as error:
        raise StoreUnavailableError(f"no second store process can be started: {error}") from error
    try:
        yield second
    except BaseException:
        second.kill()
        raise
    finally:
        await second.close()


async def _copy(copies: Path, collection: str, feed: EdgeFeed) -> None:
    async with _second_process(copies) as second:
        try:
            await _Copying(collection, feed.channel, second, feed).run()
        except StoreRequestError as error:  # it was deleted in the meantime
            raise StoreUnavailableError(f"{collection} cannot be compacted: {error}") from error


@dataclass(frozen=True)
class _Copying:
    collection: str
    store: EdgeChannel
    second: EdgeChannel
    feed: EdgeFeed

    async def run(self) -> None:
        """On return, the copy is on disk and closed, and few points have changed since."""
        await self._begin()
        await self._copy_pages()
        for _ in range(_MAX_ROUNDS):
            changed = (await self.feed.changed()).get(self.collection, [])
            for start in range(0, len(changed), _PAGE):
                await self._copy_again(changed[start : start + _PAGE])
            if len(changed) <= _FEW_CHANGED:
                break
        await self.second.exchange(wire.Release(self.collection))

    async def _begin(self) -> None:
        description = DESCRIPTION.decode(await self.store.exchange(wire.Describe(self.collection)))
        await self.second.exchange(wire.CreateCollection(self.collection, description.spec))
        for field, index in description.indexes.items():
            await self.second.exchange(wire.CreateIndex(self.collection, field, index.spec))

    async def _copy_pages(self) -> None:
        """Copy in id order; a point that is written in the meantime is copied again with the changes."""
        offset: wire.PointId | None = None
        while True:
            request = wire.Scroll(self.collection, _PAGE, offset=offset, with_vectors=True)
            page = PAGE.decode(await self.store.exchange(request))
            await self._write(page.records)
            offset = page.next_offset
            if offset is None:
                return

    async def _copy_again(self, ids: Sequence[wire.PointId]) -> None:
        request = wire.Retrieve(self.collection, list(ids), with_vectors=True)
        records = RECORDS.decode(await self.store.exchange(request))
        await self._write(records)
        deleted = sorted(set(ids) - {record.id for record in records}, key=str)
        if deleted:
            await self.second.exchange(wire.Delete(self.collection, deleted))

    async def _write(self, records: Sequence[wire.Record]) -> None:
        if records:
            points = [wire.point_of(record) for record in records]
            await self.second.exchange(wire.Upsert(self.collection, points))


async def _adopt(store: EdgeChannel, request: wire.Adopt) -> None:
    if not FLAG.decode(await store.exchange(request)):
        raise StoreUnavailableError(f"{request.collection} is written to faster than it can be compacted")


async def _to_completion(work: Coroutine[Any, Any, None]) -> None:
    """Delay a cancellation until the end: the copy's folder must stay while the store may adopt it."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
