"""The collections are created once, by any number of workers, and never mixed between embeddings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from qdrant_client import models

from config.settings import StoreSettings
from core.errors import StartRefusedError
from core.operations.archive import Role
from services.adapters.qdrant import open_qdrant_server
from services.operations.backup.records import make_collection, read_shape
from services.store.collections import collection_specs, ensure_collections
from services.store.dialect import VectorStore
from tests.services.adapters.edge.stores import ENGINES, NO_INDEX_WARNING, nth_id, open_store
from tests.support.stores.qdrant_facade import open_facade

pytestmark = pytest.mark.filterwarnings(NO_INDEX_WARNING)

SETTINGS = StoreSettings(collection_suffix="t")
NAMES = [spec.name for spec in collection_specs(SETTINGS)]


@pytest.fixture(params=ENGINES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorStore]:
    async with open_store(request.param, tmp_path) as opened:
        for name in NAMES:
            await opened.delete_collection(name)
        yield opened


async def ensure(store: VectorStore, name: str = "small", dimension: int = 4) -> None:
    await ensure_collections(store, SETTINGS, embedding_name=name, dimension=dimension)


async def test_all_collections_are_created_with_their_vectors(store: VectorStore) -> None:
    await ensure(store)
    info = await store.get_collection("conversations_t")
    vectors = info.config.params.vectors
    assert isinstance(vectors, dict)
    assert {name: params.size for name, params in vectors.items()} == {"turn": 4, "question": 4}
    assert info.config.metadata == {"embedding": "small", "dimension": 4, "schema_version": 1}
    assert all([await store.collection_exists(name) for name in NAMES])


async def test_fields_for_filters_and_ordering_are_indexed(tmp_path: Path) -> None:
    async with open_store("edge", tmp_path) as store:
        await ensure(store)
        schema = (await store.get_collection("conversations_t")).payload_schema
    assert schema["created_us"].data_type == models.PayloadSchemaType.INTEGER
    for tenant in ("owner", "session_id"):
        params = schema[tenant].params
        assert isinstance(params, models.KeywordIndexParams)
        assert params.is_tenant


@pytest.mark.parametrize(("name", "dimension"), [("large", 8), ("other", 4)])
async def test_no_collection_is_created_beside_one_of_another_embedding(
    store: VectorStore, name: str, dimension: int
) -> None:
    """Discriminates: creating some before checking the one that does not fit; taking another model for the
    same because its vectors have the same dimension."""
    await ensure(store, name, dimension)
    for collection in NAMES:
        if collection != "memories_t":
            await store.delete_collection(collection)
    with pytest.raises(StartRefusedError, match="memories_t"):
        await ensure(store)
    assert [name for name in NAMES if await store.collection_exists(name)] == ["memories_t"]


async def test_a_second_start_changes_nothing(store: VectorStore) -> None:
    await ensure(store)
    point = models.PointStruct(id=nth_id(1), vector={}, payload={"session_id": "s"})
    await store.upsert("sessions_t", [point])
    await ensure(store)
    assert (await store.count("sessions_t")).count == 1


async def test_workers_of_a_server_that_start_together_all_succeed() -> None:
    """Discriminates: telling the second creator of a collection that the server is unreachable, so that it
    retries in two seconds and is not ready until then."""
    async with open_facade() as facade, AsyncExitStack() as stack:
        settings = StoreSettings(qdrant_url=facade.url)
        workers = [await stack.enter_async_context(open_qdrant_server(settings)) for _ in range(3)]
        made = [
            ensure_collections(worker, settings, embedding_name="small", dimension=4) for worker in workers
        ]
        await asyncio.gather(*made)


async def test_the_words_of_memories_are_scanned_and_not_indexed(tmp_path: Path) -> None:
    """Discriminates: a search that checks the owner of all memories with such a word, 13 ms for 200,000; a
    collection restored from a backup without this setting."""
    async with open_store("edge", tmp_path) as store:
        await ensure(store)
        assert await _scanned(store, tmp_path) == [None, 50_000]
        shape = await read_shape(store, "memories_t")
        await store.delete_collection("memories_t")
        await make_collection(store, Role.MEMORIES, shape, SETTINGS)
        assert await _scanned(store, tmp_path) == [None, 50_000]


async def _scanned(store: VectorStore, folder: Path) -> list[int | None]:
    """As described by the store, for chunks and for memories; and the engine's own file agrees."""
    scanned = []
    for name in ("knowledge_t", "memories_t"):
        index = ((await store.get_collection(name)).config.params.sparse_vectors or {})["sparse"].index
        scanned.append(index.full_scan_threshold if index else None)
        engine = json.loads((folder / "store" / name / "shard" / "edge_config.json").read_text())
        assert engine["sparse_vectors"]["sparse"].get("full_scan_threshold") == scanned[-1]
    return scanned


async def test_workers_that_start_together_all_succeed(store: VectorStore) -> None:
    await asyncio.gather(*(ensure(store) for _ in range(4)))
    assert all([await store.collection_exists(name) for name in NAMES])


@pytest.mark.full("works through many cases, for seconds")
@pytest.mark.parametrize(("name", "dimension"), [("small", 8), ("other", 4), ("other", 8)])
async def test_another_embedding_is_refused_by_name_and_nothing_is_deleted(
    store: VectorStore, name: str, dimension: int
) -> None:
    await ensure(store)
    await store.upsert("knowledge_t", [models.PointStruct(id=nth_id(1), vector={}, payload={})])
    with pytest.raises(StartRefusedError) as refused:
        await ensure(store, name, dimension)
    sentence = str(refused.value)
    for part in ("small (4 dimensions)", f"{name} ({dimension} dimensions)", "wenmai reembed"):
        assert part in sentence
    assert "\n" not in sentence
    assert (await store.count("knowledge_t")).count == 1


async def test_a_collection_of_unknown_origin_is_refused(store: VectorStore) -> None:
    await store.create_collection("knowledge_t", vectors_config={}, sparse_vectors_config={
        "sparse": models.SparseVectorParams(modifier=models.Modifier.IDF)
    })  # fmt: skip
    with pytest.raises(StartRefusedError, match=r"knowledge_t.*does not say which embedding"):
        await ensure(store)


@pytest.mark.full("works through many cases, for seconds")
async def test_a_collection_of_unknown_origin_is_left_unchanged_for_work_without_vectors(
    store: VectorStore,
) -> None:
    vector = models.VectorParams(size=3, distance=models.Distance.COSINE)
    await store.create_collection("conversations_t", vectors_config={"old": vector})
    point = models.PointStruct(id=nth_id(1), vector={"old": [1.0, 0.0, 0.0]}, payload={"user_query": "q"})
    await store.upsert("conversations_t", [point])
    await ensure_collections(store, SETTINGS, embedding_name="small", dimension=4, accept_unnamed=True)
    (kept,) = await store.retrieve("conversations_t", [nth_id(1)], with_vectors=True)
    assert kept.vector == {"old": [1.0, 0.0, 0.0]}
    assert await store.collection_exists("sessions_t")
