"""A document's ranks in the lists of an unlimited search."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence

import pytest
from qdrant_client import models

from core.knowledge import Chunk
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import encode_query
from services.retrieval.retriever import ListPlace, ListPlaces
from services.store.dialect import VectorStore
from tests.services.retrieval.test_retriever import CountingStore
from tests.support.guide import COLLECTION, OWNER, open_collection, point

TEXTS = {
    "north": ("专业版的费用是每月九十九元", [1.0, 0.0]),
    "near": ("费用另议", [0.8, 0.6]),
    "between": ("团队版的费用另议", [0.6, 0.8]),
    "east": ("回收站保留三十天", [0.0, 1.0]),
}


def chunk(name: str) -> Chunk:
    return Chunk(
        str(uuid.uuid5(uuid.NAMESPACE_URL, name)), str(uuid.uuid5(uuid.NAMESPACE_DNS, name)), name, name, 0
    )


def ask(*forms: tuple[str, Sequence[float]]) -> Query:
    made = tuple(QueryForm(text, list(dense), encode_query(text)) for text, dense in forms)
    return Query(made[0].text, made)


@pytest.fixture
async def store() -> AsyncIterator[VectorStore]:
    async with open_collection(2) as opened:
        points: list[models.PointStruct] = []
        for name, (text, vector) in TEXTS.items():
            of = chunk(name)
            named = Chunk(of.chunk_id, of.document_id, name, text, 0)
            points.append(point(named, vector))
        points.append(point(chunk("foreign"), [1.0, 0.0], owner="owner-b"))
        points.append(point(chunk("unready"), [1.0, 0.0], ready=False))
        await opened.upsert(COLLECTION, points)
        yield opened


async def places_of(store: VectorStore, name: str, query: Query, handed_on: int = 2) -> dict[str, ListPlace]:
    of = chunk(name)
    places = await ListPlaces(store, COLLECTION, handed_on).of(query, [OWNER], of.document_id)
    return {place.kind: place for place in places.get(of.chunk_id, ())}


async def test_a_rank_is_compared_with_the_last_one_passed_on(store: VectorStore) -> None:
    """Discriminates: ranking within the document; the list's last score instead of the last passed on."""
    query = ask(("费用", [1.0, 0.0]))
    first = (await places_of(store, "north", query))["dense"]
    third = (await places_of(store, "between", query))["dense"]
    assert (first.rank, first.handed_on) == (1, True)
    assert (third.rank, third.handed_on) == (3, False)
    assert third.score == pytest.approx(0.6, abs=1e-5)
    assert third.last_score == pytest.approx(0.8, abs=1e-5)


async def test_a_list_that_is_not_full_passes_everything_on(store: VectorStore) -> None:
    place = (await places_of(store, "east", ask(("回收站", [1.0, 0.0])), handed_on=9))["dense"]
    assert (place.rank, place.last_score, place.handed_on) == (4, None, True)


async def test_a_list_without_the_chunk_has_no_rank_for_it(store: VectorStore) -> None:
    assert set(await places_of(store, "east", ask(("费用", [1.0, 0.0])))) == {"dense"}
    for hidden in ("foreign", "unready", "nobody"):
        assert await places_of(store, hidden, ask(("费用", [1.0, 0.0]))) == {}


async def test_the_best_rank_of_several_forms_counts_in_one_round_trip(
    store: VectorStore,
) -> None:
    """Discriminates: the last form's rank instead of the best one."""
    counting = CountingStore(store)
    query = ask(("专业版", [0.0, 1.0]), ("费用", [1.0, 0.0]), ("回收站", [0.0, 1.0]))
    place = (await places_of(counting, "north", query))["dense"]  # type: ignore[arg-type]
    assert (place.rank, place.handed_on) == (1, True)
    assert counting.batches == [12]
