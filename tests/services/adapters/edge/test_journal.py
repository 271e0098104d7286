"""The journal: acknowledged changes that are not in the engine's files yet are restored from it."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest
from qdrant_client import models

from core.errors import StoreReadOnlyError, StoreUnavailableError
from services.adapters.edge.client import EdgeClient, open_edge_client
from services.adapters.edge.journal import FILE, Journal
from services.store.dialect import StoreRequestError
from tests.services.adapters.edge.stores import COLLECTION, make_collection, nth_id, numbers, thing
from tests.support.stores.copies import copied
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
        await make_collection(client)
        await client.upsert(COLLECTION, [thing(n) for n in range(10)])
        await paint(client, "red", 3, 4)


async def change_and_die(folder: Path) -> dict[int, str]:
    """Make every kind of change, including a deletion by filter after which others come to match; then
    SIGKILL."""
    async with open_edge_client(folder) as client:
        await client.delete(COLLECTION, models.FilterSelector(filter=RED))
        await client.upsert(COLLECTION, [thing(10), thing(11)])
        await paint(client, "red", 5, 10)
        await client.delete(COLLECTION, models.PointIdsList(points=[nth_id(0)]))
        await client.delete_payload(COLLECTION, ["colour"], points=[nth_id(10)])
        stored = await read(client)
        os.kill(client.process_id, signal.SIGKILL)
    return stored


async def test_changes_the_engine_had_not_flushed_are_restored(tmp_path: Path) -> None:
    """As after a power cut: the engine's earlier files, and the journal. Discriminates: an acknowledgement
    before the flush; a filter that is replayed."""
    await flushed_store(tmp_path / "store")
    copied(tmp_path / "store", tmp_path / "cut")
    stored = await change_and_die(tmp_path / "store")
    for path in (tmp_path / "store").glob(f"{FILE}*"):
        shutil.copy(path, tmp_path / "cut")
    assert {n for n in stored if n < 10} == {1, 2, 5, 6, 7, 8, 9}
    for folder in ("cut", "store"):  # in the second, all changes are in the engine's own log as well
        async with open_edge_client(tmp_path / folder) as client:
            assert await read(client) == stored


async def test_a_change_is_restored_if_a_flush_ended_before_the_engines_log(tmp_path: Path) -> None:
    """The segments are on disk, and the log that numbers operations is older; changes of a point that was
    deleted later get no new number. Discriminates: a replay that the engine silently skips."""
    await flushed_store(tmp_path / "before")
    for name in ("store", "flushed"):
        copied(tmp_path / "before", tmp_path / name)
        async with open_edge_client(tmp_path / name) as client:
            for _ in range(3):
                await paint(client, "green", 5)
            await client.delete(COLLECTION, models.PointIdsList(points=[nth_id(5)]))
            await paint(client, "red", 7)
            if name == "flushed":
                await until(lambda: _rows(tmp_path / "flushed") == 0)
            else:
                await paint(client, "blue", 7)
            os.kill(client.process_id, signal.SIGKILL)
    for path in (tmp_path / "store").glob(f"{FILE}*"):
        shutil.copy(path, tmp_path / "flushed")
    log = Path(COLLECTION) / "shard" / "wal"
    shutil.rmtree(tmp_path / "flushed" / log)
    copied(tmp_path / "before" / log, tmp_path / "flushed" / log)
    async with open_edge_client(tmp_path / "flushed") as client:
        assert (await read(client))[7] == "blue"


async def test_changes_after_the_engines_log_was_lost_take_effect(tmp_path: Path) -> None:
    """Discriminates: acknowledging changes that the engine skips because its numbers restart below those of
    the points."""
    await flushed_store(tmp_path)
    async with open_edge_client(tmp_path) as client:
        for _ in range(9):
            await paint(client, "red", 7)
        await until(lambda: _rows(tmp_path) == 0)
        os.kill(client.process_id, signal.SIGKILL)
    for path in (tmp_path / COLLECTION / "shard" / "wal").glob("open-*"):
        path.unlink()
    for colour in ("blue", "green"):
        async with open_edge_client(tmp_path) as client:
            await paint(client, colour, 7)
            stored = await read(client)
            assert (sorted(stored), stored[7]) == ([*range(10)], colour)


async def test_a_missing_collection_is_reported_and_nothing_is_written(tmp_path: Path) -> None:
    """Until the loss is accepted. Discriminates: ready with less than was acknowledged."""
    await flushed_store(tmp_path)
    shutil.rmtree(tmp_path / COLLECTION)
    for _ in range(2):  # a start in between changes nothing
        async with open_edge_client(tmp_path) as client:
            condition = await client.condition()
            assert condition.read_only
            (line,) = condition.damage
            assert COLLECTION in line
            assert "10 points" in line
            assert await read(client) == {}
            with pytest.raises(StoreReadOnlyError, match=COLLECTION):
                await client.upsert(COLLECTION, [thing(1)])
    async with open_edge_client(tmp_path) as client:
        assert await client.accept_loss() == [line]
        await client.upsert(COLLECTION, [thing(1)])
    async with open_edge_client(tmp_path) as client:
        assert not (await client.condition()).damage
        assert set(await read(client)) == {1}


async def test_the_journals_changes_of_a_lost_collection_are_restored(tmp_path: Path) -> None:
    await flushed_store(tmp_path)
    async with open_edge_client(tmp_path) as client:
        await client.upsert(COLLECTION, [thing(20)])
        os.kill(client.process_id, signal.SIGKILL)
    shutil.rmtree(tmp_path / COLLECTION)
    async with open_edge_client(tmp_path) as client:
        assert "11 points" in (await client.condition()).damage[0]
        assert set(await read(client)) == {20}


async def test_points_missing_after_a_kill_are_reported(tmp_path: Path) -> None:
    """With the engine's earlier files. Discriminates: a start that takes them for the complete data."""
    await flushed_store(tmp_path / "store")
    copied(tmp_path / "store", tmp_path / "before")
    async with open_edge_client(tmp_path / "store") as client:
        await client.upsert(COLLECTION, [thing(n) for n in range(10, 15)])
        await until(lambda: _rows(tmp_path / "store") == 0)
        os.kill(client.process_id, signal.SIGKILL)
    shutil.rmtree(tmp_path / "store" / COLLECTION)
    copied(tmp_path / "before" / COLLECTION, tmp_path / "store" / COLLECTION)
    (tmp_path / "store" / COLLECTION / "closed.json").unlink()
    async with open_edge_client(tmp_path / "store") as client:
        (line,) = (await client.condition()).damage
        assert "5 of 15 points missing" in line
        assert nth_id(10) in line


