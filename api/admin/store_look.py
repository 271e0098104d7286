"""Whether the store is ready, and what it holds, looked up beside a scrape, which never waits for it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from config.logging import RateLimitedLog
from config.settings import StoreSettings
from core.errors import StoreReadOnlyError, StoreUnavailableError, WenmaiError
from core.operations.reports import Receipt, ReceiptKind
from core.operations.sync import SyncReport
from services.models.embedding import EmbeddingService
from services.operations.backup.filling import refuse_half_filled
from services.store.clock import utc_now_us
from services.store.collections import ensure_collections
from services.store.dialect import StoreUpkeep, VectorStore
from services.store.receipts import ReceiptStore
from services.store.space import DiskWatch, StoreSpace
from services.sync.folders import FolderSync

log = structlog.get_logger()

EVERY_S = 10.0  # not more often, however many scrape
PATIENCE_S = 10.0  # a store that is silent for so long is away
RETRY_S = 2.0
NOT_WRITABLE = "The disk of the data folder refuses writes; the server's log has its error."
KINDS = (ReceiptKind.EXPIRY, ReceiptKind.BACKUP, ReceiptKind.COMPACTION)

Step = Callable[[], Awaitable[object]]


class Readiness:
    """Whether questions can be asked. A server's store may come later; the embedded one must be there."""

    def __init__(self, store: VectorStore, settings: StoreSettings, embedding: EmbeddingService) -> None:
        self._store = store
        self._settings = settings
        self._embedding = embedding
        self._steps: tuple[Step, ...] = ()
        self._prepared = False

    async def prepare(self, *steps: Step) -> None:
        """Make the collections, then run `steps`. With QDRANT_URL a store that is away is tried again later.

        Raises StartRefusedError when the stored vectors are another model's, and StoreUnavailableError
        when the embedded store fails.
        """
        self._steps = steps
        try:
            await self._attempt()
        except StoreUnavailableError:
            if not self._settings.qdrant_url:
                raise
            log.warning("store_not_ready", url=self._settings.qdrant_url)

    async def keep_trying(self) -> None:
        """Until it has worked once; ends at once when it already has."""
        limited_log = RateLimitedLog(limit=1)
        while not self._prepared:
            await asyncio.sleep(RETRY_S)
            try:
                await self._attempt()
            except WenmaiError as error:
                limited_log(logging.WARNING, "store_not_ready", {"error": str(error)})

    @property
    def prepared(self) -> bool:
        """The store has answered once and has what is needed."""
        return self._prepared

    async def problems(self) -> dict[str, str]:
        """The parts that are not ready, and why."""
        if not self._prepared:
            return {"store": "The store has not answered yet; it is tried again every two seconds."}
        try:
            await self._store.count(self._settings.session_collection)
            if isinstance(self._store, StoreUpkeep) and not (await self._store.condition()).writable:
                return {"store": NOT_WRITABLE}
        except StoreUnavailableError as error:
            return {"store": str(error)}
        return {}

    async def _attempt(self) -> None:
        await refuse_half_filled(self._store, self._settings.operations_collection)
        await ensure_collections(
            self._store,
            self._settings,
            embedding_name=self._embedding.name,
            dimension=self._embedding.dimension,
        )
        for step in self._steps:
            try:
                await step()
            except StoreReadOnlyError as error:
                log.warning("store_read_only", skipped=step.__name__, reason=str(error))
        self._prepared = True


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """`operations` are the newest receipts, one of each kind; `syncs` the last run of each followed folder
    that has had one. Bytes are None where the engine does not say."""

    turns: int
    sessions: int
    documents: int
    chunks: int
    flushes: int | None = None
    size_bytes: int | None = None
    free_bytes: int | None = None
    operations: tuple[Receipt, ...] = ()
    syncs: tuple[SyncReport, ...] = ()


class Watched(Protocol):
    """Methods raise WenmaiError kinds and OSError."""

    async def problems(self) -> dict[str, str]:
        """By part; empty when a question can be asked."""
        ...

    async def figures(self) -> StoreFigures: ...


@dataclass(frozen=True, slots=True)
class WatchedStore:
    store: VectorStore
    names: StoreSettings
    readiness: Readiness
    disk: DiskWatch
    receipts: ReceiptStore
    space: StoreSpace
    sync: FolderSync

    async def problems(self) -> dict[str, str]:
        problems = await self.readiness.problems()
        if await self.disk.is_full():
            problems["disk"] = str(await self.disk.problem())
        return problems

    async def figures(self) -> StoreFigures:
        names, now_us = self.names, utc_now_us()
        return StoreFigures(
            turns=await self._points(names.conversation_collection),
            sessions=await self._points(names.session_collection),
            documents=await self._points(names.document_collection),
            chunks=await self._points(names.knowledge_collection),
            flushes=(await self.store.condition()).flushes if isinstance(self.store, StoreUpkeep) else None,
            size_bytes=await self.space.size_bytes(),
            free_bytes=(await self.store.room()).free_bytes if isinstance(self.store, StoreUpkeep) else None,
            operations=tuple(
                [each for kind in KINDS for each in await self.receipts.newest(1, kind, "", now_us)]
            ),
            syncs=tuple(await self.sync.last_reports()),
        )

    async def _points(self, collection: str) -> int:
        """About, with a Qdrant server: it would have to look at all of them to count them."""
        return (await self.store.get_collection(collection)).points_count or 0


class StoreLook:
    """`figures` are the last that could be had, `problems` names the parts that were not ready."""

    def __init__(self, watched: Watched, *, every_s: float = EVERY_S, patience_s: float = PATIENCE_S) -> None:
        self.figures: StoreFigures | None = None
        self.problems: frozenset[str] = frozenset()
        self._watched = watched
        self._every_s = every_s
        self._patience_s = patience_s
        self._not_before = 0.0  # of the monotonic clock
        self._task: asyncio.Task[None] | None = None

    async def health(self) -> dict[str, str]:
        """The problems by part, asked for now. Raises WenmaiError kinds."""
        problems = await self._watched.problems()
        self.problems = frozenset(problems)
        return problems

    def begin(self) -> None:
        """Look again, in the background, unless that was done just now; it returns at once."""
        now = time.monotonic()
        looking = self._task is not None and not self._task.done()
        if not looking and now >= self._not_before:
            self._not_before = now + self._every_s
            self._task = asyncio.create_task(self.look(), name="look at the store")

    async def look(self) -> None:
        """Raises nothing of the store's."""
        try:
            async with asyncio.timeout(self._patience_s):
                if "store" not in await self.health():
                    self.figures = await self._watched.figures()
        except (StoreUnavailableError, TimeoutError):
            self.problems |= {"store"}
        except (WenmaiError, OSError) as error:
            log.warning("metrics_incomplete", reason=str(error))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
