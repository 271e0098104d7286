"""Backups: the store is written into one archive while it keeps serving, and a receipt is stored."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from config.settings import StoreSettings
from core.errors import UnavailableError
from core.operations.archive import FORMAT, Manifest, PointRecord, Role, Shape
from core.operations.reports import Receipt, ReceiptKind
from services.conversation.images import FOLDER, ImageFiles
from services.operations.backup.records import CHUNK_BYTES, framed, read_shape, stored_names
from services.operations.backup.writer import (
    ArchiveListing,
    ArchiveWriter,
    BackupRunningError,
    archive_name,
    delete_older,
    full_disk_as_error,
    list_archives,
    only_one,
    writing,
)
from services.operations.copying import CopiedCollection, StoreCopier, check_room
from services.store.clock import utc_now_us
from services.store.dialect import StoreUpkeep, UnsupportedByStoreError, VectorStore
from services.store.receipts import ReceiptStore

EMBEDDED, SERVER = "embedded", "server"


@dataclass(frozen=True, slots=True)
class BackupReport:
    """`created` is the moment of the archive's contents, `sha256` that of the whole file, `removed` are the
    older archives deleted, and `fuller` those of them that held more points."""

    file: str
    size_bytes: int
    sha256: str
    created: str
    engine: str
    points: dict[str, int]
    seconds: float
    removed: list[str] = field(default_factory=list)
    fuller: list[str] = field(default_factory=list)


class Backups:
    """`snapshots` is needed for a Qdrant server; the embedded engine reports changes while it is read."""

    def __init__(
        self,
        store: VectorStore,
        settings: StoreSettings,
        snapshots: Snapshots | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._snapshots = snapshots
        self._receipts = ReceiptStore(store, settings.operations_collection)
        self._images = ImageFiles(settings.data_dir / FOLDER)

    async def create(
        self, folder: Path, reason: str, *, name: str = "", keep: int | None = None
    ) -> BackupReport:
        """Write an archive. `reason` is "request", "command" or "clean-up". With `keep`, older archives that
        we named are deleted.

        Raises BackupRunningError, DiskFullError, StoreUnavailableError, FileExistsError and other OSErrors;
        then no part of an archive stays.
        """
        began_us, began = utc_now_us(), time.monotonic()
        with full_disk_as_error(), only_one(folder):
            path = folder / (name or archive_name(began_us))
            manifest = await self._archive(path)
            removed = await asyncio.to_thread(delete_older, path, keep) if keep else []
        size_bytes, sha256 = await asyncio.to_thread(_fingerprint, path)
        points = {role.value: number for role, number in manifest.points.items()}
        report = BackupReport(
            path.name, size_bytes, sha256, manifest.created, manifest.engine, points,
            round(time.monotonic() - began, 2), [each.file for each in removed],
            [each.file for each in removed if sum(each.points.values()) > sum(points.values())],
        )  # fmt: skip
        await self._note(report, reason, began_us)
        return report

    async def _archive(self, path: Path) -> Manifest:
        names = await stored_names(self._store, self._settings)
        reserve_bytes = self._settings.low_disk_mb << 20
        with ExitStack() as spools:
            if isinstance(self._store, StoreUpkeep):
                copier = StoreCopier(self._store, names, path.parent, reserve_bytes)
                copied = await copier.copy(self._store, spools)
                return await asyncio.to_thread(
                    _write, path, copied.collections, self._images, copied.moment_us, EMBEDDED
                )
            if self._snapshots is None:
                raise UnsupportedByStoreError("this store supports neither change feeds nor snapshots")
            moment_us = utc_now_us()
            fetched = await fetch_snapshots(
                self._store, self._snapshots, names, path.parent, reserve_bytes, spools
            )
            return await asyncio.to_thread(_write, path, fetched, self._images, moment_us, SERVER)

    async def _note(self, report: BackupReport, reason: str, began_us: int) -> None:
        """Write the receipt, unless the store is of an earlier version and has no collection for it yet."""
        if not await self._store.collection_exists(self._settings.operations_collection):
            return
        details = {"file": report.file, "sha256": report.sha256, "moment": report.created}
        await self._receipts.add(
            Receipt("", ReceiptKind.BACKUP, reason, began_us, utc_now_us(), counts=report.points,
                    bytes_after=report.size_bytes, details=details)
        )  # fmt: skip


def _add_images(archive: ArchiveWriter, images: ImageFiles) -> None:
    """Add the images, if any: without them, earlier versions can read the archive."""
    frames = (
        framed(PointRecord(turn_id, {}, {"images": [list(each) for each in files]}))
        for turn_id, files in images.kept()
        if files
    )
    first = next(frames, None)
    if first is not None:
        archive.add_points(Role.IMAGES, FOLDER, Shape({}, {}, {}), chain([first], frames))


def _write(
    path: Path,
    collections: Sequence[CopiedCollection | FetchedSnapshot],
    images: ImageFiles,
    moment_us: int,
    engine: str,
) -> Manifest:
    created = datetime.fromtimestamp(moment_us / 1_000_000, UTC).isoformat(timespec="milliseconds")
    with writing(path) as archive:
        for each in collections:
            if isinstance(each, FetchedSnapshot):
                archive.add_snapshot(each.role, each.name, each.shape, each.chunks(), each.points)
            else:
                archive.add_points(each.role, each.name, each.shape, each.spool.frames())
        _add_images(archive, images)
        manifest = Manifest(
            FORMAT, _made_by(), moment_us, created.replace("+00:00", "Z"), engine, archive.members
        )
        archive.finish(manifest)
    return manifest


def _made_by() -> str:
    try:
        return f"wenmai {version('wenmai')}"
    except PackageNotFoundError:
        return "wenmai"


def _fingerprint(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        return path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()


# A Qdrant server's own snapshots, fetched one after the other, so each collection has its own moment.


class Snapshots(Protocol):
    """A Qdrant server's snapshot calls, not in the dialect. Each raises StoreUnavailableError subclasses."""

    async def create(self, collection: str) -> str:
        """Return the snapshot's name on the server. Raises StoreRequestError if other nodes have shards."""
        ...

    def download(self, collection: str, name: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]: ...

    async def delete(self, collection: str, name: str) -> None: ...

    async def upload(self, collection: str, content: AsyncIterator[bytes], sha256: str) -> None:
        """Replace the collection's contents by the snapshot's."""
        ...


