"""The archive is the store at one moment, complete or absent (RELIABILITY F36, B112)."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from qdrant_client import models

from core.errors import DiskFullError
from core.operations.archive import Role
from core.operations.reports import ReceiptKind
from services.operations.backup.making import Backups
from services.operations.backup.reader import open_archive
from services.operations.backup.writer import BackupRunningError, archives_in, list_archives, only_one
from services.store.dialect import VectorStore
from services.store.receipts import ReceiptStore
from tests.services.operations.backup.stores import (
    a_point,
    back_up,
    fill,
    interrupted,
    nth,
    open_embedded,
    settings_of,
    write_turns,
)
from tests.support.environment import ROOT

COLLECTIONS = [role for role in Role if role is not Role.IMAGES]  # no question here has one

SECRET = "the-erased-sentence"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[VectorStore]:
    async with open_embedded(tmp_path) as opened:
        yield opened


def texts_of(archive: Path, role: Role = Role.CONVERSATIONS) -> dict[str, str]:
    with open_archive(archive) as opened:
        opened.verify()
        (member,) = (each for each in opened.manifest.members if each.role == role)
        records = list(opened.records(member))
    assert len({record.id for record in records}) == len(records) == member.points
    return {str(record.id): record.payload["text"] for record in records}


def expanded(archive: Path) -> bytes:
    with zipfile.ZipFile(archive) as opened:
        return b"".join(opened.read(name) for name in opened.namelist())


async def test_an_archive_has_every_collection_and_a_receipt_says_so(
    store: VectorStore, tmp_path: Path
) -> None:
    await fill(store, settings_of(tmp_path))
    archive, report = await back_up(store, tmp_path)
    assert report.points == {role.value: 6 if role is Role.SESSIONS else 5 for role in COLLECTIONS}
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    receipts = ReceiptStore(store, "operations")
    (receipt,) = await receipts.newest(kind=ReceiptKind.BACKUP)
    assert receipt.counts == report.points
    assert receipt.bytes_after == archive.stat().st_size == report.size_bytes
    assert receipt.details["sha256"] == report.sha256


async def test_a_turn_erased_during_the_backup_leaves_nothing_in_the_archive(
    store: VectorStore, tmp_path: Path
) -> None:
    """Discriminates: no second pass over the copied points."""
    await write_turns(store, range(300))
    await write_turns(store, range(5, 6), secret=SECRET)

    async def erase() -> None:
        await store.delete("conversations", models.PointIdsList(points=[nth(5)]))

    archive, report = await back_up(interrupted(store, erase), tmp_path)
    assert report.points["conversations"] == 299
    results = expanded(archive)
    assert SECRET.encode() not in results
    assert nth(5).encode() not in results
    assert nth(6).encode() in results


async def test_changes_during_the_backup_are_in_the_archive_in_their_last_state(
    store: VectorStore, tmp_path: Path
) -> None:
    """Discriminates: also writing the earlier state of a point; following only the first round of changes."""
    await write_turns(store, range(300))

    async def change() -> None:
        await store.set_payload("conversations", {"text": "changed"}, [nth(2)])
        await write_turns(store, range(1_000, 1_100))
        await store.delete("conversations", models.PointIdsList(points=[nth(1_000)]))

    archive, _ = await back_up(interrupted(store, change), tmp_path)
    texts = texts_of(archive)
    assert texts[nth(2)] == "changed"
    assert set(texts) == {nth(n) for n in [*range(300), *range(1_001, 1_100)]}


async def test_all_collections_are_of_one_moment(store: VectorStore, tmp_path: Path) -> None:
    """A memory is written after its turn and never exists without it. Discriminates: no last round for all
    collections together."""
    await write_turns(store, range(10_000, 10_200))
    written = 0
    stop = asyncio.Event()

    async def write() -> None:
        nonlocal written
        while not stop.is_set():
            await store.upsert("conversations", [a_point(written, ("turn", "question"))])
            await store.upsert("memories", [a_point(written, ("dense",))])
            written += 1

    writer = asyncio.create_task(write())
    for _ in range(3):
        before = written
        archive, _ = await back_up(store, tmp_path)
        turns = {each for each in texts_of(archive) if each < nth(10_000)}
        memories = set(texts_of(archive, Role.MEMORIES))
        assert turns >= memories >= {nth(n) for n in range(before)}
        assert turns == {nth(n) for n in range(len(turns))}
        assert len(turns) - len(memories) <= 1
    stop.set()
    await writer
    assert written > 30


async def test_without_room_a_backup_is_refused_before_anything_is_written(
    store: VectorStore, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path).model_copy(update={"low_disk_mb": 1_000_000_000})
    with pytest.raises(DiskFullError, match="not enough space"):
        await Backups(store, settings).create(tmp_path / "backups", "command")
    assert os.listdir(tmp_path / "backups") == []


def test_a_disk_that_becomes_full_leaves_no_partial_archive(tmp_path: Path) -> None:
    """Discriminates: no `finally` around the partial file."""
    script = f"""
