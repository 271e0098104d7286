"""The guide that comes with Wenmai as a sample: read in at the first start, removed for good on request."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from api.admin.erasure import ErasureHandler
from core.errors import UnknownDocumentError, WenmaiError
from core.knowledge import SHARED_OWNER
from core.operations.erasure import ErasureOptions
from services.knowledge.base import KnowledgeBase
from services.knowledge.sample import load_folder

log = structlog.get_logger()


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
        for document_id in await self._knowledge.sample_ids():
            with suppress(UnknownDocumentError):  # somebody else was quicker
                removed.update(await self._erased(document_id))
        log.info("sample_removed", **removed)
        return RemovedSample(removed["documents"], removed["chunks"], removed["left"])

    async def _erased(self, document_id: str) -> dict[str, int]:
        document = await self._knowledge.get_document(document_id, (SHARED_OWNER,))
        erased = await self._erasure.document(document_id, (SHARED_OWNER,), ErasureOptions())
        left = erased.proof.hits if erased.proof else 0
        return {"documents": 1, "chunks": document.chunk_count, "left": left}
