"""Exceeding the number of chunks that the embedded store is made for is reported once."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import cast

import pytest
from qdrant_client import AsyncQdrantClient, models
from structlog.testing import capture_logs

from config.settings import StoreSettings
from services.knowledge.chunks import KnowledgeSize
from services.store.dialect import VectorStore

NAMES = StoreSettings()


@pytest.fixture
async def store() -> AsyncIterator[VectorStore]:
    client = AsyncQdrantClient(":memory:")
    await client.create_collection(NAMES.knowledge_collection, vectors_config={})
    yield cast(VectorStore, client)
    await client.close()


async def add(store: VectorStore, chunks: int) -> None:
    points = [models.PointStruct(id=str(uuid.uuid4()), vector={}, payload={}) for _ in range(chunks)]
    await store.upsert(NAMES.knowledge_collection, points)


async def test_a_start_with_too_many_chunks_logs_a_warning(store: VectorStore) -> None:
    """Discriminates: `look` that only counts."""
    await add(store, 6)
    with capture_logs() as logs:
        await KnowledgeSize(store, NAMES, max_chunks=5).measure()
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("knowledge_large", "warning")
    assert (line["chunks"], line["made_for"]) == (6, 5)
    assert "QDRANT_URL" in line["advice"]


async def test_the_warning_is_logged_when_the_limit_is_exceeded_and_only_once(store: VectorStore) -> None:
    """Discriminates: `_done` never set; `grew` that does not add up."""
    size = KnowledgeSize(store, NAMES, max_chunks=5)
    with capture_logs() as logs:
        await size.measure()
        for _ in range(4):
            await add(store, 2)
            await size.grew(2)
    assert [line["chunks"] for line in logs] == [6]


async def test_new_versions_of_the_same_documents_do_not_count_twice(store: VectorStore) -> None:
    """Discriminates: a warning based on the additions, without querying the store."""
    await add(store, 4)
    size = KnowledgeSize(store, NAMES, max_chunks=5)
    with capture_logs() as logs:
        await size.measure()
        await size.grew(4)  # they replaced the four
    assert logs == []


async def test_a_server_has_no_limit(store: VectorStore) -> None:
    """Discriminates: qdrant_url ignored."""
    await add(store, 6)
    settings = StoreSettings(qdrant_url="http://localhost:6333")
    with capture_logs() as logs:
        await KnowledgeSize(store, settings, max_chunks=5).measure()
    assert logs == []