async def test_points_missing_from_a_store_that_was_closed_are_counted(tmp_path: Path) -> None:
    """Discriminates: a report that names only the files."""
    await flushed_store(tmp_path)
    async with open_edge_client(tmp_path) as client:
        await paint(client, "brown", 6)
    for segment in (tmp_path / COLLECTION / "shard" / "segments").iterdir():
        shutil.rmtree(segment)
    async with open_edge_client(tmp_path) as client:
        (line,) = (await client.condition()).damage
        assert "not as it was left, or missing; 10 of 10 points missing: " in line
        assert await client.accept_loss() == [line]


async def test_a_payload_that_differs_from_the_written_one_is_not_served(tmp_path: Path) -> None:
    """Discriminates: a read that trusts what it reads."""
    await flushed_store(tmp_path)
    (page,) = (tmp_path / COLLECTION).glob("shard/segments/*/payload_storage/page_0.dat")
    async with open_edge_client(tmp_path) as client:
        await paint(client, "brown", 6)
        await until(lambda: _rows(tmp_path) == 0)
        os.kill(client.process_id, signal.SIGKILL)
    whole = page.read_bytes()
    assert whole.count(b"brown") == 1
    with page.open("r+b") as file:
        file.seek(whole.index(b"brown"))
        file.write(b"crown")
    async with open_edge_client(tmp_path) as client:
        assert set(await read(client)) == set(range(10)) - {6}
        assert await client.retrieve(COLLECTION, [nth_id(6)]) == []
        (line,) = (await client.condition()).damage
        assert nth_id(6) in line
        await paint(client, "white", 5)  # the others can still be changed
        assert await client.accept_loss() == [line]
        assert set(await read(client)) == set(range(10)) - {6}
        assert not (await client.condition(whole=True)).damage


async def test_a_deleted_collection_is_not_reported_missing(tmp_path: Path) -> None:
    """Killed at once. Discriminates: refusing the start because of it; applying its changes to a new
    collection with its name."""
    await flushed_store(tmp_path)
    for made_anew in (False, True):
        async with open_edge_client(tmp_path) as client:
            await client.upsert(COLLECTION, [thing(11)]) if not made_anew else await make_collection(client)
            await client.delete_collection(COLLECTION)
            if made_anew:
                await make_collection(client)
            os.kill(client.process_id, signal.SIGKILL)
    async with open_edge_client(tmp_path) as client:
        assert await read(client) == {}


async def test_a_damaged_journal_is_reported_if_it_was_needed(tmp_path: Path) -> None:
    """It is not needed if everything else is as it was closed. Discriminates: a start that silently continues
    without it."""
    await flushed_store(tmp_path)
    for damage in (_write_nonsense, Path.unlink):
        damage(tmp_path / FILE)
        async with open_edge_client(tmp_path) as client:
            assert not (await client.condition()).damage
            assert len(await read(client)) == 10
            os.kill(client.process_id, signal.SIGKILL)
        damage(tmp_path / FILE)
        async with open_edge_client(tmp_path) as client:
            condition = await client.condition()
            assert condition.read_only
            assert FILE in condition.damage[0]
            assert len(await read(client)) == 10
            await client.accept_loss()
            await client.upsert(COLLECTION, [thing(1)])
        async with open_edge_client(tmp_path) as client:
            assert not (await client.condition()).damage


