"""The product's own services in this process, over a store that is thrown away."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from llama_index.core.base.embeddings.base import BaseEmbedding

from api.container import Container
from api.search.handler import SearchRequest
from api.wiring.assembly import open_container
from config.settings import load_settings
from core.errors import WenmaiError
from core.knowledge import Candidate, JobStage, Upload
from scripts.evaluation.cached_embedding import CachedEmbedding
from scripts.evaluation.figures import quantile
from scripts.evaluation.target import Hit, NotReadError, SearchResult

READS_AT_ONCE = 32
TIMED_QUESTIONS = 20


class Services:
    """The container's parts; its vectors come from the cache where it has them."""

    reads_at_once = READS_AT_ONCE

    def __init__(self, container: Container, embedding: CachedEmbedding) -> None:
        self.container = container
        self._embedding = embedding
        self._in_order = asyncio.Lock()

    async def add(self, upload: Upload) -> str:
        """Raises NotReadError."""
        knowledge = self.container.knowledge
        try:
            async with self._in_order:  # what ties is found in the order it came in, the same in every run
                addition = await knowledge.add(upload)
        except WenmaiError as error:
            raise NotReadError(error.code) from error
        if addition.job_id is not None:
            job = await knowledge.wait(addition.job_id, [upload.owner])
            if job.stage is not JobStage.DONE:
                raise NotReadError(job.error_code or job.stage.value)
        return addition.document.document_id

    async def search(self, request: SearchRequest) -> SearchResult:
        started, embedded_s = time.perf_counter(), self._embedding.query_s
        report = await self.container.search.search(request)
        elapsed_s = time.perf_counter() - started - (self._embedding.query_s - embedded_s)
        return SearchResult(tuple(_hit(one.candidate) for one in report.candidates), elapsed_s * 1000)

    async def embedding_ms(self, texts: Sequence[str]) -> float:
        """What the model itself takes for a question: the median of a few, past the cache."""
        return await asyncio.to_thread(_embedding_ms, self._embedding.inner, texts[:TIMED_QUESTIONS])


@asynccontextmanager
async def open_services(cache: Path | None) -> AsyncIterator[Services]:
    """As configured, but for the store: an embedded one of its own, empty. Raises StartRefusedError."""
    with tempfile.TemporaryDirectory(prefix="wenmai-evaluation-") as folder:
        settings = load_settings(
            store={"data_dir": Path(folder) / "data", "qdrant_url": None}, knowledge={"load_sample": False}
        )
        cached: list[CachedEmbedding] = []

        def wrap(model: BaseEmbedding, name: str) -> BaseEmbedding:
            cached.append(CachedEmbedding(model, cache or Path(folder) / "vectors", name))
            return cached[0]

        async with open_container(settings, wrap) as container:
            yield Services(container, cached[0])


def _hit(candidate: Candidate) -> Hit:
    return Hit(candidate.chunk.document_id, candidate.probability, candidate.chunk.indexed_text)


def _embedding_ms(model: BaseEmbedding, texts: Sequence[str]) -> float:
    times = []
    for text in texts:
        started = time.perf_counter()
        model.get_query_embedding(text)
        times.append(time.perf_counter() - started)
    return quantile(times, 0.5) * 1000
