"""Stages 4 and 5 with the shipped parts, over the guide: what is found, in which order, what is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache

from config.settings import RetrievalSettings
from core.knowledge import Candidate
from core.relevance.probability import apply_threshold
from services.adapters.e5.embedding import BundledEmbedding
from services.models.embedding import EmbeddingService
from services.retrieval.query_forms import QueryBuilder
from services.retrieval.reranking import RerankService
from services.retrieval.retriever import Retriever
from tests.support.guide import COLLECTION, GUIDE, OWNER, chunk_of, index_guide, open_collection

SETTINGS = RetrievalSettings()


class Pipeline:
    def __init__(self, embedding: EmbeddingService, retriever: Retriever) -> None:
        self._builder = QueryBuilder(embedding)
        self._retriever = retriever
        self._reranker = RerankService(None, SETTINGS, embedding.name)

    async def fused(self, question: str, *previous: str) -> list[Candidate]:
        """The fused order of the lists, before any reranking."""
        return await self._retriever.search(await self._builder.build(question, previous), [OWNER])

    async def ranked(self, question: str, *previous: str, last_answer: str = "") -> tuple[Candidate, ...]:
        """All candidates, best first; `previous` questions oldest first."""
        query = await self._builder.build(question, previous, last_answer=last_answer)
        hits = await self._reranker.rerank(query, await self._retriever.search(query, [OWNER]))
        return hits.candidates

    async def accepted(self, question: str, *previous: str) -> list[Candidate]:
        ranked = await self.ranked(question, *previous)
        return apply_threshold(ranked, SETTINGS.rerank_score_threshold, 10, question)


@cache
def bundled_model() -> BundledEmbedding:
    """One for all tests of a process: loading takes a second."""
    return BundledEmbedding()


@cache
def _guide_vectors() -> list[list[float]]:
    return bundled_model().get_text_embedding_batch([chunk_of(name).indexed_text for name in GUIDE])


@asynccontextmanager
async def open_pipeline() -> AsyncIterator[Pipeline]:
    embedding = EmbeddingService(bundled_model(), "multilingual-e5-small", 384)
    async with open_collection(384) as store:
        await index_guide(store, _guide_vectors())
        yield Pipeline(embedding, Retriever(store, COLLECTION, SETTINGS))
    await embedding.close()


def names(hits: Sequence[Candidate]) -> list[str]:
    """Names of the guide's articles, in the order of the hits."""
    return [item.chunk.file_name.removesuffix(".md") for item in hits]