async def test_a_truncated_journal_is_not_replayed_over_later_changes(tmp_path: Path) -> None:
    """SQLite ignores a damaged end of its log. Discriminates: silently replaying older changes over newer
    ones."""
    await flushed_store(tmp_path)
    stored = await change_and_die(tmp_path)
    log = tmp_path / f"{FILE}-wal"
    whole = bytearray(log.read_bytes())
    whole[len(whole) * 2 // 3] ^= 1
    log.write_bytes(whole)
    async with open_edge_client(tmp_path) as client:
        condition = await client.condition()
        assert condition.read_only
        assert f"{FILE} cannot be read (the changes" in condition.damage[0]
        assert await read(client) == stored


async def test_an_impossible_number_is_reported_and_not_counted_up_to(tmp_path: Path) -> None:
    """Discriminates: a start that assigns numbers for years."""
    await flushed_store(tmp_path)
    stored = await change_and_die(tmp_path)
    numbers_file = next((tmp_path / COLLECTION).glob("shard/segments/*/mutable_id_tracker.versions"))
    whole = bytearray(numbers_file.read_bytes())
    whole[6] ^= 32
    numbers_file.write_bytes(whole)
    async with open_edge_client(tmp_path) as client:
        condition = await client.condition()
        assert condition.read_only
        assert "cannot be" in condition.damage[0]
        differing = {n for n, _ in (await read(client)).items() ^ stored.items()}
        assert len(differing) <= 1  # the engine skips the changes of the point that has the number
        with pytest.raises(StoreRequestError, match="backup"):
            await client.accept_loss()


def test_a_reverted_change_is_not_reported_missing(tmp_path: Path) -> None:
    """Discriminates: expecting the last number of a change that no longer exists."""
    journal = Journal(tmp_path)
    for change in (b"one", b"two"):
        number = journal.note(change)
        journal.commit()
    journal.revoke(number)
    journal.close()
    for _ in range(2):
        journal = Journal(tmp_path)
        journal.check()
        assert journal.changes() == [b"one"]
        journal.close()
    journal = Journal(tmp_path)
    journal.empty({})
    journal.close()
    journal = Journal(tmp_path)
    journal.check()
    assert journal.note(b"three") == 3
    journal.close()


def _write_nonsense(path: Path) -> None:
    path.write_bytes(b"no database" * 1_000)


async def test_without_a_journal_no_old_one_is_trusted(tmp_path: Path) -> None:
    await flushed_store(tmp_path)
    async with open_edge_client(tmp_path, durable=False) as client:
        assert not (tmp_path / FILE).exists()
        await client.upsert(COLLECTION, [thing(n) for n in range(20)])
        os.kill(client.process_id, signal.SIGKILL)
    async with open_edge_client(tmp_path) as client:
        assert len(await read(client)) == 20


async def test_the_journal_is_emptied_when_the_store_is_idle(tmp_path: Path) -> None:
    async with open_edge_client(tmp_path) as client:
        await make_collection(client)
        await client.upsert(COLLECTION, [thing(1)])
        await until(lambda: _rows(tmp_path) == 0)


def _rows(folder: Path) -> int:
    database = sqlite3.connect(folder / FILE)
    try:
        (count,) = database.execute("SELECT count(*) FROM change").fetchone()
    finally:
        database.close()
    return int(count)


def test_a_journal_that_cannot_be_emptied_is_recreated(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.expect(COLLECTION, b"", {1: 2})
    journal.close()
    with pytest.raises(sqlite3.Error):
        journal.empty({})
    journal.renew()
    journal.empty({COLLECTION: {1: 3}})
    assert journal.members() == {}
    assert journal.ids(COLLECTION) == set()
    journal.close()


def test_a_journal_that_could_not_be_recreated_is_created_once_the_disk_is_writable(tmp_path: Path) -> None:
    """Discriminates: a journal without tables, which refuses everything until the next start."""
    journal = Journal(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(sqlite3.Error):
            journal.renew()
        journal.note(b"refused")
        for attempt in (journal.commit, journal.members):
            with pytest.raises(sqlite3.Error):
                attempt()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    for change in (b"a", b"b"):
        journal.note(change)
        journal.commit()
    journal.close()
    again = Journal(tmp_path)
    again.check()
    assert again.changes() == [b"a", b"b"]
    again.close()


async def test_a_store_whose_disk_refuses_writes_is_not_writable_until_the_disk_recovers(
    tmp_path: Path,
) -> None:
    """Discriminates: noticing it only at the next requested write."""
    await flushed_store(tmp_path)
    async with open_edge_client(tmp_path) as client:
        assert (await client.condition()).writable
        limits = resource.prlimit(client.process_id, resource.RLIMIT_FSIZE)
        resource.prlimit(client.process_id, resource.RLIMIT_FSIZE, (0, limits[1]))
        with pytest.raises(StoreUnavailableError):
            await paint(client, "red", 7)
        assert not (await client.condition()).writable
        resource.prlimit(client.process_id, resource.RLIMIT_FSIZE, limits)
        assert (await client.condition()).writable
        await paint(client, "blue", 7)
    async with open_edge_client(tmp_path) as client:
        assert (await read(client))[7] == "blue"