import os, resource, pathlib
from core.operations.archive import Role, Shape
from core.errors import DiskFullError
from services.operations.backup.writer import writing
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
folder = pathlib.Path({str(tmp_path)!r})
try:
    with writing(folder / "wenmai.wenmai.zip") as archive:
        frames = (os.urandom(1 << 18) for _ in range(9))
        archive.add_points(Role.SESSIONS, "sessions", Shape({{}}, {{}}, {{}}), frames)
except DiskFullError as error:
    print(error.code, os.listdir(folder))
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout == "disk_full []\n", ended.stderr


async def test_one_backup_runs_at_a_time_and_leftovers_of_a_killed_one_are_removed(
    store: VectorStore, tmp_path: Path
) -> None:
    folder = tmp_path / "backups"
    with only_one(folder), pytest.raises(BackupRunningError):
        await back_up(store, tmp_path)
    left = folder / "wenmai-20260101T000000.000Z.wenmai.zip.partial"
    left.write_bytes(b"half")
    archive, _ = await back_up(store, tmp_path)
    assert os.listdir(folder) == [archive.name]


async def test_only_our_own_older_archives_are_removed(store: VectorStore, tmp_path: Path) -> None:
    """Discriminates: silently removing an archive of the right store in favour of one of a wrong, emptier
    store."""
    folder = tmp_path / "backups"
    await write_turns(store, range(9))
    full, _ = await back_up(store, tmp_path)
    await store.delete("conversations", models.FilterSelector(filter=models.Filter()))
    for _ in range(2):
        await back_up(store, tmp_path)
    other = folder / "wenmai-mine.wenmai.zip"
    other.write_bytes(b"")
    newest, report = await back_up(store, tmp_path, keep=2)
    assert (len(report.removed), report.fuller) == (2, [full.name])
    assert archives_in(folder)[0] == newest
    assert archives_in(folder)[2:] == [other]


async def test_an_archive_of_a_clock_that_was_ahead_does_not_displace_new_ones(
    store: VectorStore, tmp_path: Path
) -> None:
    """Discriminates: `--keep 1` deleting the archive it has just made, every night of a year."""
    folder = tmp_path / "backups"
    (first, _), ahead = await back_up(store, tmp_path), folder / "wenmai-29991231T000000.000Z.wenmai.zip"
    ahead.write_bytes(first.read_bytes())
    second, _ = await back_up(store, tmp_path, keep=2)
    assert sorted(folder.iterdir()) == [first, second]
    ahead.write_bytes(first.read_bytes())
    third, _ = await back_up(store, tmp_path, keep=1)
    assert [*folder.iterdir()] == [third]


async def test_the_list_shows_the_archives_contents_and_which_are_damaged(
    store: VectorStore, tmp_path: Path
) -> None:
    await write_turns(store, range(3))
    sound, report = await back_up(store, tmp_path)
    damaged, _ = await back_up(store, tmp_path)
    damaged.write_bytes(damaged.read_bytes()[:-30])
    second, first = list_archives(tmp_path / "backups")
    assert (first.file, first.created, first.problem) == (sound.name, report.created, "")
    assert first.points["conversations"] == 3
    assert second.file == damaged.name
    assert "damaged" in second.problem


@pytest.mark.full("works through many cases, for seconds")
async def test_the_manifest_describes_the_collections(store: VectorStore, tmp_path: Path) -> None:
    archive, _ = await back_up(store, tmp_path)
    with zipfile.ZipFile(archive) as opened:
        assert opened.namelist() == [*(f"{role.value}.points" for role in COLLECTIONS), "manifest.json"]
        manifest = json.loads(opened.read("manifest.json"))
    turns = manifest["members"][0]
    assert turns["shape"]["metadata"] == {"embedding": "small", "dimension": 4, "schema_version": 1}
    assert turns["shape"]["dense"]["question"] == {"size": 4, "distance": "Cosine"}
    assert turns["shape"]["sparse"] == {"sparse": True}
    assert "created_us" in turns["shape"]["indexes"]
