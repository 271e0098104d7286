"""After a kill, the vectors are those that were written, or the damaged ones are reported."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
import sys
import uuid
from pathlib import Path

import pytest
from qdrant_client import models

from core.errors import StoreUnavailableError
from services.adapters.edge import wire
from services.adapters.edge.client import EdgeClient, open_edge_client
from services.adapters.edge.journal import FILE, Journal, vectors_checksum
from tests.services.adapters.edge.stores import COLLECTION, make_collection, nth_id, thing
from tests.support.environment import ROOT
from tests.support.waiting import until

POINTS = 300  # more than are checked in one step


def unread(folder: Path) -> int:
    """Changes that are not flushed, and points whose vectors have no checksum yet."""
    database = sqlite3.connect(folder / FILE)
    try:
        (count,) = database.execute(
            "SELECT (SELECT count(*) FROM change) + count(*) FROM point WHERE vectors IS NULL"
        ).fetchone()
    finally:
        database.close()
    return int(count)


async def killed_store(folder: Path) -> None:
    """The store was idle when it was killed."""
    async with open_edge_client(folder) as client:
        await make_collection(client)
        await client.upsert(COLLECTION, [thing(n) for n in range(POINTS)])
        await until(lambda: unread(folder) == 0)
        os.kill(client.process_id, signal.SIGKILL)


def vector_file(folder: Path, name: str) -> Path:
    """The vector file of the segment that has the points."""
    files = (folder / COLLECTION).glob(f"shard/segments/*/vector_storage-{name}/vectors/chunk_0.mmap")
    return max(files, key=lambda path: len(path.read_bytes().rstrip(b"\0")))


def flip(path: Path) -> None:
    """Flip one bit of the last number that is written there."""
    at = len(path.read_bytes().rstrip(b"\0")) - 1
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old ^ 1]))


async def damage(client: EdgeClient) -> list[str]:
    return list((await client.condition()).damage)


def named(lines: list[str]) -> int:
    """Return the point reported as having damaged vectors."""
    (line,) = lines
    match = re.search("the vectors of (\\S+) are not what was written", line)
    assert match is not None, line
    return uuid.UUID(match[1]).int - 1


async def test_vectors_that_differ_from_what_was_written_are_reported_after_a_kill(tmp_path: Path) -> None:
    """Discriminates: a start that compares only ids and payloads."""
    await killed_store(tmp_path)
    flip(vector_file(tmp_path, "turn"))
    async with open_edge_client(tmp_path) as client:
        number = named(await damage(client))
        record = (await client.retrieve(COLLECTION, [nth_id(number)]))[0]
        assert record.payload  # the payload is whole, and served
        await client.upsert(COLLECTION, [thing(number)])
        assert await damage(client) == []


@pytest.mark.parametrize(
    "index", ["owner-map/page_0.dat", "rank-map/page_0.dat", "owner-null/has_values/flags_a.dat"]
)
async def test_a_damaged_index_is_rebuilt_after_a_kill(tmp_path: Path, index: str) -> None:
    """Discriminates: points that a filter silently no longer finds, or finds by another value."""
    await killed_store(tmp_path)
    [path] = (tmp_path / COLLECTION).glob(f"shard/segments/*/payload_index/*-{index}")
    flip(path)
    async with open_edge_client(tmp_path) as client:
        assert await damage(client) == []
        for owner in ("o0", "o1"):
            has_owner = models.FieldCondition(key="owner", match=models.MatchValue(value=owner))
            assert (await client.count(COLLECTION, models.Filter(must=[has_owner]))).count == POINTS // 2
        for rank in range(POINTS):
            condition = models.Filter(
                must=[models.FieldCondition(key="rank", match=models.MatchValue(value=rank))]
            )
            assert (await client.count(COLLECTION, condition)).count == 1
        empty = models.IsEmptyCondition(is_empty=models.PayloadField(key="owner"))
        assert (await client.count(COLLECTION, models.Filter(must=[empty]))).count == 0


async def test_the_loss_of_a_vector_can_be_accepted_and_removes_no_point(tmp_path: Path) -> None:
    await killed_store(tmp_path)
    flip(vector_file(tmp_path, "question"))
    async with open_edge_client(tmp_path) as client:
        assert named(await client.accept_loss()) < POINTS
        assert await damage(client) == []
        assert (await client.count(COLLECTION)).count == POINTS
        await until(lambda: unread(tmp_path) == 0)
        os.kill(client.process_id, signal.SIGKILL)
    async with open_edge_client(tmp_path) as client:
        assert await damage(client) == []


@pytest.mark.parametrize("kept_bytes", [0, 4_096])
async def test_a_truncated_file_is_detected_and_everything_else_is_served(
    tmp_path: Path, kept_bytes: int
) -> None:
    """Loading does not always notice it. Discriminates: a start that crashes on it each time and is
    refused."""
    await killed_store(tmp_path)
    os.truncate(vector_file(tmp_path, "turn"), kept_bytes)
    async with open_edge_client(tmp_path) as client:
        condition = await client.condition()
        assert condition.read_only
        assert "cannot be read" in condition.damage[0]
        assert f"held {POINTS} points" in condition.damage[0]
        await client.accept_loss()
        await client.upsert(COLLECTION, [thing(1)])
        assert (await client.count(COLLECTION)).count == 1


HALF_A_START = """
import os, sys
from pathlib import Path
from services.adapters.edge.shards import Shards

