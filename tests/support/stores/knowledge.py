"""A knowledge base on the in-memory reference engine, with readers that run in this process."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import PrivateAttr
from qdrant_client import AsyncQdrantClient, models

from config.settings import StoreSettings
from core.knowledge import Document, JobStage, Upload
from services.adapters.readers.documents import parse_document
from services.knowledge.base import KnowledgeBase
from services.knowledge.chunking.splitter import StructureSplitter, cut
from services.knowledge.documents import document_payload
from services.knowledge.jobs.queue import Retries
from services.knowledge.parsing.pieces import Pieces
from services.models.embedding import EmbeddingService
from services.store.dialect import VectorStore
from tests.support.models.hashing_embedding import DIMENSION, HashingEmbedding

SETTINGS = StoreSettings()
QUICK = Retries(attempts=2, first_wait_s=0.01)
SERVER_SETTINGS = StoreSettings(qdrant_url="http://127.0.0.1:6333")


async def parse_here(file_name: str, content: bytes, owner: str = "") -> Pieces:
    parsed = parse_document(file_name, content)
    pieces = Pieces.pack(cut(parsed, StructureSplitter(chunk_tokens=32)), parsed.date)
    return replace(pieces, unread_pages=len(parsed.scanned))


class BrokenEmbedding(HashingEmbedding):
    """Fails on every text that contains the word."""

    word: str = "poison"

    def _get_text_embedding(self, text: str) -> list[float]:
        if self.word in text:
            raise RuntimeError(self.word)
        return super()._get_text_embedding(text)


class HeldEmbedding(HashingEmbedding):
    """Waits after each passage that was let through; `embedded` counts them."""

    _let: threading.Semaphore = PrivateAttr(default_factory=lambda: threading.Semaphore(0))
    _open: bool = PrivateAttr(default=False)
    _embedded: int = PrivateAttr(default=0)

    @property
    def embedded(self) -> int:
        return self._embedded

    def let_through(self, passages: int) -> None:
        self._let.release(passages)

    def let_all(self) -> None:
        self._open = True
        self._let.release(10_000)

    def _get_text_embedding(self, text: str) -> list[float]:
        if not self._open:
            self._let.acquire()
        self._embedded += 1
        return super()._get_text_embedding(text)


@dataclass
class Clock:
    """A clock in microseconds that advances by one on every call."""

    now_us: int = 1_700_000_000_000_000

    def __call__(self) -> int:
        self.now_us += 1
        return self.now_us


@dataclass
class Bench:
    """The knowledge base and the other parts that tests inspect."""

    knowledge: KnowledgeBase
    store: VectorStore
    clock: Clock = field(default_factory=Clock)

    async def chunk_count(self, *, ready: bool | None = None) -> int:
        must: list[models.Condition] = []
        if ready is not None:
            must.append(models.FieldCondition(key="ready", match=models.MatchValue(value=ready)))
        expected = models.Filter(must=must)
        return (await self.store.count(SETTINGS.knowledge_collection, count_filter=expected)).count


async def create_collections(store: VectorStore) -> None:
    await store.create_collection(
        SETTINGS.knowledge_collection,
        vectors_config={"dense": models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)},
        sparse_vectors_config={"sparse": models.SparseVectorParams(modifier=models.Modifier.IDF)},
    )
    await store.create_collection(SETTINGS.document_collection, vectors_config={})


@asynccontextmanager
async def memory_store() -> AsyncIterator[VectorStore]:
    store = cast(VectorStore, AsyncQdrantClient(":memory:"))
    await create_collections(store)
    yield store
    await store.close()


@asynccontextmanager
async def open_bench(
    store: VectorStore,
    settings: StoreSettings = SETTINGS,
    data_dir: Path | None = None,
    embedding_model: BaseEmbedding | None = None,
) -> AsyncIterator[Bench]:
    """One life of the server on a store that outlives it; its data folder does so only if `data_dir` is
    given."""
    clock = Clock()
    embedding = EmbeddingService(embedding_model or BrokenEmbedding(), "hashing", DIMENSION)
    with tempfile.TemporaryDirectory() as folder:
        settings = settings.model_copy(update={"data_dir": data_dir or Path(folder)})
        async with KnowledgeBase(store, embedding, parse_here, settings, clock, QUICK) as knowledge:
            yield Bench(knowledge, store, clock)
    await embedding.close()


ME = ["ann"]
TEXT = "# 手册\n\n" + "\n\n".join(f"第{i}条规定说明了退款的第{i}种情况和处理办法。" for i in range(40))


def upload(text: str = TEXT, file_name: str = "手册.md", owner: str = "ann") -> Upload:
    return Upload(owner, file_name, text.encode())


async def added(bench: Bench, what: Upload) -> Document:
    """Add the upload, wait for its job, and return the document."""
    addition = await bench.knowledge.add(what)
    if addition.job_id:
        await bench.knowledge.wait(addition.job_id, [what.owner])
    return await bench.knowledge.get_document(addition.document.document_id, [what.owner])


async def until(bench: Bench, job_id: str, stage: JobStage) -> None:
    async for snapshot in bench.knowledge.jobs.get(job_id, ME).changes():
        if snapshot.stage is stage:
            return
    raise AssertionError(stage)


async def save(store: VectorStore, document: Document, updated_us: int = 0) -> None:
    """Write a document's record as left by another life of the server."""
    payload = document_payload(document, updated_us)
    point = models.PointStruct(id=document.document_id, vector={}, payload=payload)
    await store.upsert(SETTINGS.document_collection, points=[point])
