"""The whole store written into an archive, brought back from one, or moved to another engine."""

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
    """Raises StartRefusedError, StoreLockedError when a server has the embedded store."""
    async with open_source(names) as store, open_snapshots(names) as snapshots:
        yield Backups(store, names, snapshots), await contents_of(store, names)


def backups_in(folder: Path) -> list[ArchiveListing]:
    """Newest first; one that cannot be read says why. Raises OSError."""
    return list_archives(folder)


def verified(path: Path) -> Manifest:
    """What an archive says is in it, once all of it was read. Raises BadArchiveError."""
    with open_archive(path) as archive:
        archive.verify()
    return archive.manifest


def finish_interrupted(names: StoreSettings) -> bool:
    """Whether an earlier run had left an embedded store that was complete, and now has its place."""
    return not names.qdrant_url and folders_of(names).finish_interrupted()


class Restoring:
    """A verified archive on its way into an empty store."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.manifest = archive.manifest
        self.embedding = embedding_of(archive.manifest)

    async def check(self, settings: Settings, *, as_is: bool) -> None:
        """`as_is` accepts another embedding than the configured one. Raises WenmaiError kinds."""
        configured = None
        if not as_is:
            async with open_embedding(settings.models) as embedding:
                configured = stored_as_of(embedding)
        check_restorable(self.manifest, configured, into_server=bool(settings.store.qdrant_url))

    async def obstacle(self, names: StoreSettings) -> str:
        """Why `into` would refuse the store as it is, "" when it would not. An embedded one is not opened to
        be counted: to open it writes."""
        if not names.qdrant_url:
            note = f"{names.embedded} holds a store, and only one without points is filled"
            return note if names.embedded.is_dir() and any(names.embedded.iterdir()) else ""
        try:
            async with open_store(names) as present:
                await check_empty(present, names)
        except StoreNotEmptyError as error:
            return str(error)
        return ""

    async def into(self, names: StoreSettings, on_points: Callable[[int], object]) -> FillReport:
        """Raises StoreNotEmptyError, StoreLockedError when a server has the embedded store."""
        async with open_snapshots(names) as snapshots, open_target(names) as target:
            report = await Restore(self._archive, snapshots).into(target, on_points)
        # the first start after it is not the first: what of the sample was deleted stays so
        mark_sample_loaded(names.data_dir)
        return report


@asynccontextmanager
async def open_restoring(path: Path) -> AsyncIterator[Restoring]:
    """Raises BadArchiveError when anything in the archive is not as it was written."""
    with open_archive(path) as archive:
        await asyncio.to_thread(archive.verify)
        yield Restoring(archive)


class Moving:
    """A store on its way to another engine; the source is only read."""

    def __init__(self, migration: Migration) -> None:
        self._migration = migration

    async def points(self) -> dict[str, int]:
        """How much would be moved, by what it is."""
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
    """Raises StartRefusedError, StoreLockedError when a server has the embedded store."""
    async with open_source(names) as store:
        yield Moving(Migration(store, names))
