"""A batch of queries of the embedded store, and long vectors in half the space."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
import qdrant_edge as edge
from numpy.typing import NDArray
from qdrant_client import models

from services.adapters.edge import wire
from services.adapters.edge.client import EdgeClient, open_edge_client
from services.store.dialect import ScoredPoint, StoreUpkeep
from tests.services.adapters.edge.stores import COLLECTION, make_collection, nearest, nth_id, thing

LONG, POINTS = 384, 300
Vectors = NDArray[np.float32]
SPARSE = models.SparseVector(indices=[1], values=[1.0])


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[EdgeClient]:
    async with open_edge_client(tmp_path) as opened:
        yield opened


@pytest.fixture
async def filled(client: EdgeClient) -> EdgeClient:
    await make_collection(client)
    await client.upsert(COLLECTION, [thing(n) for n in range(20)])
    return client


def numbers(points: Sequence[ScoredPoint]) -> list[int]:
    return [(point.payload or {})["n"] for point in points]


def long_vectors() -> Vectors:
    made = np.random.default_rng(3).standard_normal((POINTS, LONG))
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), dtype=np.float32)


async def store_long(client: EdgeClient, vectors: Vectors) -> None:
    await client.upsert(
        "long",
        [
            models.PointStruct(id=n, vector={"dense": vector.tolist()}, payload={"n": n})
            for n, vector in enumerate(vectors)
        ],
    )


async def test_queries_by_different_vectors_are_answered_in_request_order(filled: EdgeClient) -> None:
    """Discriminates: answers in the order in which the engine was queried."""
    sparse = models.QueryRequest(query=SPARSE, using="sparse", limit=5, with_payload=True)
    turn = models.QueryRequest(query=[1.0, 19.0, 4.0, 0.5], using="turn", limit=5, with_payload=True)
    requests = [turn, sparse, turn, sparse]
    alone = [(await filled.query_batch_points(COLLECTION, [request]))[0] for request in requests]
    together = await filled.query_batch_points(COLLECTION, requests)
    assert together == alone
    assert numbers(together[0].points) != numbers(together[1].points)


async def test_each_query_gets_the_fields_it_requested_of_a_shared_point(filled: EdgeClient) -> None:
    """Discriminates: one record per point whatever was requested."""

    def asked(payload: bool | list[str], vector: bool | list[str]) -> models.QueryRequest:
        return models.QueryRequest(query=SPARSE, using="sparse", with_payload=payload, with_vector=vector)

    answers = await filled.query_batch_points(
        COLLECTION, [asked(False, False), asked(["n"], ["turn"]), asked(True, False), asked(["n"], ["turn"])]
    )
    bare, some, whole, same = [answer.points for answer in answers]
    assert [point.id for point in bare] == [point.id for point in some] == [point.id for point in whole]
    assert all(point.payload is None and point.vector is None for point in bare)
    assert all(set(point.payload or {}) == {"n"} and set(point.vector or {}) == {"turn"} for point in some)
    assert all(set(point.payload or {}) >= {"n", "owner"} and point.vector is None for point in whole)
    assert same == some


@pytest.mark.parametrize("owners", [["o1"], ["o1", "o2"], ["o1", *[f"x{n}" for n in range(40)]]])
async def test_one_a_few_and_many_owners_find_the_same(filled: EdgeClient, owners: list[str]) -> None:
    """Discriminates: a few values joined by `must` instead of `should`, or the first one only."""
    await filled.upsert(COLLECTION, [thing(n, owner="o2") for n in (30, 31)])
    chosen = models.Filter(
        must=[models.FieldCondition(key="owner", match=models.MatchAny(any=list(reversed(owners))))]
    )
    found = await nearest(filled, SPARSE, "sparse", 100, chosen)
    expected = [n for n in range(20) if n % 2] + ([30, 31] if "o2" in owners else [])
    assert sorted(numbers(found)) == expected
    assert (await filled.count(COLLECTION, chosen)).count == len(expected)


async def test_long_vectors_take_half_the_space_and_find_the_same(client: EdgeClient, tmp_path: Path) -> None:
    """Discriminates: Turbo8 instead of Turbo16 (the vectors), Float32 instead of it (the space)."""
    params = models.VectorParams(size=LONG, distance=models.Distance.COSINE)
    await client.create_collection("long", {"dense": params})
    vectors = long_vectors()
    await store_long(client, vectors)
    remaining = await client.retrieve("long", list(range(POINTS)), with_vectors=["dense"])
    read = np.asarray([record.vector["dense"] for record in remaining if isinstance(record.vector, dict)])
    assert np.abs(read - vectors).max() < 2e-5
    for query in vectors[:20]:
        found = await nearest(client, query.tolist(), "dense", 30, collection="long")
        best = np.sort(vectors @ query)[::-1][:30]
        assert [point.score for point in found] == pytest.approx(best.tolist(), abs=2e-5)
    assert list((tmp_path / "long").rglob("tq_vectors"))


async def test_vectors_read_and_written_repeatedly_stay_the_same(client: EdgeClient) -> None:
    """As a compaction and a restored backup do. Discriminates: Turbo8 instead of Turbo16."""
    params = models.VectorParams(size=LONG, distance=models.Distance.COSINE)
    await client.create_collection("long", {"dense": params})
    vectors = first = long_vectors()[:20]
    for _ in range(20):
        await store_long(client, vectors)
        remaining = await client.retrieve("long", list(range(len(vectors))), with_vectors=["dense"])
        read = [record.vector["dense"] for record in remaining if isinstance(record.vector, dict)]
        vectors = np.asarray(read, dtype=np.float32)
    assert np.abs(vectors - first).max() < 1e-4


async def test_a_store_made_in_32_bits_is_used_and_shrinks_when_it_is_compacted(tmp_path: Path) -> None:
    """Discriminates: opening a shard with the current configuration instead of its own."""
    made_in_32_bits(tmp_path)
    async with open_edge_client(tmp_path) as client:
        assert isinstance(client, StoreUpkeep)
        vectors = long_vectors()
        await store_long(client, vectors)
        before = await nearest(client, vectors[7].tolist(), "dense", collection="long")
        await client.compact("long")
        after = await nearest(client, vectors[7].tolist(), "dense", collection="long")
    assert numbers(after) == numbers(before)
    scores = [point.score for point in before]
    assert [point.score for point in after] == pytest.approx(scores, abs=2e-5)
    assert list((tmp_path / "long").rglob("tq_vectors"))


def made_in_32_bits(folder: Path) -> None:
    """Create a collection as earlier versions did."""
    shard = folder / "long" / "shard"
    shard.mkdir(parents=True)
    config = edge.EdgeConfig(vectors={"dense": edge.EdgeVectorParams(LONG, edge.Distance.Cosine)})
    edge.EdgeShard.create(str(shard), config).close()
    spec = wire.CollectionSpec({"dense": wire.DenseSpec(LONG, "Cosine")}, {})
    (folder / "long" / "collection.json").write_bytes(msgspec.json.encode(spec))


async def test_a_point_requested_twice_is_sent_once(filled: EdgeClient) -> None:
    """Discriminates: a record for every rank in every ranking."""
    request = models.QueryRequest(query=SPARSE, using="sparse", limit=20, with_payload=True)
    one, other = await filled.query_batch_points(COLLECTION, [request, request])
    assert [point.id for point in one.points] == [nth_id(n) for n in numbers(one.points)]
    assert all(a.payload is b.payload for a, b in zip(one.points, other.points, strict=True))
