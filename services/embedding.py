"""Embedding off the event loop: one thread, waiting queries embedded together, passages in small batches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar, cast

from llama_index.core.base.embeddings.base import BaseEmbedding

from core.errors import EmbeddingUnavailableError

T = TypeVar("T")
Vector = list[float]
QUERY_BATCH = 8
PASSAGE_BATCH = 4


class QueryBatchEmbedding(Protocol):
    """An embedding that can embed several queries in one call (LlamaIndex's base type cannot)."""

    def get_query_embeddings(self, queries: Sequence[str]) -> list[Vector]: ...


class EmbeddingService:
    """Queries overtake passages, so that ingestion never keeps a question waiting for long."""

    def __init__(self, model: BaseEmbedding, name: str, dimension: int) -> None:
        self.name = name
        self.dimension = dimension
        self._model = model
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="embedding")
        self._queries: deque[tuple[str, asyncio.Future[Vector]]] = deque()
        self._passages: deque[tuple[list[str], asyncio.Future[list[Vector]]]] = deque()
        self._worker: asyncio.Task[None] | None = None

    async def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Query-side unit vectors, in the order of `texts`. Raises EmbeddingUnavailableError."""
        loop = asyncio.get_running_loop()
        waiting = [(text, loop.create_future()) for text in texts]
        self._queries.extend(waiting)
        self._wake()
        return list(await asyncio.gather(*(future for _, future in waiting)))

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        """Passage-side unit vectors, in the order of `texts`. Raises EmbeddingUnavailableError."""
        loop = asyncio.get_running_loop()
        vectors: list[Vector] = []
        for start in range(0, len(texts), PASSAGE_BATCH):
            future: asyncio.Future[list[Vector]] = loop.create_future()
            self._passages.append((list(texts[start : start + PASSAGE_BATCH]), future))
            self._wake()
            vectors.extend(await future)
        return vectors

    async def close(self) -> None:
        """Stop the worker and its thread; what still waits is cancelled."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        for _, query in self._queries:
            query.cancel()
        for _, passages in self._passages:
            passages.cancel()
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _wake(self) -> None:
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work(), name="embedding")

    async def _work(self) -> None:
        while self._queries or self._passages:
            if self._queries:
                batch = [self._queries.popleft() for _ in range(min(QUERY_BATCH, len(self._queries)))]
                vectors = await self._run(self._embed_queries, [text for text, _ in batch])
                for index, (_, future) in enumerate(batch):
                    _resolve(future, vectors if isinstance(vectors, Exception) else vectors[index])
            else:
                texts, passages = self._passages.popleft()
                _resolve(passages, await self._run(self._embed_passages, texts))

    async def _run(self, embed: object, texts: list[str]) -> list[Vector] | Exception:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, embed, texts)  # type: ignore[arg-type]
        except (OSError, RuntimeError, ValueError) as error:
            return EmbeddingUnavailableError(f"The embedding model failed: {type(error).__name__}.")

    def _embed_queries(self, texts: list[str]) -> list[Vector]:
        if hasattr(self._model, "get_query_embeddings"):
            return cast(QueryBatchEmbedding, self._model).get_query_embeddings(texts)
        return [self._model.get_query_embedding(text) for text in texts]

    def _embed_passages(self, texts: list[str]) -> list[Vector]:
        return self._model.get_text_embedding_batch(texts)


def _resolve(future: asyncio.Future[T], result: T | Exception) -> None:
    if future.done():
        return  # whoever asked has gone
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
