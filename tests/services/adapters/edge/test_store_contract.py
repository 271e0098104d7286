"""The contract of every store: the embedded engine, the client's local mode as the reference, a real
server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models

from services.store.dialect import VectorStore
from tests.services.adapters.edge.stores import (
    COLLECTION,
    ENGINES,
    NO_INDEX_WARNING,
    make_collection,
    nearest,
    nth_id,
    numbers,
    open_store,
    thing,
    where,
)

pytestmark = pytest.mark.filterwarnings(NO_INDEX_WARNING)


@pytest.fixture(params=ENGINES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorStore]:
    async with open_store(request.param, tmp_path) as opened:
        await make_collection(opened)
        yield opened


@pytest.fixture
async def filled(store: VectorStore) -> VectorStore:
    await store.upsert(COLLECTION, [thing(n) for n in range(10)])
    return store


def field(key: str, **asked: Any) -> models.FieldCondition:
    return models.FieldCondition(key=key, **asked)


async def matching(store: VectorStore, condition: models.Filter) -> list[int]:
    records, _ = await store.scroll(COLLECTION, condition, limit=100)
    return numbers(records)


async def test_a_collection_exists_after_its_creation_and_not_after_its_deletion(
    store: VectorStore,
) -> None:
    assert await store.collection_exists(COLLECTION)
    await store.delete_collection(COLLECTION)
    assert not await store.collection_exists(COLLECTION)
    assert not await store.delete_collection(COLLECTION)


async def test_a_collection_reports_its_vectors_and_metadata(filled: VectorStore) -> None:
    info = await filled.get_collection(COLLECTION)
    vectors = info.config.params.vectors
    assert isinstance(vectors, dict)
    assert {name: (params.size, params.distance) for name, params in vectors.items()} == {
        "turn": (4, models.Distance.COSINE),
        "question": (4, models.Distance.COSINE),
    }
    assert info.config.params.sparse_vectors is not None
    assert info.config.params.sparse_vectors["sparse"].modifier == models.Modifier.IDF
    assert info.config.metadata == {"embedding": "test"}
    assert info.points_count == 10


async def test_a_collection_is_created_only_once(store: VectorStore) -> None:
    with pytest.raises(ValueError, match="already exists"):
        await store.create_collection(COLLECTION, vectors_config={})


async def test_an_unknown_collection_is_refused_by_every_request(store: VectorStore) -> None:
    with pytest.raises(ValueError, match=r"not found|exist"):
        await store.count("nowhere")
    with pytest.raises(ValueError, match=r"not found|exist"):
        await store.upsert("nowhere", [thing(1)])
    with pytest.raises(ValueError, match=r"not found|exist"):
        await store.get_collection("nowhere")


async def test_two_collections_are_independent(filled: VectorStore) -> None:
    await make_collection(filled, "others")
    await filled.upsert("others", [thing(3, kind="other")])
    await filled.delete(COLLECTION, [nth_id(3)])
    assert (await filled.count("others")).count == 1
    assert (await filled.count(COLLECTION)).count == 9
    await filled.delete_collection("others")


async def test_a_point_is_read_back_as_written(store: VectorStore) -> None:
    text = "问脉 “quoted” \u2028 \U0001f600"
    await store.upsert(COLLECTION, [thing(1, text=text, deep={"a": [1, None, {"b": 0.5}]}, none=None)])
    (record,) = await store.retrieve(COLLECTION, [nth_id(1)], with_vectors=True)
    assert record.id == nth_id(1)
    assert record.payload == {
        "n": 1, "rank": 1, "owner": "o1", "text": text, "deep": {"a": [1, None, {"b": 0.5}]}, "none": None,
    }  # fmt: skip
    assert isinstance(record.vector, dict)
    assert record.vector["turn"] == pytest.approx([0.5547, 0.5547, 0.5547, 0.27735], abs=1e-4)
    assert record.vector["sparse"] == models.SparseVector(indices=[1, 11], values=[1.0, 2.0])


async def test_retrieve_omits_unknown_points_and_fields_not_requested(filled: VectorStore) -> None:
    records = await filled.retrieve(COLLECTION, [nth_id(2), nth_id(99)], with_payload=["n"])
    assert [(record.payload, record.vector) for record in records] == [({"n": 2}, None)]
    (bare,) = await filled.retrieve(COLLECTION, [nth_id(2)], with_payload=False, with_vectors=["turn"])
    assert not bare.payload
    assert isinstance(bare.vector, dict)
    assert list(bare.vector) == ["turn"]


async def test_an_upsert_replaces_the_whole_point(filled: VectorStore) -> None:
    await filled.upsert(
        COLLECTION, [models.PointStruct(id=nth_id(1), vector={"turn": [1, 0, 0, 0]}, payload={"new": 1})]
    )
    (record,) = await filled.retrieve(COLLECTION, [nth_id(1)], with_vectors=True)
    assert record.payload == {"new": 1}
    assert record.vector == {"turn": [1, 0, 0, 0]}


async def test_a_point_without_vectors_can_get_them_later(store: VectorStore) -> None:
    await store.upsert(COLLECTION, [models.PointStruct(id=nth_id(1), vector={}, payload={"n": 1})])
    assert await nearest(store, [1.0, 0, 0, 0], "turn") == []
    vectors = {"turn": [1.0, 0, 0, 0], "sparse": models.SparseVector(indices=[5], values=[1])}
    await store.update_vectors(COLLECTION, [models.PointVectors(id=nth_id(1), vector=vectors)])
    (hit,) = await nearest(store, [1.0, 0, 0, 0], "turn")
    assert hit.payload == {"n": 1}
    assert hit.score == pytest.approx(1)
    words = models.SparseVector(indices=[5], values=[1])
    assert len(await nearest(store, words, "sparse")) == 1


async def test_set_payload_merges_and_delete_payload_removes(filled: VectorStore) -> None:
    await filled.set_payload(COLLECTION, {"rank": 77, "extra": "x"}, [nth_id(1)])
    await filled.set_payload(COLLECTION, {"ready": True}, where(owner="o1"))
    await filled.delete_payload(COLLECTION, ["owner"], models.PointIdsList(points=[nth_id(1)]))
    (record,) = await filled.retrieve(COLLECTION, [nth_id(1)])
    assert record.payload == {"n": 1, "rank": 77, "extra": "x", "ready": True}
    assert await matching(filled, where(ready=True)) == [1, 3, 5, 7, 9]


async def test_a_partial_update_writes_existing_points_and_reports_missing_ones(filled: VectorStore) -> None:
    with pytest.raises((ValueError, KeyError), match=nth_id(99)):
        await filled.set_payload(COLLECTION, {"extra": 1}, [nth_id(99), nth_id(1)])
    vectors: list[models.PointVectors] = [
        models.PointVectors(id=nth_id(n), vector={"turn": [0, 0, 0, 1]}) for n in (98, 2)
    ]
    with pytest.raises((ValueError, KeyError), match=nth_id(98)):
        await filled.update_vectors(COLLECTION, vectors)
    one, two = await filled.retrieve(COLLECTION, [nth_id(1), nth_id(2)], with_vectors=["turn"])
    assert (one.payload or {})["extra"] == 1
    assert two.vector == {"turn": [0, 0, 0, 1]}


async def test_points_are_deleted_by_id_and_by_filter_and_repeatedly(filled: VectorStore) -> None:
    await filled.delete(COLLECTION, models.PointIdsList(points=[nth_id(0)]))
    await filled.delete(COLLECTION, [nth_id(0), nth_id(2)])
    await filled.delete(COLLECTION, models.FilterSelector(filter=where(owner="o1")))
    await filled.delete(COLLECTION, where(owner="o1"))
    assert await matching(filled, models.Filter()) == [4, 6, 8]


async def test_scroll_walks_all_points_page_by_page(filled: VectorStore) -> None:
    observed: list[int] = []
    offset: Any = None
    while True:
        records, offset = await filled.scroll(COLLECTION, limit=4, offset=offset)
        observed += numbers(records)
        if offset is None:
            break
    assert observed == list(range(10))


async def test_scroll_orders_by_an_integer_both_ways_and_starts_where_requested(filled: VectorStore) -> None:
    descending = models.OrderBy(key="rank", direction=models.Direction.DESC, start_from=7)
    records, offset = await filled.scroll(COLLECTION, where(owner="o1"), limit=3, order_by=descending)
    assert numbers(records) == [7, 5, 3]
    assert offset is None
    records, _ = await filled.scroll(COLLECTION, limit=2, order_by=models.OrderBy(key="rank"))
    assert numbers(records) == [0, 1]
    with pytest.raises(ValueError, match="order_by"):
        await filled.scroll(COLLECTION, order_by=models.OrderBy(key="rank"), offset=nth_id(1))


async def test_points_without_the_ordered_field_are_omitted(filled: VectorStore) -> None:
    await filled.delete_payload(COLLECTION, ["rank"], [nth_id(n) for n in range(8)])
    records, _ = await filled.scroll(COLLECTION, limit=5, order_by=models.OrderBy(key="rank"))
    assert numbers(records) == [8, 9]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (models.Filter(must=[field("owner", match=models.MatchAny(any=["o1", "zz"]))]), [1, 3, 5, 7, 9]),
        (models.Filter(must=[field("rank", range=models.Range(gt=2, lte=4))]), [3, 4]),
        (models.Filter(must=[field("rank", match=models.MatchAny(any=[2, 5]))]), [2, 5]),
        (models.Filter(must_not=[field("rank", range=models.Range(gte=3))]), [0, 1, 2]),
        (
            models.Filter(
                should=[field("rank", range=models.Range(lt=1)), field("rank", range=models.Range(gt=8))]
            ),
            [0, 9],
        ),
        (models.Filter(must=[models.HasIdCondition(has_id=[nth_id(4), nth_id(50)])]), [4]),
        (models.Filter(must=[models.HasVectorCondition(has_vector="turn")]), list(range(10))),
        (
            models.Filter(must=models.IsEmptyCondition(is_empty=models.PayloadField(key="gone"))),
            list(range(10)),
        ),
        (
            models.Filter(
                must=[
                    models.Filter(must_not=[field("owner", match=models.MatchValue(value="o0"))]),
                    field("rank", range=models.Range(lt=4)),
                ]
            ),
            [1, 3],
        ),
    ],
)
async def test_filters_choose_the_same_points(
    filled: VectorStore, condition: models.Filter, expected: list[int]
) -> None:
    assert await matching(filled, condition) == expected
    assert (await filled.count(COLLECTION, condition)).count == len(expected)


async def test_a_dense_query_ranks_filters_and_limits(filled: VectorStore) -> None:
    query = [1.0, 2.0, 4.0, 0.5]
    hits = await nearest(filled, query, "turn", limit=3)
    assert len(hits) == 3
    assert next(hit.payload["n"] for hit in hits if hit.payload) == 2
    assert hits[0].score == pytest.approx(1)
    odd = await nearest(filled, query, "turn", condition=where(owner="o1"))
    assert {hit.payload["owner"] for hit in odd if hit.payload} == {"o1"}


async def test_a_sparse_query_weighs_rare_words_more(filled: VectorStore) -> None:
    words = models.SparseVector(indices=[1, 13], values=[1.0, 1.0])
    best = (await nearest(filled, words, "sparse", limit=20))[0]
    assert best.id == nth_id(3)
    common = models.SparseVector(indices=[1], values=[1.0])
    assert (await nearest(filled, common, "sparse"))[0].score < 0.1 < best.score


async def test_a_batch_answers_every_query_in_its_place(filled: VectorStore) -> None:
    dense = models.QueryRequest(query=[1.0, 2.0, 4.0, 0.5], using="turn", limit=2, with_payload=True)
    words = models.SparseVector(indices=[13], values=[1.0])
    sparse = models.QueryRequest(query=words, using="sparse", limit=2)
    by_filter = models.QueryRequest(query=[1.0, 0, 0, 0], using="question", limit=1, filter=where(n=7))
    one, two, three = await filled.query_batch_points(COLLECTION, [dense, sparse, by_filter])
    assert [len(response.points) for response in (one, two, three)] == [2, 1, 1]
    assert (one.points[0].payload or {})["n"] == 2
    assert not two.points[0].payload
    assert [two.points[0].id, three.points[0].id] == [nth_id(3), nth_id(7)]


@pytest.mark.parametrize(
    "vectors", [{"turn": [1.0, 2.0]}, {"unknown": [1.0, 0, 0, 0]}, {"sparse": [1.0, 0, 0, 0]}]
)
async def test_vectors_that_do_not_fit_are_refused_and_nothing_is_written(
    filled: VectorStore, vectors: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r".+"):
        await filled.upsert(
            COLLECTION, [thing(50), models.PointStruct(id=nth_id(51), vector=vectors, payload={})]
        )
    assert (await filled.count(COLLECTION)).count == 10


async def test_an_empty_update_is_refused(filled: VectorStore) -> None:
    with pytest.raises(ValueError, match=r"(?i)empty"):
        await filled.upsert(COLLECTION, [])
    with pytest.raises(ValueError, match=r"(?i)empty"):
        await filled.delete(COLLECTION, [])


async def test_values_are_counted_per_facet(filled: VectorStore) -> None:
    response = await filled.facet(COLLECTION, "owner", facet_filter=where(owner="o1"))
    assert [(hit.value, hit.count) for hit in response.hits] == [("o1", 5)]
