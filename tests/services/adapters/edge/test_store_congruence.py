"""Random operations on the embedded engine and on the client's local mode: the results must agree."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from qdrant_client import models

from services.store.dialect import VectorStore
from tests.services.adapters.edge.stores import (
    COLLECTION,
    NO_INDEX_WARNING,
    make_collection,
    nearest,
    nth_id,
    open_store,
)

pytestmark = pytest.mark.filterwarnings(NO_INDEX_WARNING)

LIMIT = 6
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Operation:
    """A method of the store and its arguments."""

    method: str
    arguments: dict[str, Any]


numbers = st.integers(0, 11)
ranks = st.integers(0, 5)
owners = st.sampled_from(["a", "b", "c"])
ids = numbers.map(nth_id)
dense = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0]), min_size=4, max_size=4).filter(any)
sparse = st.dictionaries(st.integers(0, 6), st.sampled_from([0.5, 1.0, 2.0]), min_size=1, max_size=4).map(
    lambda words: models.SparseVector(indices=list(words), values=list(words.values()))
)
vectors = st.fixed_dictionaries({}, optional={"turn": dense, "question": dense, "sparse": sparse})
payloads = st.fixed_dictionaries(
    {},
    optional={
        "rank": ranks,
        "owner": owners,
        "ready": st.booleans(),
        "tags": st.lists(owners, max_size=2),
        "note": st.none() | st.text(max_size=3),
    },
)
points = st.builds(
    lambda n, vector, payload: models.PointStruct(id=nth_id(n), vector=vector, payload={"n": n, **payload}),
    numbers,
    vectors,
    payloads,
)


def on(key: str, **asked: Any) -> models.FieldCondition:
    return models.FieldCondition(key=key, **asked)


conditions: st.SearchStrategy[Any] = st.one_of(
    owners.map(lambda owner: on("owner", match=models.MatchValue(value=owner))),
    st.booleans().map(lambda ready: on("ready", match=models.MatchValue(value=ready))),
    st.lists(owners, min_size=1, max_size=2).map(lambda some: on("tags", match=models.MatchAny(any=some))),
    st.builds(lambda low, high: on("rank", range=models.Range(gte=low, lt=high)), ranks, ranks),
    st.sampled_from(["tags", "note", "rank"]).map(
        lambda key: models.IsEmptyCondition(is_empty=models.PayloadField(key=key))
    ),
    st.lists(ids, min_size=1, max_size=4).map(lambda some: models.HasIdCondition(has_id=some)),
    st.sampled_from(["turn", "sparse"]).map(lambda name: models.HasVectorCondition(has_vector=name)),
)
some_conditions = st.lists(conditions, min_size=1, max_size=2)
filters = st.fixed_dictionaries(
    {}, optional={"must": some_conditions, "should": some_conditions, "must_not": some_conditions}
).map(lambda clauses: models.Filter(**clauses))
selectors = st.one_of(st.lists(ids, min_size=1, max_size=3, unique=True), filters)


def operation(method: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Operation]:
    return st.fixed_dictionaries(arguments).map(lambda drawn: Operation(method, drawn))


writes = st.one_of(
    operation("upsert", points=st.lists(points, min_size=1, max_size=6, unique_by=lambda point: point.id)),
    operation(
        "update_vectors",
        points=st.lists(
            st.builds(lambda i, vector: models.PointVectors(id=i, vector=vector), ids, vectors.filter(bool)),
            min_size=1, max_size=2, unique_by=lambda point: point.id,
        ),
    ),
    operation("set_payload", payload=payloads, points=selectors),
    operation("delete_payload", keys=st.just(["rank"]) | st.just(["tags", "note"]), points=selectors),
    operation("delete", points_selector=selectors),
)  # fmt: skip
orders = st.builds(
    lambda direction, start: models.OrderBy(key="rank", direction=direction, start_from=start),
    st.sampled_from(list(models.Direction)),
    st.none() | ranks,
)
reads = st.one_of(
    operation("count", count_filter=filters),
    operation("scroll", scroll_filter=filters, limit=st.just(LIMIT), with_vectors=st.booleans()),
    operation("scroll", scroll_filter=filters, limit=st.just(LIMIT), order_by=orders),
    operation("retrieve", ids=st.lists(ids, max_size=4, unique=True)),
    operation(
        "nearest", vector=dense, using=st.sampled_from(["turn", "question"]), condition=filters,
        limit=st.just(LIMIT),
    ),
    operation(
        "nearest", vector=sparse, using=st.just("sparse"), condition=st.none() | filters, limit=st.just(100),
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as running:
        yield running


@pytest.fixture(scope="module")
def engines(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[VectorStore]]:
    folder: Path = tmp_path_factory.mktemp("congruence")
    stores = [open_store(engine, folder) for engine in ("edge", "memory")]
    yield [runner.run(store.__aenter__()) for store in stores]
    for store in stores:
        runner.run(store.__aexit__(None, None, None))


async def outcome(store: VectorStore, asked: Operation) -> Any:
    """The method's result, or that it refused; messages may differ."""
    try:
        if asked.method == "nearest":
            return await nearest(store, **asked.arguments)
        return await getattr(store, asked.method)(COLLECTION, **asked.arguments)
    except (ValueError, KeyError):
        return "refused"


