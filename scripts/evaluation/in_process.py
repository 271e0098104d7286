"""The product's own services in this process, over a temporary store."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from numpy.typing import NDArray
from pydantic import PrivateAttr

from api.container import Container
from api.search.handler import SearchRequest
from api.turn.stream import ContentEvent, SourceEvent
from api.wiring.assembly import open_container
from config.settings import load_settings
from core.conversation.importing import ImportedSession, imported_turn
from core.conversation.turns import TurnRequest
from core.errors import BadRequestError, WenmaiError
from core.knowledge import Candidate, JobStage, Upload
from scripts.evaluation.figures import quantile
from scripts.evaluation.judging import Hit, Reply
from scripts.evaluation.knowledge import Exchanges, IngestionError, SearchResult
from services.models.embedding import BatchEmbedding, PassageReading, QuestionReading

Vectors = list[list[float]]


class CachedEmbedding(BatchEmbedding):
    """Wraps an embedding and caches its vectors in a folder, by the hash of name, side and text.

    `name` separates one model's vectors from another's; the default is the model's own. Missing vectors of
    several texts are embedded in one call if the model can. `query_s` is the time questions took so far.
    """

    _inner: BaseEmbedding = PrivateAttr()
    _folder: Path = PrivateAttr()
    _query_s: float = PrivateAttr(default=0.0)

    def __init__(self, inner: BaseEmbedding, folder: Path, name: str = "") -> None:
        super().__init__(model_name=name or inner.model_name)
        folder.mkdir(parents=True, exist_ok=True)
        self._inner, self._folder = inner, folder

    @property
    def inner(self) -> BaseEmbedding:
        return self._inner

    @property
    def query_s(self) -> float:
        return self._query_s

    def get_query_embeddings(self, queries: Sequence[str]) -> Vectors:
        started = time.perf_counter()
        vectors = self._cached("query", queries, self._embed_queries)
        self._query_s += time.perf_counter() - started
        return vectors

    def _get_text_embeddings(self, texts: list[str]) -> Vectors:
        return self._cached("passage", texts, self._inner.get_text_embedding_batch)

    def _embed_queries(self, texts: list[str]) -> Vectors:
        together: Callable[[list[str]], Vectors] | None = getattr(self._inner, "get_query_embeddings", None)
        return together(texts) if together else [self._inner.get_query_embedding(text) for text in texts]

    @property
    def reads_tokens(self) -> bool:
        return isinstance(self._inner, BatchEmbedding) and self._inner.reads_tokens

    def read_queries(self, queries: Sequence[str]) -> list[QuestionReading]:
        """Not cached: a question's tokens are fifteen times as large as its vector, and fast to compute."""
        if not self.reads_tokens or not isinstance(self._inner, BatchEmbedding):
            return super().read_queries(queries)
        started = time.perf_counter()
        readings = self._inner.read_queries(queries)
        self._query_s += time.perf_counter() - started
        return readings

    def read_passages(self, texts: Sequence[str]) -> list[PassageReading]:
        """Read passages; their signs are cached beside the vectors."""
        if not self.reads_tokens or not isinstance(self._inner, BatchEmbedding):
            return super().read_passages(texts)
        paths = {text: self._path("passage", text) for text in texts}
        read = {text: _reading(path) for text, path in paths.items()}
        missing = [text for text, reading in read.items() if reading is None]
        made = self._inner.read_passages(missing) if missing else []
        for text, new in zip(missing, made, strict=True):
            read[text] = new
            _write(paths[text], np.asarray(new.vector, dtype=np.float32))
            _write(_signs(paths[text]), np.frombuffer(new.signs.encode("ascii"), np.uint8))
        return [reading for text in texts if (reading := read[text]) is not None]

    def _cached(
        self, side: str, texts: Sequence[str], embed: Callable[[list[str]], Vectors]
    ) -> list[list[float]]:
        paths = {text: self._path(side, text) for text in texts}
        vectors = {text: _read(path) for text, path in paths.items()}
        missing = [text for text, vector in vectors.items() if vector is None]
        for text, vector in zip(missing, embed(missing) if missing else (), strict=True):
            vectors[text] = np.asarray(vector, dtype=np.float32)
            _write(paths[text], vectors[text])
        return [np.asarray(vectors[text]).tolist() for text in texts]

    def _path(self, side: str, text: str) -> Path:
        key = hashlib.sha256(f"{self.model_name}\n{side}\n{text}".encode("utf-8", "replace")).hexdigest()
        return self._folder / f"{key}.npy"


