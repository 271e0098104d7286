"""What a follower of the embedded store receives: each changed point, whole or as deleted, or that it lost
track."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.msgpack import Decoder
from qdrant_client import models

from core.errors import StoreUnavailableError
from services.adapters.edge import wire
from services.adapters.edge.client import EdgeClient, open_edge_client
from services.adapters.edge.collection import Refusal
from services.adapters.edge.points import Feeds
from services.store.dialect import StoreRequestError, UnknownPointError
from tests.services.adapters.edge.stores import COLLECTION, make_collection, nth_id, numbers, thing, where

OTHER = "others"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[EdgeClient]:
    async with open_edge_client(tmp_path) as opened:
        await make_collection(opened)
        await opened.upsert(COLLECTION, [thing(n) for n in range(10)])
        yield opened


def ids(*chosen: int) -> set[str]:
    return {nth_id(n) for n in chosen}


async def test_every_kind_of_write_is_reported_once_and_earlier_writes_are_not(client: EdgeClient) -> None:
    """Discriminates: not noting any one of the writes, or not forgetting changes already taken."""
    async with client.follow() as feed:
        assert await feed.changed() == {}
        await client.upsert(COLLECTION, [thing(0), thing(20)])
        await client.set_payload(COLLECTION, {"x": 1}, [nth_id(1)])
        await client.delete_payload(COLLECTION, ["x"], [nth_id(2)])
        vector = {"turn": [1.0, 0.0, 0.0, 0.0]}
        await client.update_vectors(COLLECTION, [models.PointVectors(id=nth_id(3), vector=vector)])
        await client.delete(COLLECTION, [nth_id(4)])
        await client.upsert(COLLECTION, [thing(0)])
        assert set((await feed.changed())[COLLECTION]) == ids(0, 1, 2, 3, 4, 20)
        assert await feed.changed() == {}


async def test_writes_by_filter_report_the_points_that_matched_before(client: EdgeClient) -> None:
    """Discriminates: searching the matching points after the write, which may have changed what matches."""
    async with client.follow() as feed:
        await client.set_payload(COLLECTION, {"rank": 100}, where(rank=5))
        assert set((await feed.changed())[COLLECTION]) == ids(5)
        await client.delete_payload(COLLECTION, ["rank"], where(rank=6))
        assert set((await feed.changed())[COLLECTION]) == ids(6)
        await client.delete(COLLECTION, models.FilterSelector(filter=where(owner="o0")))
        assert set((await feed.changed())[COLLECTION]) == ids(0, 2, 4, 6, 8)
        await client.delete(COLLECTION, models.FilterSelector(filter=where(owner="nobody")))
        assert await feed.changed() == {}


async def test_the_last_changes_arrive_for_every_collection_and_end_the_feed(client: EdgeClient) -> None:
    await make_collection(client, OTHER)
    async with client.follow() as feed:
        await client.upsert(OTHER, [thing(1, text="new")])
        await client.delete(COLLECTION, [nth_id(7)])
        await client.set_payload(COLLECTION, {"seen": True}, [nth_id(8)])
        assert await feed.last(max_points=2) is None
        last = await feed.last(max_points=3)
        assert last is not None
        assert numbers(list(last[OTHER].points)) == [1]
        (whole,) = last[COLLECTION].points
        assert whole.payload is not None
        assert whole.payload["seen"] is True
        (stored,) = await client.retrieve(COLLECTION, [nth_id(8)], with_vectors=True)
        assert whole.vector == stored.vector
        assert list(last[COLLECTION].deleted) == [nth_id(7)]
        with pytest.raises(StoreRequestError, match="ended"):
            await feed.changed()


async def test_several_may_follow_at_once_and_one_may_follow_a_single_collection(client: EdgeClient) -> None:
    await make_collection(client, OTHER)
    async with client.follow() as every, client.follow([OTHER]) as one:
        await client.upsert(COLLECTION, [thing(1)])
        await client.upsert(OTHER, [thing(2)])
        assert await one.changed() == {OTHER: [nth_id(2)]}
        assert await every.changed() == {COLLECTION: [nth_id(1)], OTHER: [nth_id(2)]}


async def test_a_refused_write_reports_nothing(client: EdgeClient) -> None:
    async with client.follow() as feed:
        with pytest.raises(UnknownPointError):
            await client.set_payload(COLLECTION, {"x": 1}, [nth_id(99)])
        with pytest.raises(StoreRequestError):
            await client.upsert(COLLECTION, [models.PointStruct(id=1, vector={"turn": [1.0]})])
        assert await feed.changed() == {}


async def test_a_collection_created_or_deleted_meanwhile_ends_the_copy(
    client: EdgeClient,
) -> None:
    lost = f"{OTHER} was created or deleted.* start the copy again"
    for change in (client.delete_collection(OTHER), make_collection(client, OTHER)):
        await make_collection(client, OTHER)
        async with client.follow() as feed, client.follow([COLLECTION]) as unconcerned:
            await change
            for call in (feed.changed(), feed.last(10)):
                with pytest.raises(StoreUnavailableError, match=lost):
                    await call
            assert await unconcerned.last(10) == {}


async def test_another_store_process_does_not_know_the_feed_and_says_so(client: EdgeClient) -> None:
    """Discriminates: asking any current process, whose own feed of that number reports something else."""
    async with client.follow() as feed:
        os.kill(client.process_id, signal.SIGKILL)
        with pytest.raises(StoreUnavailableError):
            await client.count(COLLECTION)
        async with client.follow() as later:
            await client.upsert(COLLECTION, [thing(1)])
            with pytest.raises(StoreUnavailableError, match="start the copy again"):
                await feed.changed()
            assert await later.changed() == {COLLECTION: [nth_id(1)]}


async def test_a_follower_that_leaves_is_removed_even_if_it_never_started(client: EdgeClient) -> None:
    """Discriminates: numbers assigned by the process, which a follower cancelled at its first step never
    learns."""

    async def follow() -> None:
        async with client.follow():
            await asyncio.sleep(60)  # cancelled long before

    followers = [asyncio.create_task(follow()) for _ in range(3)]
    await asyncio.sleep(0)
    followers[0].cancel()
    await client.count(COLLECTION)
    for follower in followers:
        follower.cancel()
    await asyncio.gather(*followers, return_exceptions=True)
    for number in range(1, 4):
        with pytest.raises(StoreRequestError, match="ended"):
            await client._ask(wire.TakeChanged(number), Decoder(dict[str, list[str]]))


def test_a_feed_that_is_never_read_is_dropped() -> None:
    feeds = Feeds(max_ids=5)
    feeds.open(wire.Follow(1))
    for feed in feeds.following(COLLECTION):
        feed.note(COLLECTION, range(6))
    assert not feeds.following(COLLECTION)
    with pytest.raises(Refusal, match="more than 5 points changed"):
        feeds.find(1)
