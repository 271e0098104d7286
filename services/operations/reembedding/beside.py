"""A copy of the embedded store with other vectors, made beside it, and the moment it takes its place."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import structlog

from config.settings import StoreSettings
from core.errors import DiskFullError, StartRefusedError
from core.operations.receipts import Receipt, ReceiptKind
from services.models.embedding import EmbeddingService
from services.operations.reembedding.folders import StoreFolders, folder_bytes
from services.operations.reembedding.run import Manner, Progress, Reembed, ReembedReport
from services.store.collections import REEMBED_COMMAND, SCHEMA_VERSION, StoredAs
from services.store.dialect import VectorStore
from services.store.receipts import ReceiptStore

log = structlog.get_logger()

OpenFolder = Callable[[str], AbstractAsyncContextManager[VectorStore]]
"""Opens the embedded store in the folder of this name, beside the others."""
ROOM_FACTOR = 1.5  # a copy is as large as the store, or larger with longer vectors
MB = 1 << 20


class CopyBeside:
    """The copy is `store.reembed`; an unfinished one of the same embedding is gone on with."""

    def __init__(
        self,
        folders: StoreFolders,
        names: StoreSettings,
        embedding: EmbeddingService,
        open_copy: Callable[[], AbstractAsyncContextManager[VectorStore]],
    ) -> None:
        self.folders = folders
        self._names = names
        self._embedding = embedding
        self._open_copy = open_copy

    @property
    def expected(self) -> StoredAs:
        return stored_as_of(self._embedding)

    async def make(
        self, source: VectorStore, on_progress: Progress, *, reason: str, manner: Manner | None = None
    ) -> ReembedReport:
        """Bring the copy level with the open store and check it; it is marked as whole then.

        Raises DiskFullError before it begins when there is no room for it, CopyIncompleteError,
        StoreLockedError when another process makes one, UnavailableError kinds.
        """
        began_us = _now_us()
        await asyncio.to_thread(self._choose)
        await asyncio.to_thread(self._check_room)
        async with self._open_copy() as target:
            report = await Reembed(source, self._names, self._embedding).run(
                target, self._names, on_progress, manner
            )
            remaining = source if manner is not None and manner.live else target  # which goes on being used
            receipts = ReceiptStore(remaining, self._names.operations_collection)
            await receipts.add(self._receipt(report, reason, began_us))
        await asyncio.to_thread(self.folders.mark_prepared)
        return report

    def _choose(self) -> None:
        """What is nearest to being whole: a whole copy, else what an interrupted run has begun."""
        whole = self.folders.prepared(self._names, self.expected)
        if whole is not None:
            self.folders.take_over(whole)
        elif not self.folders.copy_fits(self._names, self.expected) and self.folders.discard_copy():
            log.info("store_copy_removed", reason="it was of another embedding")

    def _check_room(self) -> None:
        copied = folder_bytes(self.folders.copy) if self.folders.copy.exists() else 0
        needed = int(folder_bytes(self.folders.store) * ROOM_FACTOR) - copied
        free = shutil.disk_usage(self.folders.store.parent).free - self._names.low_disk_mb * MB
        if needed > max(free, 0):
            raise DiskFullError(
                f"The copy needs about {max(1, needed // MB)} MB on the disk of the data folder, and "
                f"{max(free, 0) // MB} MB may be used; make room and run this again."
            )

    def _receipt(self, report: ReembedReport, reason: str, began_us: int) -> Receipt:
        details = {"embedding": self._embedding.name, "dimension": str(self._embedding.dimension)}
        return Receipt(
            "", ReceiptKind.REEMBEDDING, reason, began_us, _now_us(), counts=report.counts, details=details
        )


async def switch_if_prepared(
    store: Path, settings: StoreSettings, embedding: EmbeddingService, open_folder: OpenFolder
) -> Path | None:
    """Before the embedded store in the folder `store` is opened: when its vectors are another embedding's and
    a whole copy with this one's lies beside it, the copy is brought level and takes its place.

    Looks at a few small files when there is nothing to do. Returns where the old store is, None when nothing
    was changed: then it fits, or the start will be refused. Raises StoreLockedError, StartRefusedError, also
    when the copy that would be used is not whole.
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
    """Raises StartRefusedError when a copy with the expected vectors was begun and is not whole."""
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
    """Reports nothing."""


def _now_us() -> int:
    return time.time_ns() // 1_000