def _read(path: Path) -> NDArray[Any] | None:
    """Return None if the file is missing or truncated."""
    try:
        vector: NDArray[Any] = np.load(path)
    except (OSError, ValueError, EOFError):
        return None
    return vector


def _reading(path: Path) -> PassageReading | None:
    vector, signs = _read(path), _read(_signs(path))
    if vector is None or signs is None:
        return None
    return PassageReading(vector.tolist(), signs.tobytes().decode("ascii"))


def _signs(path: Path) -> Path:
    return path.with_suffix(".signs.npy")


def _write(path: Path, vector: NDArray[Any] | None) -> None:
    """Write atomically: another run may be reading."""
    half = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    with half.open("wb") as file:
        np.save(file, np.asarray(vector))
    half.replace(path)


MAX_INGESTING = 32
TIMED_QUESTIONS = 20


class Services:
    """A Target that uses the container's services; vectors come from the cache where possible."""

    max_ingesting = MAX_INGESTING

    def __init__(self, container: Container, embedding: CachedEmbedding) -> None:
        self.container = container
        self._embedding = embedding
        self._order_lock = asyncio.Lock()

    async def add(self, upload: Upload) -> str:
        """Raises IngestionError."""
        knowledge = self.container.knowledge
        try:
            async with self._order_lock:  # ties are ranked in ingestion order, the same in every run
                addition = await knowledge.add(upload)
        except WenmaiError as error:
            raise IngestionError(error.code) from error
        if addition.job_id is not None:
            job = await knowledge.wait(addition.job_id, [upload.owner])
            if job.stage is not JobStage.DONE:
                raise IngestionError(job.error_code or job.stage.value)
        return addition.document.document_id

    async def search(self, request: SearchRequest) -> SearchResult:
        started, embedded_s = time.perf_counter(), self._embedding.query_s
        try:
            report = await self.container.search.search(request)
        except BadRequestError:
            return SearchResult()
        elapsed_s = time.perf_counter() - started - (self._embedding.query_s - embedded_s)
        return SearchResult(tuple(hit_of(one.candidate) for one in report.candidates), elapsed_s * 1000)

    async def answer(self, question: str, previous: Exchanges, owner: str) -> Reply:
        session_id, text = None, ""
        sources: tuple[Hit, ...] = ()
        if previous:
            turns = [imported_turn(*exchange) for exchange in previous]
            session_id = (
                await self.container.sessions.importer.run(ImportedSession(owner, turns))
            ).session_id
        request = TurnRequest(question, owner, session_id=session_id)
        try:
            async for event in self.container.chat.process_conversation(request):
                match event:
                    case ContentEvent(piece):
                        text += piece
                    case SourceEvent(citations):
                        sources = tuple(map(Hit.of_source, citations))
        except BadRequestError:
            return Reply()
        return Reply(text, sources)

    async def embedding_ms(self, texts: Sequence[str]) -> float:
        """Return the model's own time per question: the median of a few, bypassing the cache."""
        return await asyncio.to_thread(_embedding_ms, self._embedding.inner, texts[:TIMED_QUESTIONS])


@asynccontextmanager
async def open_services(cache: Path | None) -> AsyncIterator[Services]:
    """Open services as configured, but without a generating model and with an empty embedded store.

    Raises StartRefusedError.
    """
    with tempfile.TemporaryDirectory(prefix="wenmai-evaluation-") as folder:
        settings = load_settings(
            store={"data_dir": Path(folder) / "data", "qdrant_url": None},
            knowledge={"load_sample": False},
            models={"llms": {"default": {"provider": "extractive"}}},
        )
        cached: list[CachedEmbedding] = []

        def wrap(model: BaseEmbedding, name: str) -> BaseEmbedding:
            cached.append(CachedEmbedding(model, cache or Path(folder) / "vectors", name))
            return cached[0]

        async with open_container(settings, wrap) as container:
            yield Services(container, cached[0])


def hit_of(candidate: Candidate) -> Hit:
    chunk = candidate.chunk
    return Hit(chunk.document_id, candidate.probability, chunk.indexed_text, chunk.heading, chunk.file_name)


def _embedding_ms(model: BaseEmbedding, texts: Sequence[str]) -> float:
    times = []
    for text in texts:
        started = time.perf_counter()
        model.get_query_embedding(text)
        times.append(time.perf_counter() - started)
    return quantile(times, 0.5) * 1000
