"""Whose documents are searched: the guide shipped with Wenmai is left out if an owner has documents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models

from core.errors import StoreUnavailableError
from core.knowledge import NO_LIMITS, Document, DocumentStatus, KnowledgeFilter, SearchScope
from core.relevance.query import Query
from services.adapters.edge.client import open_edge_client
from services.knowledge.chunks import FRESH_S, SamplePrecedence
from services.knowledge.documents import DocumentStore
from services.store.collections import collection_specs
from services.store.dialect import VectorStore
from tests.support.stores.knowledge import SETTINGS, Clock, memory_store

GUIDE, GUIDE_OLD = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
OWN, FOLLOWED = "00000000-0000-4000-8000-000000000003", "00000000-0000-4000-8000-000000000004"
ANN, BOB = ("ann", "shared"), ("bob", "shared")


def document(document_id: str, owner: str, **changes: Any) -> Document:
    whole = Document(document_id, owner, "a.md", "h", 1, 1, DocumentStatus.READY, 1)
    return replace(whole, **changes)


class CountingStore:
    """Counts the requests that read documents; with `fails`, they fail."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store
        self.reads = 0
        self.fails = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def scroll(self, *args: Any, **options: Any) -> Any:
        self.reads += 1
        if self.fails:
            raise StoreUnavailableError("no answer")
        return await self._store.scroll(*args, **options)


@dataclass
class World:
    store: CountingStore
    documents: DocumentStore
    precedence: SamplePrecedence
    now_s: float = 0.0

    async def left_out(
        self,
        owners: tuple[str, ...] = ANN,
        question: str = "年假有几天？",
        limits: KnowledgeFilter = NO_LIMITS,
    ) -> bool:
        scope = await self.precedence.scope(Query(question, ()), owners, limits)
        return scope.without_sample


async def world_on(store: VectorStore, *, one_process: bool = True) -> World:
    """With the sample, of which one document has the form of an early version: without a source."""
    counting = CountingStore(store)
    documents = DocumentStore(counting, SETTINGS, Clock())
    await documents.save(document(GUIDE, "shared"))
    await documents.save(document(GUIDE_OLD, "shared"))
    await store.delete_payload(SETTINGS.document_collection, keys=["source"], points=[GUIDE_OLD])
    world: World
    precedence = SamplePrecedence(documents, one_process=one_process, now_s=lambda: world.now_s)
    world = World(counting, documents, precedence)
    return world


@pytest.fixture(params=["memory", "edge"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorStore]:
    if request.param == "memory":
        async with memory_store() as memory:
            yield memory
        return
    [spec] = [one for one in collection_specs(SETTINGS) if one.name == SETTINGS.document_collection]
    async with open_edge_client(tmp_path / "edge") as edge:
        sparse = {"sparse": models.SparseVectorParams(modifier=models.Modifier.IDF)}
        await edge.create_collection(spec.name, vectors_config={}, sparse_vectors_config=sparse)
        for name, schema in spec.indexes.items():
            await edge.create_payload_index(spec.name, name, schema)
        yield edge


async def test_an_owner_with_a_ready_document_does_not_search_the_sample(store: VectorStore) -> None:
    """Discriminates: any document, ready or not; somebody else's; a folder followed for everybody."""
    world = await world_on(store)
    assert not await world.left_out()
    await world.documents.save(document(OWN, "ann", status=DocumentStatus.INGESTING))
    assert not await world.left_out()
    await world.documents.save(document(OWN, "ann"))
    assert await world.left_out()
    assert not await world.left_out(BOB)
    scope = await world.precedence.scope(Query("x", ()), ANN, NO_LIMITS)
    assert scope == SearchScope(("ann",), without_sample=True)
    await world.documents.save(document(FOLLOWED, "shared", source="handbook"))
    scope = await world.precedence.scope(Query("x", ()), ANN, NO_LIMITS)
    assert scope == SearchScope(ANN, without_sample=True)
    assert await world.left_out(BOB)
    await world.documents.forget(OWN)
    await world.documents.forget(FOLLOWED)
    assert not await world.left_out()


async def test_a_question_that_names_wenmai_or_documents_searches_the_sample() -> None:
    async with memory_store() as store:
        world = await world_on(store)
        await world.documents.save(document(OWN, "ann"))
        for question in (
            "Back up Wenmai?",
            "ｗｅｎｍａｉ 怎么备份",
            "问脉怎么备份？",
            "問脈 WENMAI",
        ):
            assert not await world.left_out(question=question)
        assert not await world.left_out(limits=KnowledgeFilter(document_ids=(GUIDE,)))
        assert await world.left_out(limits=KnowledgeFilter(tags=("hr",)))
        leaning = Query("那怎么恢复呢？", (), previous=("问脉怎么备份？",))
        alone = Query("员工每年的带薪年假有几天，病假怎么申请？", (), previous=("问脉怎么备份？",))
        assert not (await world.precedence.scope(leaning, ANN, NO_LIMITS)).without_sample
        assert (await world.precedence.scope(alone, ANN, NO_LIMITS)).without_sample


async def test_a_single_process_queries_the_store_only_after_a_document_changed() -> None:
    """Discriminates: a request for each question."""
    async with memory_store() as store:
        world = await world_on(store)
        await world.documents.save(document(OWN, "ann"))
        assert await world.left_out()
        reads = world.store.reads
        world.now_s += 1e6
        for _ in range(5):
            await world.left_out()
        assert world.store.reads == reads
        for document_id in (GUIDE, GUIDE_OLD):
            await world.documents.forget(document_id)
        assert not await world.left_out()
        assert world.store.reads > reads


async def test_with_other_workers_the_store_is_queried_again_and_no_question_waits() -> None:
    """Discriminates: never noticing another worker's addition; a question that waits for the query."""
    async with memory_store() as store:
        world = await world_on(store, one_process=False)
        assert not await world.left_out()
        elsewhere = DocumentStore(store, SETTINGS, Clock())
        await elsewhere.save(document(OWN, "ann"))
        assert not await world.left_out()
        world.now_s += FRESH_S + 1
        assert not await world.left_out()  # and queries, concurrently with this question
        await asyncio.sleep(0.05)
        assert await world.left_out()
        world.now_s += FRESH_S + 1
        world.store.fails = True
        assert await world.left_out()
        await asyncio.sleep(0.05)
        assert await world.left_out()
        await world.precedence.close()
