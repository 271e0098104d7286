"""Write the whole store to an archive, restore it from one, or move it to another engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from api.admin.sample import mark_sample_loaded
from api.offline.holders import StoreContents
from api.offline.stores import contents_of, open_source, open_target
from api.wiring.parts import folders_of, open_embedding, open_snapshots, open_store
from config.settings import Settings, StoreSettings
from core.operations.archive import Manifest
from services.operations.backup.filling import (
    FillReport,
    Migration,
    Restore,
    StoreNotEmptyError,
    check_empty,
    check_restorable,
    embedding_of,
)
from services.operations.backup.making import Backups
from services.operations.backup.reader import Archive, open_archive
from services.operations.backup.writer import ArchiveListing, list_archives
from services.operations.reembedding.beside import stored_as_of


@asynccontextmanager
async def open_backups(names: StoreSettings) -> AsyncIterator[tuple[Backups, StoreContents]]:
    """Raises StartRefusedError, StoreLockedError when a server has the embedded store open."""
    async with open_source(names) as store, open_snapshots(names) as snapshots:
        yield Backups(store, names, snapshots), await contents_of(store, names)


def backups_in(folder: Path) -> list[ArchiveListing]:
    """List archives, newest first; an unreadable one says why. Raises OSError."""
    return list_archives(folder)


def verified(path: Path) -> Manifest:
    """Return an archive's manifest after reading all of the archive. Raises BadArchiveError."""
    with open_archive(path) as archive:
        archive.verify()
    return archive.manifest


def finish_interrupted(names: StoreSettings) -> bool:
    """Whether an interrupted run had left a complete embedded store, which has now been moved into place."""
    return not names.qdrant_url and folders_of(names).finish_interrupted()


class Restoring:
    """Restores a verified archive into an empty store."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.manifest = archive.manifest
        self.embedding = embedding_of(archive.manifest)

    async def check(self, settings: Settings, *, as_is: bool) -> None:
        """`as_is` accepts an embedding other than the configured one. Raises WenmaiError kinds."""
        configured = None
        if not as_is:
            async with open_embedding(settings.models) as embedding:
                configured = stored_as_of(embedding)
        check_restorable(self.manifest, configured, into_server=bool(settings.store.qdrant_url))

    async def obstacle(self, names: StoreSettings) -> str:
        """Return why `into` would refuse the store as it is, else "". An embedded store is not opened to be
        counted, because opening it writes."""
        if not names.qdrant_url:
            note = f"{names.embedded} already contains a store; only an empty one can be filled"
            return note if names.embedded.is_dir() and any(names.embedded.iterdir()) else ""
        try:
            async with open_store(names) as present:
                await check_empty(present, names)
        except StoreNotEmptyError as error:
            return str(error)
        return ""

    async def into(self, names: StoreSettings, on_points: Callable[[int], object]) -> FillReport:
        """Raises StoreNotEmptyError, StoreLockedError when a server has the embedded store open."""
        async with open_snapshots(names) as snapshots, open_target(names) as target:
            report = await Restore(self._archive, snapshots).into(target, on_points)
        # the next start is not a first start: sample documents that were deleted stay deleted
        mark_sample_loaded(names.data_dir)
        return report


@asynccontextmanager
async def open_restoring(path: Path) -> AsyncIterator[Restoring]:
    """Raises BadArchiveError when anything in the archive differs from what was written."""
    with open_archive(path) as archive:
        await asyncio.to_thread(archive.verify)
        yield Restoring(archive)


class Moving:
    """Moves a store to another engine; the source is only read."""

    def __init__(self, migration: Migration) -> None:
        self._migration = migration

    async def points(self) -> dict[str, int]:
        """Return how many points would be moved, by kind."""
        return dict((await self._migration.plan()).points)

    async def into(self, names: StoreSettings, on_points: Callable[[int], object]) -> FillReport:
        """Raises StoreNotEmptyError, MoveIncompleteError."""
        async with open_target(names) as target:
            report = await self._migration.into(target, on_points)
        if not names.qdrant_url:
            mark_sample_loaded(names.data_dir)
        return report


@asynccontextmanager
async def open_moving(names: StoreSettings) -> AsyncIterator[Moving]:
    """Raises StartRefusedError, StoreLockedError when a server has the embedded store open."""
    async with open_source(names) as store:
        yield Moving(Migration(store, names))
