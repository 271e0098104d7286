"""The parts of memory over a test's own store, with a small embedding."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qdrant_client import models

from api.memories import MemoriesHandler
from services.memory.records import MemoryRecords
from services.memory.turns import MemoryLearning
from services.memory.writing import MemoryWriter, ignore_refusal
from services.store.clock import utc_now_us
from services.store.dialect import VectorStore
from tests.services.operations.retention.parts import MEMORIES
from tests.support.models.hashing_embedding import DIMENSION, HashingEmbedding


async def embed(texts: Sequence[str]) -> list[list[float]]:
    return [HashingEmbedding().get_text_embedding(text) for text in texts]


async def make_collection(store: VectorStore) -> None:
    vector = models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)
    sparse = {"sparse": models.SparseVectorParams(modifier=models.Modifier.IDF)}
    await store.create_collection(MEMORIES, {"dense": vector}, sparse)
    ordered = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=False, range=True)
    await store.create_payload_index(MEMORIES, "created_us", ordered)


def memories_of(
    store: VectorStore,
    on_refused: Callable[[str], None] = ignore_refusal,
    clock: Callable[[], int] = utc_now_us,
) -> MemoriesHandler:
    records = MemoryRecords(store, MEMORIES, alone=True)
    writer = MemoryWriter(records, embed, "hashing", on_refused, clock)
    return MemoriesHandler(records, writer, MemoryLearning(records, writer, on=True))
