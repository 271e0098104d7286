"""A collection is compacted while in use: nothing is lost, space is freed, a crash leaves it whole."""

from __future__ import annotations

import asyncio
import random
import re
from array import array
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from qdrant_client import models

from core.errors import DiskFullError, StoreUnavailableError
from services.adapters.edge import wire
from services.adapters.edge.client import EdgeClient, open_edge_client
from services.adapters.edge.collection import Refusal
from services.adapters.edge.compaction import compact
from services.adapters.edge.shards import Shards
from services.store.dialect import StoreRequestError, StoreUpkeep
from services.store.durable import allocated_bytes
from tests.services.adapters.edge.stores import COLLECTION, make_collection, nth_id, numbers, thing, where
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("started_children")
OTHER = "others"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[EdgeClient]:
    async with open_edge_client(tmp_path) as opened:
        await make_collection(opened)
        await opened.upsert(COLLECTION, [thing(n) for n in range(200)])
        yield opened


async def everything(client: EdgeClient, collection: str = COLLECTION) -> dict[str, Any]:
    """Payload and vectors by id."""
    records, _ = await client.scroll(collection, limit=100_000, with_vectors=True)
    return {str(record.id): (record.payload, record.vector) for record in records}


def names(folder: Path) -> set[str]:
    """Without the journal, and the reserve for deletions, which is written when the store is idle."""
    entries = (entry.name for entry in folder.iterdir())
    return {name for name in entries if not name.startswith(("journal.db", wire.DELETIONS_FILE))}


def second_processes() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if is_second(child)]


