"""The sample documents (Wenmai's guide): loaded at the first start, updated when a new version brings another
guide, removed for good on request."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from api.admin.erasure import ErasureHandler
from config.settings import Settings
from core.errors import UnknownDocumentError, WenmaiError
from core.formats import reading_of, supported_files
from core.knowledge import SHARED_OWNER, JobStage, Upload
from core.operations.erasure import ErasureOptions
from services.knowledge.base import KnowledgeBase

log = structlog.get_logger()

SAMPLE_FOLDER = Path(__file__).parents[2] / "docs" / "guide"
SAMPLE_MARKER = "sample-loaded"


_REMOVED = "removed"  # in the marker, in place of a guide's fingerprint


def sample_is_pending(settings: Settings) -> bool:
    """Whether this start loads the sample documents, or updates those of another version. Blocking."""
    if not (settings.knowledge.load_sample and SAMPLE_FOLDER.is_dir()):
        return False
    return _marker(settings.store.data_dir) not in (_REMOVED, _fingerprint(SAMPLE_FOLDER))


def mark_sample_loaded(data_dir: Path, note: str = "") -> None:
    """Keep later starts from loading a sample that was deleted. `note` is what is known of the stored one:
    the fingerprint of its guide, or "" (a restored store, or an earlier version)."""
    data_dir.mkdir(parents=True, exist_ok=True)
    (data_dir / SAMPLE_MARKER).write_text(note)


def _marker(data_dir: Path) -> str | None:
    try:
        return (data_dir / SAMPLE_MARKER).read_text(errors="replace")
    except FileNotFoundError:
        return None


def _fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in supported_files(folder):
        digest.update(f"{path.relative_to(folder)}\n{reading_of(path.name)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class RemovedSample:
    """`left` is how many traces were still stored after the removal, backups aside: the guide is public."""

    documents: int
    chunks: int
    left: int


class SampleHandler:
    def __init__(self, knowledge: KnowledgeBase, erasure: ErasureHandler, data_dir: Path) -> None:
        self._knowledge = knowledge
        self._erasure = erasure
        self._data_dir = data_dir
        self._loading: asyncio.Task[object] | None = None

    async def load(self) -> None:
        """Load the guide at the first start; later, replace what is still stored of another version's guide.
        A sample that somebody deleted stays deleted."""
        self._loading = asyncio.current_task()
        try:
            failed = await self._load()
        except WenmaiError as error:
            log.warning("sample_not_loaded", error=str(error))
            return
        finally:
            self._loading = None
            self._knowledge.jobs.sample_pending = False
        log.info("sample_loaded", failed=len(failed))

    async def _load(self) -> dict[str, str]:
        before = await self._knowledge.documents.sample_ids()
        failed: dict[str, str] = {}
        if before or await asyncio.to_thread(_marker, self._data_dir) is None:
            failed = await load_folder(self._knowledge, SAMPLE_FOLDER)
            shipped = {path.relative_to(SAMPLE_FOLDER).as_posix() for path in supported_files(SAMPLE_FOLDER)}
            for document_id in before:
                document = await self._knowledge.get_document(document_id, (SHARED_OWNER,))
                if document.external_id not in shipped:
                    await self._knowledge.erase(document_id)
        note = await asyncio.to_thread(_fingerprint, SAMPLE_FOLDER)
        await asyncio.to_thread(mark_sample_loaded, self._data_dir, note)
        return failed

    async def remove(self) -> RemovedSample:
        """Erase every sample document with its traces in turns; stop loading if it is under way.

        Raises StoreUnavailableError; calling it again then finishes the removal.
        """
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
        await asyncio.to_thread(mark_sample_loaded, self._data_dir, _REMOVED)
        removed: Counter[str] = Counter()
        for document_id in await self._knowledge.documents.sample_ids():
            with suppress(UnknownDocumentError):  # already deleted by someone else
                removed.update(await self._erase(document_id))
        log.info("sample_removed", **removed)
        return RemovedSample(removed["documents"], removed["chunks"], removed["left"])

    async def _erase(self, document_id: str) -> dict[str, int]:
        document = await self._knowledge.get_document(document_id, (SHARED_OWNER,))
        erased = await self._erasure.document(document_id, (SHARED_OWNER,), ErasureOptions())
        places = erased.proof.searched if erased.proof else ()
        left = sum(each.hits for each in places if each.place != "backups")
        return {"documents": 1, "chunks": document.chunk_count, "left": left}


IN_FLIGHT = 4  # the next files are parsed while one is embedded


async def load_folder(knowledge_base: KnowledgeBase, folder: Path) -> dict[str, str]:
    """Add the files of `folder` for everybody, each with its path in it as external id. Returns errors by
    that path.

    A file cut off by a crash is marked failed and ingested when the folder is loaded again.
    """
    running: deque[tuple[str, str]] = deque()
    failed: dict[str, str] = {}

    async def follow_next() -> None:
        name, job_id = running.popleft()
        outcome = await knowledge_base.wait(job_id, [SHARED_OWNER])
        if outcome.stage is not JobStage.DONE:
            failed[name] = outcome.error or "The document was removed while it was being read."

    for path in await asyncio.to_thread(_small_first, folder):
        name = path.relative_to(folder).as_posix()
        try:
            content = await asyncio.to_thread(path.read_bytes)
            addition = await knowledge_base.add(
                Upload(SHARED_OWNER, path.name, content, name, tags=(), comes_again=True)
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
    """Sort by size, so that much can be asked about early, in every language of the folder."""
    return sorted(supported_files(folder), key=lambda path: path.stat().st_size)
