"""The journal: what was acknowledged and is not in the engine's files yet comes back from it."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest
from qdrant_client import models

from core.errors import StartRefusedError
from services.adapters.edge.client import EdgeClient, open_edge_client
from services.adapters.edge.journal import FILE, Journal, remove
from tests.services.adapters.edge.stores import COLLECTION, make_things, nth_id, numbers, thing
from tests.support.waiting import until

RED = models.Filter(must=[models.FieldCondition(key="colour", match=models.MatchValue(value="red"))])


async def read(client: EdgeClient) -> dict[int, str]:
    """The colours by number."""
    records = (await client.scroll(COLLECTION, limit=1_000))[0]
    colours = [str((record.payload or {}).get("colour")) for record in records]
    return dict(zip(numbers(records), colours, strict=True))


async def paint(client: EdgeClient, colour: str, *some: int) -> None:
    await client.set_payload(COLLECTION, {"colour": colour}, points=[nth_id(n) for n in some])


async def flushed_store(folder: Path) -> None:
    """Ten things, of which 3 and 4 are red; closed."""
    async with open_edge_client(folder) as client:
        await make_things(client)
        await client.upsert(COLLECTION, [thing(n) for n in range(10)])
        await paint(client, "red", 3, 4)


async def change_and_die(folder: Path) -> dict[int, str]:
    """Every kind of change, and a deletion by filter after which others come to match; then SIGKILL."""
    async with open_edge_client(folder) as client:
        await client.delete(COLLECTION, models.FilterSelector(filter=RED))
        await client.upsert(COLLECTION, [thing(10), thing(11)])
        await paint(client, "red", 5, 10)
        await client.delete(COLLECTION, models.PointIdsList(points=[nth_id(0)]))
        await client.delete_payload(COLLECTION, ["colour"], points=[nth_id(10)])
        stored = await read(client)
        os.kill(client.process_id, signal.SIGKILL)
    return stored


async def test_what_the_engine_had_not_flushed_comes_back(tmp_path: Path) -> None:
    """As after a cut of power: the engine's files of before, and the journal. Discriminates: an
    acknowledgement before the flush; a filter that is replayed."""
    await flushed_store(tmp_path / "store")
    shutil.copytree(tmp_path / "store", tmp_path / "cut")
    stored = await change_and_die(tmp_path / "store")
    for path in (tmp_path / "store").glob(f"{FILE}*"):
        shutil.copy(path, tmp_path / "cut")
    assert {n for n in stored if n < 10} == {1, 2, 5, 6, 7, 8, 9}
    for folder in ("cut", "store"):  # in the second all changes are in the engine's own log, too
        async with open_edge_client(tmp_path / folder) as client:
            assert await read(client) == stored


async def test_a_collection_that_is_missing_is_refused_by_name(tmp_path: Path) -> None:
    """Discriminates: ready with less than was acknowledged."""
    await flushed_store(tmp_path)
    shutil.rmtree(tmp_path / COLLECTION)
    with pytest.raises(StartRefusedError, match=f"{COLLECTION} is missing"):
        async with open_edge_client(tmp_path):
            pass


async def test_more_than_was_acknowledged_is_no_damage(tmp_path: Path) -> None:
    """As after a kill between the engine's log and the journal. Discriminates: a start that is refused for
    changes that nobody was told of."""
    await flushed_store(tmp_path)
    before = (tmp_path / FILE).read_bytes()
    async with open_edge_client(tmp_path) as client:
        await client.upsert(COLLECTION, [thing(n) for n in range(10, 20)])
        await client.delete(COLLECTION, models.PointIdsList(points=[nth_id(n) for n in range(5)]))
        os.kill(client.process_id, signal.SIGKILL)
    remove(tmp_path)
    (tmp_path / FILE).write_bytes(before)
    async with open_edge_client(tmp_path) as client:
        assert set(await read(client)) == set(range(5, 20))


async def test_a_collection_that_was_deleted_is_not_missed(tmp_path: Path) -> None:
    """Killed at once. Discriminates: a start that is refused for it; its changes in another of its name."""
    await flushed_store(tmp_path)
    for made_anew in (False, True):
        async with open_edge_client(tmp_path) as client:
            await client.upsert(COLLECTION, [thing(11)]) if not made_anew else await make_things(client)
            await client.delete_collection(COLLECTION)
            if made_anew:
                await make_things(client)
            os.kill(client.process_id, signal.SIGKILL)
    async with open_edge_client(tmp_path) as client:
        assert await read(client) == {}


async def test_a_damaged_journal_is_refused_by_name(tmp_path: Path) -> None:
    await flushed_store(tmp_path)
    (tmp_path / FILE).write_bytes(b"no database" * 1_000)
    with pytest.raises(StartRefusedError, match=FILE):
        async with open_edge_client(tmp_path):
            pass


async def test_without_it_no_old_one_is_believed(tmp_path: Path) -> None:
    await flushed_store(tmp_path)
    async with open_edge_client(tmp_path, durable=False) as client:
        assert not (tmp_path / FILE).exists()
        await client.upsert(COLLECTION, [thing(n) for n in range(20)])
        os.kill(client.process_id, signal.SIGKILL)
    async with open_edge_client(tmp_path) as client:
        assert len(await read(client)) == 20


async def test_it_is_emptied_when_the_store_is_idle(tmp_path: Path) -> None:
    async with open_edge_client(tmp_path) as client:
        await make_things(client)
        await client.upsert(COLLECTION, [thing(1)])
        await until(lambda: _rows(tmp_path) == 0)


def _rows(folder: Path) -> int:
    database = sqlite3.connect(folder / FILE)
    try:
        (count,) = database.execute("SELECT count(*) FROM change").fetchone()
    finally:
        database.close()
    return int(count)


def test_a_journal_that_cannot_be_emptied_is_made_anew(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.close()
    with pytest.raises(sqlite3.Error):
        journal.empty([])
    journal.renew()
    journal.empty([COLLECTION])
    assert journal.expected() == {COLLECTION}
    journal.close()