Shards(Path(sys.argv[1])).open_all()
os._exit(0)
"""


async def closed_store(folder: Path) -> None:
    async with open_edge_client(folder) as client:
        for name in (COLLECTION, "others"):
            await make_collection(client, name)
            await client.upsert(name, [thing(n) for n in range(3)])


@pytest.mark.parametrize("lost", [[], ["others"]])
async def test_a_start_that_ends_halfway_loses_no_intact_data(tmp_path: Path, lost: list[str]) -> None:
    """The engine deletes files when it loads them. Discriminates: comparing a collection with the state of
    the last close although a start has loaded it since; one damaged collection making the other
    unavailable."""
    await closed_store(tmp_path)
    for name in lost:
        (tmp_path / name / "closed.json").write_text("[")
    begun = await asyncio.create_subprocess_exec(sys.executable, "-c", HALF_A_START, tmp_path, cwd=ROOT)
    assert await begun.wait() == 0
    for _ in range(2):
        async with open_edge_client(tmp_path) as client:
            assert [line.partition(":")[0] for line in await damage(client)] == lost
            assert (await client.count(COLLECTION)).count == 3


async def test_a_close_that_could_not_record_its_state_is_not_damage(tmp_path: Path) -> None:
    """On a full disk, or killed halfway. Discriminates: taking a partial note for a file of the
    collection."""
    await closed_store(tmp_path)
    (tmp_path / COLLECTION / "closed.json").rename(tmp_path / COLLECTION / "closed.json.partial")
    for _ in range(2):
        async with open_edge_client(tmp_path) as client:
            assert await damage(client) == []


async def test_a_process_that_crashes_while_reading_is_followed_by_one_that_checks_first(
    tmp_path: Path,
) -> None:
    """Truncating a mapped file while it is open kills its reader by SIGBUS. Discriminates: a second process
    that dies the same way."""
    async with open_edge_client(tmp_path) as client:
        await make_collection(client)
        await client.upsert(COLLECTION, [thing(n) for n in range(POINTS)])
        await until(lambda: unread(tmp_path) == 0)
        os.truncate(vector_file(tmp_path, "turn"), 0)
        with pytest.raises(StoreUnavailableError):
            await client.scroll(COLLECTION, limit=POINTS, with_vectors=True)
        condition = await client.condition()
        assert condition.read_only
        assert f"held {POINTS} points" in condition.damage[0]


async def test_vectors_of_all_writes_are_correct_after_kills_and_a_compaction(tmp_path: Path) -> None:
    """Discriminates: a checksum that outlives an update of the vectors, or a copy that rounds them again."""
    await killed_store(tmp_path)
    for change in (_update, _compact, _erase):
        async with open_edge_client(tmp_path) as client:
            assert await damage(client) == []
            await change(client)
            os.kill(client.process_id, signal.SIGKILL)
        async with open_edge_client(tmp_path) as client:
            assert await damage(client) == []
            await until(lambda: unread(tmp_path) == 0)
            assert (await client.condition(whole=True)).damage == []
            os.kill(client.process_id, signal.SIGKILL)


async def _update(client: EdgeClient) -> None:
    new = models.PointVectors(id=nth_id(7), vector={"turn": [0.1, 0.2, 0.3, 0.4]})
    await client.update_vectors(COLLECTION, [new])
    await client.set_payload(COLLECTION, {"colour": "red"}, points=[nth_id(7), nth_id(8)])


async def _compact(client: EdgeClient) -> None:
    await client.compact(COLLECTION)


async def _erase(client: EdgeClient) -> None:
    await client.delete(COLLECTION, models.PointIdsList(points=[nth_id(n) for n in range(100)]))


def test_a_journal_of_an_earlier_version_gets_its_checksums_when_the_store_is_idle(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / FILE)
    database.executescript(
        "CREATE TABLE point (collection TEXT NOT NULL, id BLOB NOT NULL, checksum INTEGER NOT NULL,"
        " PRIMARY KEY (collection, id)) WITHOUT ROWID; INSERT INTO point VALUES ('things', 1, 5);"
        "CREATE TABLE member (name TEXT PRIMARY KEY, spec BLOB NOT NULL) WITHOUT ROWID;"
        "INSERT INTO member VALUES ('things', x'00');"
    )
    database.close()
    journal = Journal(tmp_path)
    assert journal.checksums(COLLECTION, [1]) == {1: 5}
    assert journal.unread(COLLECTION, 10) == [1]
    journal.note_vectors(COLLECTION, {1: 9})
    assert journal.unread(COLLECTION, 10) == []
    journal.empty({COLLECTION: {1: 6}})  # only its payload was written
    assert journal.vectors(COLLECTION, [1]) == {1: 9}
    journal.empty({COLLECTION: {1: 6}}, {COLLECTION: {1}})
    assert journal.unread(COLLECTION, 10) == [1]
    journal.close()


def test_unread_points_are_looked_up_and_not_searched_among_all_points(tmp_path: Path) -> None:
    """Discriminates: scanning every point after each flush, and for each step, while requests wait."""
    journal = Journal(tmp_path)
    journal.expect(COLLECTION, b"", dict.fromkeys(range(5_000), 5))
    journal.note_vectors(COLLECTION, dict.fromkeys(range(4_999), 9))
    steps: list[None] = []
    journal._database.set_progress_handler(lambda: steps.append(None), 100)
    assert journal.unread(COLLECTION, 10) == [4_999]
    assert len(steps) < 10
    journal.close()


@pytest.mark.parametrize("other", [{"b": b"1"}, {"a": b"2"}, {}, {"a": wire.SparseValues(b"1", b"2")}])
def test_a_checksum_covers_names_and_numbers(other: wire.Vectors) -> None:
    assert vectors_checksum({"a": b"1"}) != vectors_checksum(other)
