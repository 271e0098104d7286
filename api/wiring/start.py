"""Getting ready: collections made, leftovers of a crash mended, the sample loaded once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import structlog

from config.settings import Settings, StoreSettings
from core.errors import StoreUnavailableError, WenmaiError
from services.knowledge.base import KnowledgeBase
from services.knowledge.sample import load_folder
from services.models.embedding import EmbeddingService
from services.operations.backup.target import RestoreFolders, refuse_half_filled
from services.operations.reembedding.beside import OpenFolder, switch_if_prepared
from services.retrieval.query_forms import QueryBuilder
from services.store.collections import ensure_collections
from services.store.dialect import VectorStore

log = structlog.get_logger()

RETRY_S = 2.0
SAMPLE_FOLDER = Path(__file__).parents[2] / "docs" / "guide"
SAMPLE_MARKER = "sample-loaded"

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
        while not self._prepared:
            await asyncio.sleep(RETRY_S)
            try:
                await self._attempt()
            except WenmaiError as error:
                log.warning("store_not_ready", error=str(error))

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
            await step()
        self._prepared = True


async def settle_folders(
    settings: StoreSettings, folder: str, embedding: EmbeddingService, open_folder: OpenFolder
) -> None:
    """Before the embedded store is opened: where a copy with this embedding's vectors was prepared beside it,
    that one takes its place. Raises StartRefusedError also when a restore into it was interrupted."""
    if not settings.qdrant_url:
        store = settings.data_dir / folder
        RestoreFolders(store).refuse_interrupted()
        await switch_if_prepared(store, settings, embedding, open_folder)


async def warm_up(queries: QueryBuilder) -> None:
    """The first question should not be the one that loads dictionaries and pages the model in."""
    await queries.build("预热 warm up", [])


def sample_is_pending(settings: Settings) -> bool:
    """Whether this start reads the sample knowledge base in."""
    enabled = settings.knowledge.load_sample and SAMPLE_FOLDER.is_dir()
    return enabled and not (settings.store.data_dir / SAMPLE_MARKER).exists()


async def load_sample_once(knowledge: KnowledgeBase, data_dir: Path, owner: str) -> None:
    """On the first start only, so that a sample somebody deleted stays deleted."""
    try:
        await load_folder(knowledge, SAMPLE_FOLDER, owner)
    except WenmaiError as error:
        log.warning("sample_not_loaded", error=str(error))
        return
    await asyncio.to_thread(_mark, data_dir / SAMPLE_MARKER)
    log.info("sample_loaded", folder=SAMPLE_FOLDER.name)


def _mark(marker: Path) -> None:
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()


@asynccontextmanager
async def opened_task(work: Coroutine[Any, Any, object]) -> AsyncIterator[asyncio.Task[object]]:
    """Run `work` beside the server; cancelled when the server closes, logged when it fails."""
    task = asyncio.create_task(work)
    task.add_done_callback(_log_failure)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _log_failure(task: asyncio.Task[object]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("background_work_failed", exc_info=error)