@dataclass(frozen=True, slots=True)
class FetchedSnapshot:
    """`points` was counted just before the snapshot was made."""

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
    """Fetch snapshots into unnamed files in `folder`, closed with `stack`; none stays on the server."""
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
                await asyncio.to_thread(_append, file, chunk, folder, reserve_bytes)
    finally:
        await asyncio.shield(snapshots.delete(collection, name))


def _append(file: BinaryIO, chunk: bytes, folder: Path, reserve_bytes: int) -> None:
    check_room(folder, len(chunk), reserve_bytes)
    file.write(chunk)


class BackupFolder:
    """The archives in one folder, made while the server runs, one at a time; a request cannot name another
    folder."""

    def __init__(self, backups: Backups, folder: Path) -> None:
        self._backups = backups
        self.folder = folder
        self._running = asyncio.Lock()

    async def create(self, keep: int | None = None, *, reason: str = "request") -> BackupReport:
        """Write an archive, then delete older ones if `keep` is set; for `reason` see `Backups.create`.

        Raises BackupRunningError, DiskFullError, UnavailableError subclasses.
        """
        if self._running.locked():
            raise BackupRunningError("A backup is already being made; only one can run at a time.")
        async with self._running:
            try:
                return await self._backups.create(self.folder, reason, keep=keep)
            except OSError as error:
                raise UnavailableError(f"BACKUP_DIR cannot be used: {error.strerror or error}") from error

    async def create_before(self, reason: str) -> str:
        """Back up before something is changed or deleted. Returns the archive's name; raises as `create`."""
        return (await self.create(reason=reason)).file

    async def list_all(self) -> list[ArchiveListing]:
        """List the archives, newest first; reads only table of contents and manifest, not the contents."""
        return await asyncio.to_thread(list_archives, self.folder)
