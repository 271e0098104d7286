"""The store's readiness and figures, refreshed in the background so that a scrape never waits for it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
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

EVERY_S = 10.0  # at most this often, however many scrapers there are
PATIENCE_S = 10.0  # a store silent for longer counts as unavailable
RETRY_S = 2.0
NOT_WRITABLE = "The disk of the data folder refuses writes; see the server's log for the error."
KINDS = (ReceiptKind.EXPIRY, ReceiptKind.BACKUP, ReceiptKind.COMPACTION)

Step = Callable[[], Awaitable[object]]


class Readiness:
    """Whether questions can be asked. A Qdrant server may come up later, the embedded store must be there."""

    def __init__(self, store: VectorStore, settings: StoreSettings, embedding: EmbeddingService) -> None:
        self._store = store
        self._settings = settings
        self._embedding = embedding
        self._steps: tuple[Step, ...] = ()
        self._prepared = False
        self.damage: Sequence[str] = ()  # of the store, as of the last `problems`

    async def prepare(self, *steps: Step) -> None:
        """Create the collections, then run `steps`. With QDRANT_URL, an unavailable store is retried later.

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
        """Retry until it succeeds; return immediately if it already has."""
        limited_log = RateLimitedLog(limit=1)
        while not self._prepared:
            await asyncio.sleep(RETRY_S)
            try:
                await self._attempt()
            except WenmaiError as error:
                limited_log(logging.WARNING, "store_not_ready", {"error": str(error)})

    @property
    def prepared(self) -> bool:
        """Whether the store has answered once and has its collections."""
        return self._prepared

    async def problems(self) -> dict[str, str]:
        """Return the reasons why parts are not ready, by part."""
        if not self._prepared:
            return {"store": "The store has not answered yet; it is tried again every two seconds."}
        try:
            await self._store.count(self._settings.session_collection)
            if isinstance(self._store, StoreUpkeep):
                condition = await self._store.condition()
                self.damage = condition.damage
                if not condition.writable:
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
    """`operations` holds the newest receipt of each kind, `syncs` the last run of each followed folder that
    has had one. Sizes in bytes are None where the engine does not report them."""

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
        """Return problems by part; empty when questions can be asked."""
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
        """Approximate with a Qdrant server, which would have to visit every point for an exact count."""
        return (await self.store.get_collection(collection)).points_count or 0


class StoreStatus:
    """`figures` are the last ones available; `problems` names the parts that were not ready."""

    def __init__(self, watched: Watched, *, every_s: float = EVERY_S, patience_s: float = PATIENCE_S) -> None:
        self.figures: StoreFigures | None = None
        self.problems: frozenset[str] = frozenset()
        self._watched = watched
        self._every_s = every_s
        self._patience_s = patience_s
        self._not_before = 0.0  # on the monotonic clock
        self._task: asyncio.Task[None] | None = None

    async def health(self) -> dict[str, str]:
        """Check now and return the problems by part. Raises WenmaiError kinds."""
        problems = await self._watched.problems()
        self.problems = frozenset(problems)
        return problems

    def begin(self) -> None:
        """Refresh in the background unless that has just been done; return immediately."""
        now = time.monotonic()
        refreshing = self._task is not None and not self._task.done()
        if not refreshing and now >= self._not_before:
            self._not_before = now + self._every_s
            self._task = asyncio.create_task(self.refresh(), name="refresh the store status")

    async def refresh(self) -> None:
        """Refresh `problems` and `figures`. Never raises a store error."""
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
