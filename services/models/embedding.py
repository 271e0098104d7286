"""Embedding off the event loop, on as many threads as there are cores; neither a long question nor a passage
delays another question."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

from llama_index.core.base.embeddings.base import BaseEmbedding

from core.errors import Cause, EmbeddingUnavailableError, ModelFailure
from core.prompt.budget import estimate_tokens
from core.relevance.meaning import QuestionTokens, with_parts

Vector = list[float]
Reading = TypeVar("Reading")
QUERY_BATCH = 8
MAX_QUERY_THREADS = 8
LONG_QUERY_TOKENS = 64  # 45 ms with the bundled model, which cannot be interrupted
PASSAGE_BATCH = 32
PASSAGE_BATCH_TOKENS = 512  # a third of a second with the bundled model: the longest delay of a stop
PASSAGE_NICENESS = 10
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


class QuestionReading(NamedTuple):
    """`tokens` is None if the model exposes none, or the text has none."""

    vector: Vector
    tokens: QuestionTokens | None = None


class PassageReading(NamedTuple):
    """`signs` are those of its tokens (core.relevance.meaning), "" if the model exposes none, followed by the
    vectors of its parts if these were embedded, too."""

    vector: Vector
    signs: str = ""


_PendingQuery = tuple[str, asyncio.Future[QuestionReading]]


class BatchEmbedding(BaseEmbedding):
    """An embedding that takes several texts in one call, queries too, which LlamaIndex does not support; a
    single text is a batch of one.

    `one_by_one`: batches gain nothing, and any number of threads may embed at once. `reads_tokens`: readings
    include tokens, from the same forward pass as the vector.
    """

    one_by_one: ClassVar[bool] = False

    @property
    def reads_tokens(self) -> bool:
        return False

    def read_queries(self, queries: Sequence[str]) -> list[QuestionReading]:
        return [QuestionReading(vector) for vector in self.get_query_embeddings(queries)]

    def read_passages(self, texts: Sequence[str]) -> list[PassageReading]:
        return [PassageReading(vector) for vector in self._get_text_embeddings(list(texts))]

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
    """Passages have low-priority threads, on half of the cores. Questions have a thread per core, and another
    one for long questions; a model that needs batches has one thread for all questions, and one for all
    passages.

    The engine cannot interrupt a text, so on a single thread the next question would wait for it: with the
    bundled model 400 ms after every answer of a hundred words.
    """

    def __init__(self, model: BaseEmbedding, name: str, dimension: int) -> None:
        self.name = name
        self.dimension = dimension
        self._model = model
        self._short = self._long = _QueryLane(self._read_queries, 1, QUERY_BATCH)
        self._passage_threads = 1
        if getattr(model, "one_by_one", False):
            cores = usable_cores()
            self._short = _QueryLane(self._read_queries, min(cores, MAX_QUERY_THREADS), 1)
            self._long = _QueryLane(self._read_queries, 1, 1)
            self._passage_threads = max(1, cores // 2)
        self._passages = ThreadPoolExecutor(
            self._passage_threads, thread_name_prefix="embed-passage", initializer=_lower_priority
        )

    @property
    def waiting(self) -> int:
        """The number of questions that no thread has taken yet."""
        return sum(len(lane.waiting) for lane in self._lanes)

    @property
    def reads_tokens(self) -> bool:
        return isinstance(self._model, BatchEmbedding) and self._model.reads_tokens

    async def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Return query-side unit vectors, in the order of `texts`. Raises EmbeddingUnavailableError."""
        return [reading.vector for reading in await self.read_queries(texts)]

    async def read_queries(self, texts: Sequence[str]) -> list[QuestionReading]:
        """Embed queries; the readings include tokens. Raises EmbeddingUnavailableError."""
        return list(await asyncio.gather(*map(self.begin_query, texts)))

    def begin_query(self, text: str) -> asyncio.Future[QuestionReading]:
        """Start to embed one query; the future's exception is an EmbeddingUnavailableError."""
        return self._lane(text).ask(text)

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        """Return passage-side unit vectors, in the order of `texts`. Raises EmbeddingUnavailableError."""
        return [reading.vector for reading in await self.read_passages(texts)]

    async def read_passages(
        self, texts: Sequence[str], parts: Sequence[Sequence[str]] = ()
    ) -> list[PassageReading]:
        """Embed passages; if the model exposes tokens, the signs are followed by the vectors of each text's
        `parts`. Raises EmbeddingUnavailableError."""
        batches = passage_batches(texts)
        readings: list[PassageReading] = []
        # no more at once than there are threads, so that other callers get their turn
        while begun := [*map(self._begin_passages, islice(batches, self._passage_threads))]:
            readings += chain.from_iterable(await asyncio.gather(*begun))
        if not parts or not self.reads_tokens:
            return readings
        vectors = iter(await self.embed_passages([part for own in parts for part in own]))
        return [
            each._replace(signs=with_parts(each.signs, [next(vectors) for _ in own]))
            for each, own in zip(readings, parts, strict=True)
        ]

    def _begin_passages(self, batch: list[str]) -> asyncio.Future[list[PassageReading]]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._passages, _call_model, self._read_passages, batch)

    async def close(self) -> None:
        """Stop all threads and cancel what is still waiting."""
        for lane in self._lanes:
            await lane.close()
        self._passages.shutdown(wait=True, cancel_futures=True)

    @property
    def _lanes(self) -> set[_QueryLane]:
        return {self._short, self._long}

    def _lane(self, text: str) -> _QueryLane:
        return self._short if estimate_tokens(text) <= LONG_QUERY_TOKENS else self._long

    def _read_queries(self, texts: list[str]) -> list[QuestionReading]:
        if isinstance(self._model, BatchEmbedding):
            return self._model.read_queries(texts)
        together: Callable[[list[str]], list[Vector]] | None = getattr(
            self._model, "get_query_embeddings", None
        )
        vectors = together(texts) if together else [self._model.get_query_embedding(each) for each in texts]
        return [QuestionReading(vector) for vector in vectors]

    def _read_passages(self, texts: list[str]) -> list[PassageReading]:
        if self.reads_tokens and isinstance(self._model, BatchEmbedding):
            return self._model.read_passages(texts)
        return [PassageReading(vector) for vector in self._model.get_text_embedding_batch(texts)]


