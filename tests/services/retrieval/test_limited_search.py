"""The limits of a search are enforced by the store's query; copies of a text take one slot."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from qdrant_client import models

from config.settings import RetrievalSettings, StoreSettings
from core.knowledge import Chunk, KnowledgeFilter, fits
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import encode_document, encode_query
from services.adapters.edge.client import open_edge_client
from services.knowledge.chunks import chunk_payload
from services.retrieval.retriever import Retriever
from services.store.collections import collection_specs
from services.store.dialect import VectorStore
from tests.services.retrieval.test_retriever import CountingStore
from tests.support.guide import COLLECTION, OWNER, open_collection

NAMED: dict[str, dict[str, Any]] = {
    "contract": {"tags": ("contract", "2024"), "source": "archive", "date": "2024-03-05"},
    "invoice": {"tags": ("invoice", "2024"), "source": "archive", "date": "2024-12-31"},
    "yearbook": {"tags": ("2025",), "source": "wiki", "date": "2025"},
    "minutes": {"tags": (), "source": "wiki", "date": "2025-02"},
    "note": {"tags": ("contract",), "source": "", "date": ""},
}
LIMITS = {
    "a tag": (KnowledgeFilter(tags=("contract",)), {"contract", "note"}),
    "either tag": (KnowledgeFilter(tags=("invoice", "2025")), {"invoice", "yearbook"}),
    "a document": (KnowledgeFilter(document_ids=("doc-note",)), {"note"}),
    "a source": (KnowledgeFilter(sources=("wiki",)), {"yearbook", "minutes"}),
    "since a day": (KnowledgeFilter(since="2024-03-06"), {"invoice", "yearbook", "minutes"}),
    "since that day": (KnowledgeFilter(since="2024-03-05", until="2024-03-05"), {"contract"}),
    "until a year": (KnowledgeFilter(until="2024"), {"contract", "invoice"}),
    "within a month": (KnowledgeFilter(since="2025-02", until="2025-02"), {"minutes"}),
    "all of it": (KnowledgeFilter(tags=("2024",), sources=("archive",), since="2024-06"), {"invoice"}),
    "another's": (KnowledgeFilter(document_ids=("doc-foreign",)), set()),
    "what nothing is": (KnowledgeFilter(tags=("none",)), set()),
    "nothing": (KnowledgeFilter(), set(NAMED)),
}
ASKED = ("费用是多少", "the fees")


def chunk(name: str, text: str = "", **fields: Any) -> Chunk:
    chunk_id = str(uuid.uuid5(uuid.NAMESPACE_URL, name))
    return replace(Chunk(chunk_id, f"doc-{name}", f"{name}.md", text or f"费用 {name} the fees", 0), **fields)


def point(one: Chunk, vector: list[float], owner: str = OWNER) -> models.PointStruct:
    words = encode_document(one.indexed_text)
    return models.PointStruct(
        id=one.chunk_id,
        vector={
            "dense": vector,
            "sparse": models.SparseVector(indices=words.indices, values=words.values),
        },
        payload=chunk_payload(one, owner, 1, ready=True),
    )


@pytest.fixture(params=["reference", "embedded"])
async def store(request: pytest.FixtureRequest, tmp_path: Any) -> AsyncIterator[VectorStore]:
    if request.param == "reference":
        async with open_collection(2) as opened:
            yield opened
        return
    async with open_edge_client(tmp_path / "store") as client:
        await client.create_collection(
            COLLECTION,
            vectors_config={"dense": models.VectorParams(size=2, distance=models.Distance.COSINE)},
            sparse_vectors_config={"sparse": models.SparseVectorParams(modifier=models.Modifier.IDF)},
        )
        yield client


def retriever(store: Any, **settings: Any) -> Retriever:
    return Retriever(store, COLLECTION, RetrievalSettings(**settings))


def ask(*texts: str) -> Query:
    forms = tuple(QueryForm(text, [1.0, 0.1 * at], encode_query(text)) for at, text in enumerate(texts))
    return Query(texts[0], forms)


async def test_every_limit_holds_in_both_lists_of_every_form(store: VectorStore) -> None:
    """Discriminates: a condition left out of the filter; a document without a date fitting a date limit;
    `until` compared with the first day of its year; another owner's document found by its id."""
    points = [point(chunk(name, **fields), [1.0, 0.0]) for name, fields in NAMED.items()]
    points.append(point(chunk("foreign", tags=("contract",), source="wiki"), [1.0, 0.0], "owner-b"))
    await store.upsert(COLLECTION, points)
    for name, (limits, expected) in LIMITS.items():
        hits = await retriever(store).search(ask(*ASKED), [OWNER], limits)
        assert {item.chunk.file_name.removesuffix(".md") for item in hits} == expected, name
        for item in hits:
            assert all(match.dense_rank and match.sparse_rank for match in item.matches), name
        own = {each for each, fields in NAMED.items() if fits(limits, chunk(each, **fields))}
        assert own == expected, name  # in the store and outside it the meaning is the same


