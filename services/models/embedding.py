"""Embedding off the event loop: waiting questions are embedded together, and passages never delay them."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from llama_index.core.base.embeddings.base import BaseEmbedding

from core.errors import Cause, EmbeddingUnavailableError, ModelFailure
from core.prompt.budget import estimate_tokens

Vector = list[float]
QUERY_BATCH = 8
PASSAGE_BATCH = 32
PASSAGE_BATCH_TOKENS = 512  # a third of a second of the bundled model: how soon a stop is felt
PASSAGE_NICENESS = 10


class BatchEmbedding(BaseEmbedding):
    """One that embeds several texts of either side in one call, queries too, which LlamaIndex cannot;
    of one text it is a batch of one."""

    @abstractmethod
    def get_query_embeddings(self, queries: Sequence[str]) -> list[Vector]: ...

    @abstractmethod
    def _get_text_embeddings(self, texts: list[str]) -> list[Vector]: ...

    def _get_query_embedding(self, query: str) -> list[float]:
        return self.get_query_embeddings([query])[0]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


class EmbeddingService:
    """Two threads: one for questions, a less urgent one for passages.

    A long passage cannot be interrupted, so on one thread the next question would wait for it; with
    the bundled model it once was 400 ms after every answer of a hundred words.
    """

    def __init__(self, model: BaseEmbedding, name: str, dimension: int) -> None:
        self.name = name
        self.dimension = dimension
        self._model = model
        self._query_thread = ThreadPoolExecutor(1, thread_name_prefix="embed-query")
        self._passage_thread = ThreadPoolExecutor(
            1, thread_name_prefix="embed-passage", initializer=_be_less_urgent
        )
        self._waiting: deque[tuple[str, asyncio.Future[Vector]]] = deque()
        self._worker: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Questions that no batch has taken yet."""
        return len(self._waiting)

    async def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Query-side unit vectors, in the order of `texts`. Raises EmbeddingUnavailableError."""
        loop = asyncio.get_running_loop()
        asked = [(text, loop.create_future()) for text in texts]
        self._waiting.extend(asked)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._answer_waiting(), name="embedding")
        return list(await asyncio.gather(*(future for _, future in asked)))

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        """Passage-side unit vectors, in the order of `texts`. Raises EmbeddingUnavailableError."""
        vectors: list[Vector] = []
        for batch in passage_batches(texts):
            vectors += await self._run(self._passage_thread, self._model.get_text_embedding_batch, batch)
        return vectors

    async def close(self) -> None:
        """Stop both threads; what still waits is cancelled."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        for _, future in self._waiting:
            future.cancel()
        for thread in (self._query_thread, self._passage_thread):
            thread.shutdown(wait=True, cancel_futures=True)

    async def _answer_waiting(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(QUERY_BATCH, len(self._waiting)))]
            try:
                vectors = await self._run(
                    self._query_thread, self._embed_queries, [text for text, _ in batch]
                )
            except EmbeddingUnavailableError as error:
                for _, future in batch:
                    if not future.done():  # done: whoever asked has gone
                        future.set_exception(error)
                continue
            for (_, future), vector in zip(batch, vectors, strict=True):
                if not future.done():
                    future.set_result(vector)

    async def _run(
        self, thread: ThreadPoolExecutor, embed: Callable[[list[str]], list[Vector]], texts: list[str]
    ) -> list[Vector]:
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, embed, texts)
        except EmbeddingUnavailableError:
            raise
        except (OSError, RuntimeError, ValueError) as error:
            reason = type(error).__name__
            failed = ModelFailure(Cause.CLASS_FAILED)
            raise EmbeddingUnavailableError(f"The embedding model failed: {reason}.", failed) from error

    def _embed_queries(self, texts: list[str]) -> list[Vector]:
        together: Callable[[list[str]], list[Vector]] | None = getattr(
            self._model, "get_query_embeddings", None
        )
        return together(texts) if together else [self._model.get_query_embedding(text) for text in texts]


def passage_batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """In order; each of at most PASSAGE_BATCH texts and, unless it is one text, PASSAGE_BATCH_TOKENS."""
    batch: list[str] = []
    room = PASSAGE_BATCH_TOKENS
    for text in texts:
        tokens = estimate_tokens(text)
        if batch and (tokens > room or len(batch) == PASSAGE_BATCH):
            yield batch
            batch, room = [], PASSAGE_BATCH_TOKENS
        batch.append(text)
        room -= tokens
    if batch:
        yield batch


def _be_less_urgent() -> None:
    """On Linux niceness belongs to a thread; elsewhere it would slow the whole process, so it is left."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        # a process that was started with more of it may not lower it
        niceness = max(PASSAGE_NICENESS, os.getpriority(os.PRIO_PROCESS, thread))
        os.setpriority(os.PRIO_PROCESS, thread, niceness)
