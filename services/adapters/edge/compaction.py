"""A collection is written anew by a second store process while it goes on being used. Runs in the server.

What deletion left cannot be cut out of the engine's files; a copy of what is there does not contain it. The
copy is made in pages that hold the store up for a few milliseconds each; what changes meanwhile is followed
and written again; the last of it is written in the one step in which the copy takes the collection's place.
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
_FEW = 64
"""So many changed points may be written in the step that holds everybody up."""
_MOST_CHANGED = 1_000
_MOST_ROUNDS = 50
# Measured on nine kinds of points: within a fifth of what 300 and more take; a third too much of a full log.
_BYTES_PER_POINT = 300
_EMPTY_BYTES = 128 << 10
_LOG_PER_WIRE_BYTE = 1.1
_MOST_LOG_BYTES = 64 << 20
_AGAINST_ZLIB = 1.4
"""The engine compresses each payload, and the quicker way."""

DESCRIPTION = Decoder(wire.Description)
RECORDS = Decoder(list[wire.Record])
PAGE = Decoder(wire.Page)
FLAG = Decoder(bool)


async def estimated_size(store: EdgeChannel, collection: str) -> int:
    """Bytes that the collection would take if it were written anew, judged by a sample of its points."""
    points = DESCRIPTION.decode(await store.exchange(wire.Describe(collection))).points
    page = await store.exchange(wire.Scroll(collection, _SAMPLE, with_vectors=True))
    sampled, files_bytes = await asyncio.to_thread(_in_files, page)
    log_bytes = int(len(page) * _LOG_PER_WIRE_BYTE * points / max(sampled, 1))
    return _EMPTY_BYTES + files_bytes * points // max(sampled, 1) + min(log_bytes, _MOST_LOG_BYTES)


def _in_files(page: bytes) -> tuple[int, int]:
    """How many points these are, and what they take in the engine's files, its log left out."""
    records = PAGE.decode(page).records
    payloads = [msgspec.msgpack.encode(record.payload) for record in records]
    compressed = sum(min(len(each), int(len(zlib.compress(each, 1)) * _AGAINST_ZLIB)) for each in payloads)
    vectors = len(page) - sum(map(len, payloads))
    return len(records), vectors + compressed + _BYTES_PER_POINT * len(records)


async def compact(
    folder: Path, collection: str, feed: EdgeFeed, reserve_bytes: int = RESERVE_BYTES
) -> Reclaimed:
    """`feed` follows this collection; only one compaction of `folder` may run.

    Raises StoreRequestError when there is no such collection, StoreUnavailableError, and DiskFullError when
    there is no room for the copy; then the collection is as it was.
    """
    store = feed.channel
    before = await asyncio.to_thread(allocated_bytes, folder / collection)
    await _check_room(folder, await estimated_size(store, collection) + reserve_bytes)
    async with _copies_folder(folder) as copies:
        await _copy(copies, collection, feed)
        failpoint("compact.copied")
        await _to_its_end(_adopt(store, wire.Adopt(collection, feed.number, copies.name, _MOST_CHANGED)))
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
    """Made beside the collections, and removed; what a crash leaves is removed here or by the next start."""
    await asyncio.to_thread(remove_copies, folder)
    copies = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=COPIES, dir=folder))
    try:
        yield copies
    finally:
        await asyncio.to_thread(remove_copies, folder)


@asynccontextmanager
async def _second_process(copies: Path) -> AsyncIterator[EdgeChannel]:
    """Its work is worth nothing unless it comes to its end, so it is killed otherwise."""
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
        except StoreRequestError as error:  # it was deleted meanwhile
            raise StoreUnavailableError(f"{collection} cannot be compacted: {error}") from error


@dataclass(frozen=True)
class _Copying:
    collection: str
    store: EdgeChannel
    second: EdgeChannel
    feed: EdgeFeed

    async def run(self) -> None:
        """When it returns, the copy is on the disk and closed, and few points have changed since."""
        await self._begin()
        await self._copy_pages()
        for _ in range(_MOST_ROUNDS):
            changed = (await self.feed.changed()).get(self.collection, [])
            for start in range(0, len(changed), _PAGE):
                await self._copy_again(changed[start : start + _PAGE])
            if len(changed) <= _FEW:
                break
        await self.second.exchange(wire.Release(self.collection))

    async def _begin(self) -> None:
        description = DESCRIPTION.decode(await self.store.exchange(wire.Describe(self.collection)))
        await self.second.exchange(wire.CreateCollection(self.collection, description.spec))
        for field, index in description.indexes.items():
            await self.second.exchange(wire.CreateIndex(self.collection, field, index.spec))

    async def _copy_pages(self) -> None:
        """In the order of ids; a point that is written meanwhile comes again with what changed."""
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


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """A cancellation is obeyed afterwards: the folder of the copy must stay while the store may take it."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