async def test_a_candidate_has_its_tags_source_and_date(store: VectorStore) -> None:
    await store.upsert(COLLECTION, [point(chunk("contract", **NAMED["contract"]), [1.0, 0.0])])
    [hit] = await retriever(store).search(ask(*ASKED), [OWNER])
    assert hit.chunk == chunk("contract", **NAMED["contract"])


async def test_copies_of_a_text_take_one_slot_and_leave_the_rest_to_other_texts(
    store: VectorStore,
) -> None:
    """Discriminates: truncating to RERANKER_INPUT_TOP_N before copies are removed; not looking further down
    lists that copies fill."""
    copies = [chunk(f"copy{at}", "费用是九十九元") for at in range(40)]
    others = [chunk(f"other{at}", f"费用的第 {at} 条说明") for at in range(3)]
    await store.upsert(
        COLLECTION, [*(point(one, [1.0, 0.0]) for one in copies), *(point(one, [0.8, 0.6]) for one in others)]
    )
    counting = CountingStore(store)
    hits = await retriever(counting, reranker_input_top_n=4).search(ask("费用是多少"), [OWNER])
    assert len(hits) == 4
    assert sum(item.chunk.text == "费用是九十九元" for item in hits) == 1
    assert {item.chunk.text for item in hits} >= {one.text for one in others}
    assert len(counting.batches) == 2
    assert len(counting.read) <= 6  # copies, more of them each time


async def test_the_best_ranked_copy_stays(store: VectorStore) -> None:
    """Discriminates: keeping the last ingested copy."""
    far, near = chunk("far", "费用是九十九元"), chunk("near", "费用是九十九元")
    await store.upsert(COLLECTION, [point(far, [0.6, 0.8]), point(near, [1.0, 0.0])])
    [hit] = await retriever(store).search(ask("费用是多少"), [OWNER])
    assert (hit.chunk.file_name, hit.dense_rank) == ("near.md", 1)


async def test_the_same_words_under_another_heading_or_date_are_not_a_copy(store: VectorStore) -> None:
    """Discriminates: comparing only the texts: "one year" for two products is two answers."""
    texts = [
        chunk("phone", "一年", heading="手机 > 保修期"),
        chunk("watch", "一年", heading="手表 > 保修期"),
        chunk("old", "一年", heading="手机 > 保修期", date="2020"),
    ]
    await store.upsert(COLLECTION, [point(one, [1.0, 0.0]) for one in texts])
    assert len(await retriever(store).search(ask("保修期多久"), [OWNER])) == 3


def test_the_fields_that_limit_are_indexed() -> None:
    """Discriminates: a limit that a server would have to scan for."""
    [knowledge] = [spec for spec in collection_specs(StoreSettings()) if spec.name == "knowledge"]
    assert {"owner", "ready", "tags", "document_id", "source", "day", "position"} <= set(knowledge.indexes)
