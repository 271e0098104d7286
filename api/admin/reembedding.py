"""Copy the store for another embedding model in the background while questions are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import structlog
from pydantic import ValidationError

from config.settings import ModelSettings, StoreSettings
from core.errors import BadRequestError, StartRefusedError, StillRunningError, WenmaiError
from services.models.embedding import EmbeddingService
from services.operations.reembedding.beside import CopyBeside, OpenFolder
from services.operations.reembedding.folders import StoreFolders
from services.operations.reembedding.run import CopyMode, Reembed, ReembedPlan, SyncProgress
from services.store.clock import Activity, utc_now_us
from services.store.dialect import VectorStore

log = structlog.get_logger()

OpenEmbedding = Callable[[ModelSettings], AbstractAsyncContextManager[EmbeddingService]]
BUSY_WAIT_S = 5.0  # longest wait between two batches while answers are being written
CONTINUED = "it did not end before the server did; POST /admin/reembed?dry_run=false with it continues"
REST_S = 0.01  # between any two batches, so that other work gets its turn


@dataclass(frozen=True, slots=True)
class ReembedState:
    """`status`: idle, running, prepared, failed, cancelled, or interrupted by the end of the server. Times
    are UTC microseconds, 0 if not yet.

    Round 1 embeds everything that is missing, later rounds what was written meanwhile. In this round `done`
    of `total` points are compared and `embedded` received their vectors.
    """

    status: str = "idle"
    embedding: str = ""
    dimension: int = 0
    round: int = 0
    done: int = 0
    total: int = 0
    embedded: int = 0
    began_us: int = 0
    ended_us: int = 0
    error: str = ""


class StoreReembedding:
    """Runs one re-embedding at a time. `cancel` stops it; the next start resumes its work. Callers name the
    embedding as EMBEDDING does; addresses, keys and options are the server's own settings."""

    def __init__(
        self,
        names: StoreSettings,
        models: ModelSettings,
        store: VectorStore,
        activity: Activity,
        open_embedding: OpenEmbedding,
        open_folder: OpenFolder,
        folder: Path,
    ) -> None:
        """`folder` is the embedded store's; `open_folder` opens a sibling folder by name."""
        self._names = names
        self._models = models
        self._store = store
        self._activity = activity
        self._open_embedding = open_embedding
        self._open_folder = open_folder
        self._folders = StoreFolders(folder)
        self._state = self._earlier()
        self._task: asyncio.Task[None] | None = None

    def _earlier(self) -> ReembedState:
        """Return the state in which an earlier start of the server left the copy."""
        copied = None if self._names.qdrant_url else self._folders.copied_as(self._names)
        if copied is None:
            return ReembedState()
        status, error = ("prepared", "") if self._folders.is_prepared else ("interrupted", CONTINUED)
        return ReembedState(status, copied.embedding, copied.dimension, error=error)

    def state(self) -> ReembedState:
        return self._state

    async def plan(self, embedding: str) -> ReembedPlan:
        """Load the model and plan. Raises BadRequestError if it cannot be loaded, UnavailableError kinds."""
        try:
            async with self._open_embedding(self._settings_for(embedding)) as opened:
                return await Reembed(self._store, self._names, opened).plan()
        except StartRefusedError as error:
            raise BadRequestError(f"embedding: {error}") from error

    def start(self, embedding: str) -> ReembedState:
        """Start or resume. Raises BadRequestError, StillRunningError when one is already running."""
        if self._is_running():
            raise StillRunningError("A re-embedding is running: GET /admin/reembed shows its progress.")
        settings = self._settings_for(embedding)
        self._state = ReembedState("running", embedding=embedding, began_us=utc_now_us())
        self._task = asyncio.create_task(self._run(settings), name="reembed")
        return self._state

    async def cancel(self) -> ReembedState:
        """Stop; the next start resumes from here. Does nothing when none is running."""
        if self._is_running() and self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._end("cancelled")
        return self._state

    def _is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def _settings_for(self, embedding: str) -> ModelSettings:
        if self._names.qdrant_url:
            raise BadRequestError("With QDRANT_URL, use the command instead: wenmai reembed.")
        if embedding == "openai":
            embedding = f"openai:{self._models.openai_embedding}"
        try:
            return ModelSettings.model_validate({**self._models.model_dump(), "embedding": embedding})
        except ValidationError as error:
            raise BadRequestError(
                "embedding: must be bundled, openai, sentence-transformers:<id or folder> or "
                "llama_index:module:Class."
            ) from error

    async def _run(self, settings: ModelSettings) -> None:
        try:
            async with self._open_embedding(settings) as embedding:
                self._state = replace(self._state, embedding=embedding.name, dimension=embedding.dimension)
                await self._make(embedding)
        except (WenmaiError, OSError) as error:
            log.warning("reembedding_failed", error=type(error).__name__)
            message = str(error) if isinstance(error, WenmaiError) else type(error).__name__
            self._end("failed", message)

    async def _make(self, embedding: EmbeddingService) -> None:
        copy = CopyBeside(
            self._folders, self._names, embedding, lambda: self._open_folder(self._folders.copy.name)
        )
        if self._folders.fits(self._names, copy.expected):
            self._end("idle")
            return
        mode = CopyMode(live=True, pause=self._pause)
        report = await copy.make(self._store, self._tell, reason="request", mode=mode)
        self._end("prepared")
        log.info("reembedding_prepared", embedding=embedding.name, rounds=report.rounds, **report.counts)

    async def _pause(self) -> None:
        await asyncio.sleep(REST_S)
        await self._activity.quiet(BUSY_WAIT_S)

    def _tell(self, progress: SyncProgress) -> None:
        self._state = replace(self._state, **asdict(progress))

    def _end(self, status: str, error: str = "") -> None:
        self._state = replace(self._state, status=status, error=error, ended_us=utc_now_us())
