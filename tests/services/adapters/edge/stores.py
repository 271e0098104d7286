"""The stores that the contract is tested on, and a small collection to test it with."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from qdrant_client import AsyncQdrantClient, models

from config.settings import StoreSettings
from services.adapters.edge.client import open_edge_client
from services.adapters.qdrant import open_qdrant_server
from services.store.dialect import ScoredPoint, VectorStore

SERVER_URL = os.environ.get("TEST_QDRANT_URL")
ENGINES = ["edge", "memory", *(["server"] if SERVER_URL else [])]
DIMENSION = 4
COLLECTION = "things"
# Local mode warns once per process that it has no payload index; the results are the same without one.
NO_INDEX_WARNING = "ignore:Payload indexes have no effect:UserWarning"


@asynccontextmanager
async def open_store(engine: str, folder: Path) -> AsyncIterator[VectorStore]:
    if engine == "edge":
        async with open_edge_client(folder / "store") as edge:
            yield edge
    elif engine == "memory":
        reference = AsyncQdrantClient(":memory:")
        yield cast(VectorStore, reference)
        await reference.close()
    else:
        async with open_qdrant_server(StoreSettings(qdrant_url=SERVER_URL)) as server:
            yield server


async def make_collection(store: VectorStore, name: str = COLLECTION) -> None:
    """A collection with two dense vectors, a sparse one and an index of each kind."""
    await store.delete_collection(name)
    dense = models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)
    await store.create_collection(
        name,
        vectors_config={"turn": dense, "question": dense},
        sparse_vectors_config={"sparse": models.SparseVectorParams(modifier=models.Modifier.IDF)},
        metadata={"embedding": "test"},
    )
    tenant = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
    await store.create_payload_index(name, "owner", tenant)
    await store.create_payload_index(name, "rank", models.PayloadSchemaType.INTEGER)
    await store.create_payload_index(name, "ready", models.PayloadSchemaType.BOOL)
    await store.create_payload_index(name, "at", models.PayloadSchemaType.DATETIME)


def nth_id(n: int) -> str:
    return str(uuid.UUID(int=n + 1))


def thing(n: int, **payload: object) -> models.PointStruct:
    """Point `n`: dense vectors in a direction of its own, a sparse vector of the words 1 and n + 10."""
    vector = [1.0, float(n), float(n * n % 7), 0.5]
    return models.PointStruct(
        id=nth_id(n),
        vector={
            "turn": vector,
            "question": vector[::-1],
            "sparse": models.SparseVector(indices=[1, n + 10], values=[1.0, 2.0]),
        },
        payload={"n": n, "rank": n, "owner": f"o{n % 2}", **payload},
    )


def where(**values: object) -> models.Filter:
    return models.Filter(
        must=[
            models.FieldCondition(key=key, match=models.MatchValue(value=cast(str, value)))
            for key, value in values.items()
        ]
    )


def numbers(records: list[models.Record]) -> list[int]:
    return [record.payload["n"] for record in records if record.payload]


async def nearest(
    store: VectorStore,
    vector: list[float] | models.SparseVector,
    using: str,
    limit: int = 10,
    condition: models.Filter | None = None,
    collection: str = COLLECTION,
) -> Sequence[ScoredPoint]:
    """The result of a batch of one query, with payloads."""
    request = models.QueryRequest(query=vector, using=using, filter=condition, limit=limit, with_payload=True)
    return (await store.query_batch_points(collection, [request]))[0].points
