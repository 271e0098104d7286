"""Tags are counted the same with either engine."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from qdrant_client import AsyncQdrantClient

from config.settings import StoreSettings
from core.knowledge import Document, DocumentStatus
from services.adapters.edge.client import open_edge_client
from services.knowledge.documents import DocumentStore
from services.store.collections import ensure_collections
from services.store.dialect import VectorStore


@pytest.fixture(params=["edge", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorStore]:
    if request.param == "edge":
        async with open_edge_client(tmp_path / "store") as edge:
            yield edge
        return
    memory = cast(VectorStore, AsyncQdrantClient(":memory:"))
    yield memory
    await memory.close()


def document(number: int, owner: str, *tags: str) -> Document:
    return Document(
        document_id=str(uuid.UUID(int=number)), owner=owner, file_name=f"{number}.md",
        content_hash=f"{number}", size_bytes=1, created_us=number, status=DocumentStatus.READY, tags=tags,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore:Payload indexes have no effect:UserWarning")
async def test_each_document_counts_once_and_tags_are_ordered_by_count_then_name(store: VectorStore) -> None:
    """Discriminates: the engine's order; another owner's documents; a tag named twice counted twice."""
    settings = StoreSettings()
    await ensure_collections(store, settings, embedding_name="e", dimension=4)
    documents = DocumentStore(store, settings, lambda: 1)
    for number, (owner, tags) in enumerate(
        [("a", "x z"), ("a", "x x y"), ("shared", "x y"), ("b", "w x"), ("a", "")], 1
    ):
        await documents.save(document(number, owner, *tags.split()))
    counted = await documents.tags(["a", "shared"], 10)
    assert [(each.tag, each.documents) for each in counted] == [("x", 3), ("y", 2), ("z", 1)]
    assert [each.tag for each in await documents.tags(["a", "shared"], 2)] == ["x", "y"]
    await documents.forget(str(uuid.UUID(int=1)))
    assert [each.tag for each in await documents.tags(["a", "shared"], 10)] == ["x", "y"]
    assert await documents.tags(["nobody"], 10) == []
