"""Makes a copy of the store with other vectors beside it, and switches an embedded store to its copy."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import structlog

from config.settings import StoreSettings
from core.errors import DiskFullError, StartRefusedError
from core.operations.reports import Receipt, ReceiptKind
from services.models.embedding import EmbeddingService
from services.operations.reembedding.folders import StoreFolders
from services.operations.reembedding.level import MARK_ID, Limits
from services.operations.reembedding.run import CopyMode, Progress, Reembed, ReembedReport
from services.store.clock import utc_now_us
from services.store.collections import REEMBED_COMMAND, SCHEMA_VERSION, StoredAs
from services.store.dialect import Point, Record, VectorStore
from services.store.durable import allocated_bytes
from services.store.receipts import ReceiptStore

log = structlog.get_logger()

OpenFolder = Callable[[str], AbstractAsyncContextManager[VectorStore]]
"""Opens the embedded store in the sibling folder of this name."""
ROOM_FACTOR = 1.5  # a copy is as large as the store, or larger with longer vectors
MB = 1 << 20


@dataclass(frozen=True, slots=True)
class CopyBeside:
    """Makes the copy `store.reembed`; an unfinished copy of the same embedding is continued."""

    folders: StoreFolders
    names: StoreSettings
    embedding: EmbeddingService
    open_copy: Callable[[], AbstractAsyncContextManager[VectorStore]]
    from_scratch: bool = False  # ignore earlier complete copies, whose vectors may be damaged, too

    @property
    def expected(self) -> StoredAs:
        return stored_as_of(self.embedding)

    async def make(
        self, source: VectorStore, on_progress: Progress, *, reason: str, mode: CopyMode | None = None
    ) -> ReembedReport:
        """Bring the copy up to date with the open store, check it, and mark it as complete.

        Raises DiskFullError up front if there is no space for it, CopyIncompleteError, StoreLockedError if
        another process is making one, UnavailableError subclasses.
        """
        began_us = utc_now_us()
        await asyncio.to_thread(self._choose)
        await asyncio.to_thread(self._check_room)
        async with self.open_copy() as target:
            report = await Reembed(source, self.names, self.embedding).run(
                target, self.names, on_progress, mode
            )
            remaining = source if mode is not None and mode.live else target  # the one used from now on
            receipts = ReceiptStore(remaining, self.names.operations_collection)
            await receipts.add(_receipt(self.embedding, report, reason, began_us))
        await asyncio.to_thread(self.folders.mark_prepared)
        return report

    def _choose(self) -> None:
        """Choose the copy to continue: a complete one, else the one an interrupted run has begun."""
        whole = None if self.from_scratch else self.folders.prepared(self.names, self.expected)
        if whole is not None:
            self.folders.take_over(whole)
        elif not self.folders.copy_fits(self.names, self.expected) and self.folders.discard_copy():
            log.info("store_copy_removed", reason="it had another embedding")

    def _check_room(self) -> None:
        copied = allocated_bytes(self.folders.copy) if self.folders.copy.exists() else 0
        needed = int(allocated_bytes(self.folders.store) * ROOM_FACTOR) - copied
        free = shutil.disk_usage(self.folders.store.parent).free - self.names.low_disk_mb * MB
        if needed > max(free, 0):
            raise DiskFullError(
                f"The copy needs about {max(1, needed // MB)} MB on the disk of the data folder, but only "
                f"{max(free, 0) // MB} MB may be used; free some space and run this again."
            )


def _receipt(embedding: EmbeddingService, report: ReembedReport, reason: str, began_us: int) -> Receipt:
    details = {"embedding": embedding.name, "dimension": str(embedding.dimension)}
    return Receipt(
        "", ReceiptKind.REEMBEDDING, reason, began_us, utc_now_us(), report.counts, details=details
    )


async def switch_if_prepared(
    store: Path, settings: StoreSettings, embedding: EmbeddingService, open_folder: OpenFolder
) -> Path | None:
    """Switch to a prepared copy, before the embedded store in the folder `store` is opened: if its vectors
    are another embedding's and a complete copy has this one's, the copy is updated and replaces it.

    Reads only a few small files if there is nothing to do. Returns the old store's folder, or None if nothing
    was changed: then the store fits, or the start will be refused. Raises StoreLockedError, and
    StartRefusedError, also if the copy to use is incomplete.
    """
    folders, expected = StoreFolders(store), stored_as_of(embedding)
    finished = await asyncio.to_thread(folders.finish_interrupted)
    if finished is not None:
        log.info("store_switched", embedding=embedding.name, old_store=finished.name)
    if folders.fits(settings, expected):
        return finished
    if folders.prepared(settings, expected) is None:
        _refuse_unfinished(folders, settings, expected)
        return finished
    log.info("store_switching", embedding=embedding.name, dimension=embedding.dimension)
    copy = CopyBeside(folders, settings, embedding, lambda: open_folder(folders.copy.name))
    async with open_folder(store.name) as source:
        report = await copy.make(source, _ignore, reason="command")
    old = await asyncio.to_thread(folders.replace)
    log.info("store_switched", embedding=embedding.name, old_store=old.name, **report.counts)
    return old


def _refuse_unfinished(folders: StoreFolders, settings: StoreSettings, expected: StoredAs) -> None:
    """Raise StartRefusedError if a copy with the expected vectors was begun and is incomplete."""
    if folders.copy_fits(settings, expected):
        raise StartRefusedError(
            f"the store has other vectors than the configured embedding {expected.embedding!r} makes, and "
            f"its copy with them, {folders.copy}, is not finished: start with the EMBEDDING from before, go "
            f'on with `{REEMBED_COMMAND}`, and start with this one when GET /admin/reembed says "prepared" — '
            f"or finish it with no server running: `{REEMBED_COMMAND} --apply`"
        )


def stored_as_of(embedding: EmbeddingService) -> StoredAs:
    return StoredAs(embedding=embedding.name, dimension=embedding.dimension, schema_version=SCHEMA_VERSION)


def _ignore(_: object) -> None:
    """Report nothing."""


# Copying a Qdrant server's collections into others beside them, and noting up to when they are in sync.
#
# The note is in the new collections. It keeps a server that already uses them from losing what only it has,
# and allows later writes to the old ones to be added afterwards.


RECORD = "reembedded"


@dataclass(frozen=True, slots=True)
class Level:
    """The copy has everything written before `began_us`; nothing was copied after `ended_us`."""

    began_us: int
    ended_us: int


@dataclass(frozen=True, slots=True)
class CollectionsBeside:
    """Copies the collections named by `old` into those named by `new`; both are on the server of `store`."""

    store: VectorStore
    old: StoreSettings
    new: StoreSettings
    embedding: EmbeddingService

    async def make(
        self, on_progress: Progress, *, catch_up: bool = False, replace: bool = False
    ) -> ReembedReport:
        """Copy. With `catch_up`, only what was written to the old collections since the last copy is added.

        Raises StartRefusedError if the new ones are in use and neither flag is set, CopyIncompleteError,
        UnavailableError subclasses.
        """
        began_us = utc_now_us()
        limits = await self._limits(catch_up=catch_up, replace=replace)
        reembed = Reembed(self.store, self.old, self.embedding)
        report = await reembed.run(
            self.store, self.new, on_progress, CopyMode(live=True, limits=limits, replace=replace)
        )
        if not catch_up:
            await self._write(Level(report.last_round_us, utc_now_us()))
        # into the old ones: the next synchronization copies it into the new ones
        receipts = ReceiptStore(self.store, self.old.operations_collection)
        await receipts.add(_receipt(self.embedding, report, "command", began_us))
        return report

    async def _limits(self, *, catch_up: bool, replace: bool) -> Limits:
        """Read the limits from the note, in the new collections or, when switching back, in the old ones."""
        levels = [
            level
            for names in (self.new, self.old)
            if (level := await self._read(names.operations_collection)) is not None
        ]
        if catch_up and not levels:
            raise StartRefusedError(
                "--catch-up adds to collections that were copied before, but there are none"
            )
        if replace or not levels:
            return Limits()
        newest = max(levels, key=lambda level: level.ended_us)
        return Limits(only_since_us=newest.began_us if catch_up else None, served_since_us=newest.ended_us)

    async def _read(self, collection: str) -> Level | None:
        if not await self.store.collection_exists(collection):
            return None
        records: Sequence[Record] = await self.store.retrieve(collection, [MARK_ID])
        payload = (records[0].payload or {}) if records else {}
        began, ended = payload.get("level_began_us"), payload.get("level_ended_us")
        return Level(began, ended) if isinstance(began, int) and isinstance(ended, int) else None

    async def _write(self, level: Level) -> None:
        payload = {"record": RECORD, "level_began_us": level.began_us, "level_ended_us": level.ended_us}
        note = Point(id=MARK_ID, vector={}, payload=payload)
        await self.store.upsert(self.new.operations_collection, [note])