def assert_same(asked: Operation, edge: Any, reference: Any) -> None:
    if asked.arguments.get("using") == "sparse":
        # Until it is compacted, the engine counts replaced and deleted points in a word's frequency.
        assert {hit.id for hit in edge} == {hit.id for hit in reference}
    elif asked.method == "nearest":
        assert_same_ranking([(hit.score, hit.id) for hit in edge],
                            [(hit.score, hit.id) for hit in reference])  # fmt: skip
    elif asked.arguments.get("order_by") is not None:
        assert_same_ranking([(float(each.payload["rank"]), each.id) for each in edge[0]],
                            [(float(each.payload["rank"]), each.id) for each in reference[0]])  # fmt: skip
    elif asked.method == "scroll":
        assert_same_records(edge[0], reference[0])
        assert edge[1] == reference[1]
    elif asked.method == "retrieve":
        assert_same_records(edge, reference)
    elif asked.method == "count" or reference == "refused":
        assert edge == reference
    else:
        assert edge.status == reference.status


def assert_same_ranking(edge: list[tuple[float, Any]], reference: list[tuple[float, Any]]) -> None:
    """Equal scores rank by rank, and the same points above the last score, where a tie may be truncated."""
    assert [score for score, _ in edge] == pytest.approx([score for score, _ in reference], abs=TOLERANCE)
    if reference:
        last = reference[-1][0] if len(reference) == LIMIT else float("nan")
        assert whole(edge, last) == whole(reference, last)


def whole(ranking: list[tuple[float, Any]], cut: float) -> set[Any]:
    return {point_id for score, point_id in ranking if not abs(score - cut) <= TOLERANCE}


def assert_same_records(edge: list[models.Record], reference: list[models.Record]) -> None:
    assert [(record.id, record.payload) for record in edge] == [
        (record.id, record.payload) for record in reference
    ]
    for ours, theirs in zip(edge, reference, strict=True):
        assert_same_vectors(ours.vector or {}, theirs.vector or {})


def assert_same_vectors(edge: Any, reference: Any) -> None:
    assert set(edge) == set(reference)
    for name, vector in reference.items():
        if isinstance(vector, models.SparseVector):
            assert dict(zip(edge[name].indices, edge[name].values, strict=True)) == dict(
                zip(vector.indices, vector.values, strict=True)
            )
        else:
            assert edge[name] == pytest.approx(vector, abs=TOLERANCE)


@pytest.mark.full("works through many cases, for seconds")
@settings(
    max_examples=40,
    phases=[Phase.explicit, Phase.generate],  # shrinking takes minutes; a failure prints its operations
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    first=st.lists(points, min_size=4, max_size=10, unique_by=lambda point: point.id),
    operations=st.lists(writes | reads, min_size=10, max_size=30),
)
def test_both_engines_answer_alike(
    runner: asyncio.Runner,
    engines: list[VectorStore],
    first: list[models.PointStruct],
    operations: list[Operation],
) -> None:
    async def compare() -> None:
        for store in engines:
            await make_collection(store)
            await store.upsert(COLLECTION, first)
        for asked in operations:
            edge, reference = [await outcome(store, asked) for store in engines]
            assert_same(asked, edge, reference)

    runner.run(compare())
