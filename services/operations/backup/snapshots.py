"""A Qdrant server's own snapshots, fetched one after the other: each collection at a moment of its own."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from core.operations.archive import Role, Shape
from services.operations.backup.records import CHUNK_BYTES
from services.operations.backup.shapes import read_shape
from services.operations.copying import check_room
from services.store.dialect import VectorStore


class Snapshots(Protocol):
    """What a server can do that is not in the dialect. Each raises StoreUnavailableError kinds."""

    async def create(self, collection: str) -> str:
        """Returns the snapshot's name on the server. Raises StoreRequestError when one node has not all."""
        ...

    def download(self, collection: str, name: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]: ...

    async def delete(self, collection: str, name: str) -> None: ...

    async def upload(self, collection: str, content: AsyncIterator[bytes], sha256: str) -> None:
        """The collection is what the snapshot has afterwards, whatever was there."""
        ...


@dataclass(frozen=True, slots=True)
class FetchedSnapshot:
    """`points` was counted just before."""

    role: Role
    name: str
    shape: Shape
    points: int
    file: BinaryIO

    def chunks(self) -> Iterator[bytes]:
        self.file.seek(0)
        while chunk := self.file.read(CHUNK_BYTES):
            yield chunk


async def fetch_snapshots(
    store: VectorStore,
    snapshots: Snapshots,
    names: Mapping[Role, str],
    folder: Path,
    reserve_bytes: int,
    stack: ExitStack,
) -> list[FetchedSnapshot]:
    """Into nameless files in `folder`, closed with `stack`; none stays on the server."""
    fetched = []
    for role, name in names.items():
        points = (await store.count(name)).count
        shape = await read_shape(store, name)
        file = cast(BinaryIO, await asyncio.to_thread(tempfile.TemporaryFile, dir=folder))
        stack.callback(file.close)
        await _fetch(snapshots, name, file, folder, reserve_bytes)
        fetched.append(FetchedSnapshot(role, name, shape, points, file))
    return fetched


async def _fetch(
    snapshots: Snapshots, collection: str, file: BinaryIO, folder: Path, reserve_bytes: int
) -> None:
    name = await snapshots.create(collection)
    try:
        async with snapshots.download(collection, name) as chunks:
            async for chunk in chunks:
                await asyncio.to_thread(_write, file, chunk, folder, reserve_bytes)
    finally:
        await asyncio.shield(snapshots.delete(collection, name))


def _write(file: BinaryIO, chunk: bytes, folder: Path, reserve_bytes: int) -> None:
    check_room(folder, len(chunk), reserve_bytes)
    file.write(chunk)