class _QueryLane:
    """A queue of questions, taken in order by `threads` threads, `batch` at a time; each gets its vector as
    soon as its batch is done. A thread takes the next batch without the event loop, which may be busy for
    longer than a question takes."""

    def __init__(self, read: Callable[[list[str]], list[QuestionReading]], threads: int, batch: int) -> None:
        self._read = read
        self._batch = batch
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="embed-query")
        self.waiting: deque[_PendingQuery] = deque()

    def ask(self, text: str) -> asyncio.Future[QuestionReading]:
        """Queue one question; cancelled before its turn, it costs nothing."""
        loop = asyncio.get_running_loop()
        reading: asyncio.Future[QuestionReading] = loop.create_future()
        self.waiting.append((text, reading))
        if self._batch == 1:
            self._submit(loop)
        else:  # batched with what is asked in the same step of the event loop
            loop.call_soon(self._submit, loop)
        return reading

    async def close(self) -> None:
        for _, reading in list(self.waiting):
            reading.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _submit(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._pool.submit(self._take, loop)
        except RuntimeError as error:  # closed, or out of threads
            _deliver(self._next(), EmbeddingUnavailableError(f"No question can be embedded: {error}."))

    def _take(self, loop: asyncio.AbstractEventLoop) -> None:
        """Embed the next batch, in a pool thread; submitted once per question, so that none is left."""
        if not (batch := self._next()):
            return
        try:
            outcome: list[QuestionReading] | Exception = _call_model(self._read, [text for text, _ in batch])
        except Exception as error:  # noqa: BLE001 — the model's; passed on to the caller
            outcome = error
        loop.call_soon_threadsafe(_deliver, batch, outcome)

    def _next(self) -> list[_PendingQuery]:
        batch: list[_PendingQuery] = []
        with suppress(IndexError):  # another thread has taken the last
            while len(batch) < self._batch:
                asked = self.waiting.popleft()
                if not asked[1].done():
                    batch.append(asked)
        return batch


def _deliver(batch: Sequence[_PendingQuery], outcome: Sequence[QuestionReading] | Exception) -> None:
    for at, (_, reading) in enumerate(batch):
        if reading.done():
            continue  # the caller has left
        if isinstance(outcome, Exception):
            reading.set_exception(outcome)
        else:
            reading.set_result(outcome[at])


def _call_model(embed: Callable[[list[str]], list[Reading]], texts: list[str]) -> list[Reading]:
    """Call `embed`; translate what the model raises into an EmbeddingUnavailableError."""
    try:
        return embed(texts)
    except EmbeddingUnavailableError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        reason = type(error).__name__
        failed = ModelFailure(Cause.CLASS_FAILED)
        raise EmbeddingUnavailableError(f"The embedding model failed: {reason}.", failed) from error


def usable_cores() -> int:
    """Return the number of cores this process may use: on Linux by affinity and container quota (cgroup v2),
    elsewhere those of the machine."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no quota file, or it says "max"
        quota, period = map(int, CPU_QUOTA.read_text(encoding="ascii").split())
        cores = min(cores, max(1, quota // period))
    return cores


def passage_batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield batches in order, of up to PASSAGE_BATCH texts and, except single ones, PASSAGE_BATCH_TOKENS."""
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


def _lower_priority() -> None:
    """Lower the thread's priority, on Linux only: elsewhere niceness would slow the whole process."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        # a process that was started with a higher niceness may not lower it
        niceness = max(PASSAGE_NICENESS, os.getpriority(os.PRIO_PROCESS, thread))
        os.setpriority(os.PRIO_PROCESS, thread, niceness)
