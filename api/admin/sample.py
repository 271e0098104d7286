"""The guide that comes with Wenmai as a sample: read in at the first start, removed for good on request."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from api.admin.erasure import ErasureHandler
from config.settings import Settings
from core.errors import UnknownDocumentError, WenmaiError
from core.formats import supported_files
from core.knowledge import SHARED_OWNER, JobStage, Upload
from core.operations.erasure import ErasureOptions
from services.knowledge.base import KnowledgeBase

log = structlog.get_logger()

SAMPLE_FOLDER = Path(__file__).parents[2] / "docs" / "guide"
SAMPLE_MARKER = "sample-loaded"


def sample_is_pending(settings: Settings) -> bool:
    """Whether this start reads the sample knowledge base in."""
    enabled = settings.knowledge.load_sample and SAMPLE_FOLDER.is_dir()
    return enabled and not (settings.store.data_dir / SAMPLE_MARKER).exists()


def mark_sample_loaded(data_dir: Path) -> None:
    """No later start reads it in."""
    data_dir.mkdir(parents=True, exist_ok=True)
    (data_dir / SAMPLE_MARKER).touch()


@dataclass(frozen=True, slots=True)
class RemovedSample:
    """`left` is how many traces were still stored afterwards."""

    documents: int
    chunks: int
    left: int


class SampleHandler:
    """`mark_loaded` keeps later starts from reading it in."""

    def __init__(
        self, knowledge: KnowledgeBase, erasure: ErasureHandler, folder: Path, mark_loaded: Callable[[], None]
    ) -> None:
        self._knowledge = knowledge
        self._erasure = erasure
        self._folder = folder
        self._mark_loaded = mark_loaded
        self._loading: asyncio.Task[object] | None = None

    async def load(self) -> None:
        """On the first start only, so that a sample somebody deleted stays deleted."""
        self._loading = asyncio.current_task()
        try:
            failed = await load_folder(self._knowledge, self._folder, SHARED_OWNER)
        except WenmaiError as error:
            log.warning("sample_not_loaded", error=str(error))
            return
        finally:
            self._loading = None
            self._knowledge.jobs.sample_pending = False
        await asyncio.to_thread(self._mark_loaded)
        log.info("sample_loaded", failed=len(failed))

    async def remove(self) -> RemovedSample:
        """Every document of it, with what it left in turns; while it is read in, that ends.

        Raises StoreUnavailableError; then a repeat finishes it.
        """
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
        await asyncio.to_thread(self._mark_loaded)
        removed: Counter[str] = Counter()
        for document_id in await self._knowledge.documents.sample_ids():
            with suppress(UnknownDocumentError):  # somebody else was quicker
                removed.update(await self._erased(document_id))
        log.info("sample_removed", **removed)
        return RemovedSample(removed["documents"], removed["chunks"], removed["left"])

    async def _erased(self, document_id: str) -> dict[str, int]:
        document = await self._knowledge.get_document(document_id, (SHARED_OWNER,))
        erased = await self._erasure.document(document_id, (SHARED_OWNER,), ErasureOptions())
        left = erased.proof.hits if erased.proof else 0
        return {"documents": 1, "chunks": document.chunk_count, "left": left}


IN_FLIGHT = 4  # the next files are parsed while one is embedded


async def load_folder(knowledge_base: KnowledgeBase, folder: Path, owner: str) -> dict[str, str]:
    """Adds file after file; the path below the folder is its external id. Returns what could not be read, by
    that path, and why.

    What a crash cuts is failed afterwards, and read in when the folder is loaded again.
    """
    running: deque[tuple[str, str]] = deque()
    failed: dict[str, str] = {}

    async def follow_next() -> None:
        name, job_id = running.popleft()
        outcome = await knowledge_base.wait(job_id, [owner])
        if outcome.stage is not JobStage.DONE:
            failed[name] = outcome.error or "The document was removed while it was read in."

    for path in await asyncio.to_thread(_small_first, folder):
        name = path.relative_to(folder).as_posix()
        try:
            content = await asyncio.to_thread(path.read_bytes)
            addition = await knowledge_base.add(
                Upload(owner, path.name, content, name, tags=(), comes_again=True)
            )
        except (WenmaiError, OSError) as error:
            failed[name] = str(error)
            continue
        if addition.job_id is not None:
            running.append((name, addition.job_id))
        if len(running) > IN_FLIGHT:
            await follow_next()
    while running:
        await follow_next()
    return failed


def _small_first(folder: Path) -> list[Path]:
    """So that much can be asked about soon, in every language a folder has."""
    return sorted(supported_files(folder), key=lambda path: path.stat().st_size)