def is_second(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return wire.COPIES_FLAG in process.cmdline()
    return False


async def test_a_compacted_collection_reads_the_same(client: EdgeClient, tmp_path: Path) -> None:
    """Discriminates: omitting the vectors, the indexes or the metadata of the copy."""
    assert isinstance(client, StoreUpkeep)
    await client.upsert(COLLECTION, [models.PointStruct(id=7, vector={}, payload=None)])
    await client.delete(COLLECTION, [nth_id(n) for n in range(0, 200, 2)])
    points, info = await everything(client), await client.get_collection(COLLECTION)
    query = models.QueryRequest(query=[1.0, 2.0, 4.0, 0.5], using="turn", limit=10, filter=where(owner="o1"))
    ranking = await client.query_batch_points(COLLECTION, [query])
    await client.compact(COLLECTION)
    assert await everything(client) == points
    assert await client.query_batch_points(COLLECTION, [query]) == ranking
    now = await client.get_collection(COLLECTION)
    assert (now.config, now.payload_schema) == (info.config, info.payload_schema)
    newest = await client.scroll(COLLECTION, limit=1, order_by=models.OrderBy(key="rank", direction="desc"))
    assert numbers(newest[0]) == [199]
    assert names(tmp_path) == {"lock", COLLECTION}


async def test_writes_and_deletions_during_a_compaction_are_kept(client: EdgeClient) -> None:
    """Discriminates: not following changes, or losing those of the last step, or deletions among them."""
    choice = random.Random(6)
    remaining: dict[int, int] = dict.fromkeys(range(200), 0)
    finished = asyncio.Event()

    async def write() -> None:
        for step in range(1, 100_000):
            n = choice.randrange(400)
            if step % 3:
                remaining[n] = step
                await client.upsert(COLLECTION, [thing(n, step=step)])
            else:
                remaining.pop(n, None)
                await client.delete(COLLECTION, models.FilterSelector(filter=where(n=n)))
            if finished.is_set():
                return
            await asyncio.sleep(0.001)  # the compaction has its turns

    writing = asyncio.create_task(write())
    for _ in range(2):
        await client.compact(COLLECTION)
    finished.set()
    await writing
    points = await everything(client)
    results = {payload["n"]: payload.get("step", 0) for payload, _ in points.values()}
    assert results == remaining


@pytest.mark.full("works through many cases, for seconds")
async def test_reads_continue_while_a_collection_is_compacted(client: EdgeClient) -> None:
    compaction = asyncio.create_task(client.compact(COLLECTION))
    reads = 0
    while not compaction.done():
        assert (await client.count(COLLECTION)).count == 200
        reads += 1
    await compaction
    assert reads > 20


def turn(n: int) -> wire.Point:
    """The size of a typical turn: two vectors of 384, a sparse one, 2 kB of incompressible text."""
    choice = random.Random(n)
    vectors: wire.Vectors = {
        name: array("f", [choice.random() for _ in range(384)]).tobytes() for name in ("turn", "question")
    }
    return wire.Point(nth_id(n), vectors, {"n": n, "text": choice.randbytes(1_000).hex()})


async def fill(client: EdgeClient, collection: str, chosen: range) -> None:
    dense = models.VectorParams(size=384, distance=models.Distance.DOT)
    await client.create_collection(collection, {"turn": dense, "question": dense})
    for start in range(0, len(chosen), 50):
        await client._update(wire.Upsert(collection, [turn(n) for n in chosen[start : start + 50]]))


async def test_at_least_80_percent_of_the_space_of_deleted_turns_is_freed(on_disk: Path) -> None:
    """The reference is a collection into which only the remaining turns were ever written.

    Discriminates: using the engine's own optimizer, which frees 37 %.
    """
    async with open_edge_client(on_disk) as client:
        await fill(client, "turns", range(2_000))
        await fill(client, "survivors", range(1, 2_000, 2))
        before = (await client.sizes("turns")).bytes_before
        await client.delete("turns", [nth_id(n) for n in range(0, 2_000, 2)])
        expected = await client.sizes("turns")
        reclaimed = await client.compact("turns")
        yardstick = allocated_bytes(on_disk / "survivors")
        assert (await client.sizes("turns")).bytes_before == reclaimed.bytes_after
        assert await everything(client, "turns") == await everything(client, "survivors")
    assert before - reclaimed.bytes_after >= 0.8 * (before - yardstick)
    assert expected.bytes_after == pytest.approx(reclaimed.bytes_after, rel=0.15)


async def test_without_room_for_the_copy_nothing_is_done_and_one_line_says_so(
    client: EdgeClient, tmp_path: Path
) -> None:
    points = await everything(client)
    async with client.follow([COLLECTION]) as feed:
        with pytest.raises(DiskFullError, match=r"room for a copy: about \d+ MB") as refused:
            await compact(tmp_path, COLLECTION, feed, reserve_bytes=1 << 62)
    assert "\n" not in str(refused.value)
    assert await everything(client) == points
    assert names(tmp_path) == {"lock", COLLECTION}


@pytest.mark.full("works through many cases, for seconds")
@pytest.mark.parametrize("place", ["compact.adopting", "compact.renamed", "compact.adopted"])
async def test_a_crash_while_the_copy_is_adopted_leaves_a_whole_collection(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: starting with a copy that lacks the last changes, or with no collection at all."""
    monkeypatch.setenv("WENMAI_FAILPOINT", place)
    async with open_edge_client(tmp_path) as client:
        await make_collection(client)
        await client.upsert(COLLECTION, [thing(n) for n in range(100)])
        first = client.process_id
        compaction = asyncio.create_task(client.compact(COLLECTION))
        written = 100
        while not compaction.done() and not client._channel.ended:  # a write would start another that crashes
            try:
                await client.upsert(COLLECTION, [thing(written)])
                written += 1
            except StoreUnavailableError:
                break
            await asyncio.sleep(0.002)  # the compaction has its turns
        monkeypatch.delenv("WENMAI_FAILPOINT")
        with pytest.raises(StoreUnavailableError):
            await compaction
        present = sorted(numbers((await client.scroll(COLLECTION, limit=10_000))[0]))
        assert present[:written] == list(range(written))
        assert client.process_id != first
        await client.compact(COLLECTION)
        assert (await client.count(COLLECTION)).count == len(present)
        assert names(tmp_path) == {"lock", COLLECTION}


async def test_a_cancelled_compaction_leaves_nothing_behind(client: EdgeClient, tmp_path: Path) -> None:
    compaction = asyncio.create_task(client.compact(COLLECTION))
    await until(second_processes)
    compaction.cancel()
    with pytest.raises(asyncio.CancelledError):
        await compaction
    assert not second_processes()
    assert names(tmp_path) == {"lock", COLLECTION}
    assert (await client.count(COLLECTION)).count == 200


@pytest.mark.full("works through many cases, for seconds")
async def test_compactions_run_one_at_a_time(client: EdgeClient) -> None:
    await make_collection(client, OTHER)
    compactions = [asyncio.create_task(client.compact(name)) for name in (COLLECTION, OTHER, COLLECTION)]
    most = 0
    while not all(compaction.done() for compaction in compactions):
        most = max(most, len(second_processes()))
        await asyncio.sleep(0.02)  # between two checks of the processes
    await asyncio.gather(*compactions)
    assert most == 1
    assert (await client.count(COLLECTION)).count == 200


async def test_a_backup_continues_following_across_a_compaction(client: EdgeClient) -> None:
    async with client.follow() as feed:
        await client.upsert(COLLECTION, [thing(1)])
        await client.compact(COLLECTION)
        await client.delete(COLLECTION, [nth_id(2)])
        last = await feed.last(10)
    assert last is not None
    assert numbers(list(last[COLLECTION].points)) == [1]
    assert list(last[COLLECTION].deleted) == [nth_id(2)]


async def test_a_collection_deleted_during_its_compaction_stays_deleted(
    client: EdgeClient, tmp_path: Path
) -> None:
    compaction = asyncio.create_task(client.compact(COLLECTION))
    await until(second_processes)
    await client.delete_collection(COLLECTION)
    with pytest.raises(StoreUnavailableError):
        await compaction
    assert names(tmp_path) == {"lock"}
    with pytest.raises(StoreRequestError):
        await client.compact(COLLECTION)


def make(folder: Path, ids: range, indexed: tuple[str, ...] = ("n",)) -> Shards:
    shards = Shards(folder)
    shards.answer(wire.CreateCollection(COLLECTION, wire.CollectionSpec({}, {"sparse": True})))
    for field in indexed:
        shards.answer(wire.CreateIndex(COLLECTION, field, wire.IndexSpec("integer")))
    shards.answer(wire.Upsert(COLLECTION, [wire.Point(n, {}, {"n": n}) for n in ids]))
    return shards


@pytest.mark.parametrize("fault", ["points", "index", "damage"])
def test_a_copy_that_differs_from_the_collection_is_not_adopted(tmp_path: Path, fault: str) -> None:
    """Discriminates: adopting a copy unchecked."""
    shards = make(tmp_path, range(10))
    shards.answer(wire.Follow(1))
    copies = tmp_path / ".compacting-x"
    copies.mkdir()
    second = make(copies, range(9 if fault == "points" else 10), () if fault == "index" else ("n",))
    second.answer(wire.Release(COLLECTION))
    if fault == "damage":
        (copies / COLLECTION / "closed.json").write_text('{"points": 11}')
    with pytest.raises(Refusal, match="copy was not taken") as refused:
        shards.answer(wire.Adopt(COLLECTION, 1, copies.name, 5))
    assert refused.value.verdict is wire.Verdict.UNAVAILABLE
    shards.answer(wire.Upsert(COLLECTION, [wire.Point(10, {})]))
    shards.close()
    again = Shards(tmp_path)
    again.open_all()
    assert again.answer(wire.Count(COLLECTION)) == 11
    assert names(tmp_path) == {COLLECTION}
    again.close()


def test_too_many_changes_postpone_the_copy_and_lose_nothing(tmp_path: Path) -> None:
    shards = make(tmp_path, range(10))
    shards.answer(wire.Follow(1))
    shards.answer(wire.Upsert(COLLECTION, [wire.Point(n, {}) for n in range(6)]))
    assert shards.answer(wire.Adopt(COLLECTION, 1, "nowhere", 5)) is False
    assert shards.answer(wire.TakeChanged(1)) == {COLLECTION: list(range(6))}
    shards.close()


def test_leftovers_of_a_crashed_copy_are_removed_at_the_start(tmp_path: Path) -> None:
    make(tmp_path, range(3)).close()
    (tmp_path / ".compacting-abc" / COLLECTION / "shard").mkdir(parents=True)
    again = Shards(tmp_path)
    again.open_all()
    assert again.answer(wire.ListCollections()) == [COLLECTION]
    assert not re.search("compacting", " ".join(names(tmp_path)))
    again.close()
