"""Backup, repair, restore: everything is restored, byte by byte (RELIABILITY P9).

Discriminates: a backup made after the change, or of the conversations only; an absent field restored as null;
a point restored without its vectors.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qdrant_client import models

from core.errors import DiskFullError, UnavailableError, WenmaiError
from core.operations.backfill_turns import BackfillOptions
from services.operations.backup.filling import Target
from services.operations.backup.writer import BackupRunningError
from services.operations.repair.run import Backfill
from services.operations.retention.traces import delete_undo_files
from services.store.dialect import VectorStore
from tests.services.conversation.stores import (
    SESSIONS,
    TURNS,
    open_edge,
    payloads,
    turn_store,
    uid,
    write_point,
)
from tests.services.operations.backup.stores import back_up, settings_of
from tests.services.operations.backup.test_filling import restore

S1, S2 = uid(100), uid(200)
Points = dict[str, tuple[dict[str, Any], Any]]


def backfill(store: VectorStore) -> Backfill:
    return Backfill(turn_store(store), store, TURNS, SESSIONS)


async def everything(store: VectorStore) -> Points:
    """Payload and vectors of every point of both collections."""
    results: Points = {}
    for name in (TURNS, SESSIONS):
        records, _ = await store.scroll(name, limit=10_000, with_vectors=True)
        results |= {f"{name} {record.id}": (record.payload or {}, record.vector) for record in records}
    return results


@dataclass
class Opened:
    runner: asyncio.Runner
    store: VectorStore
    folder: Path

    async def examine(self, points: list[models.PointStruct], drop: bool, done: int) -> None:
        """Back up; repair, interrupted after `done` changes, and to its end; a second run; restore the
        backup."""
        store, job = self.store, backfill(self.store)
        await _clear(store)
        await store.upsert(TURNS, points)
        before = await everything(store)
        archive, _ = await back_up(store, self.folder)
        whole = await job.plan(BackfillOptions(drop_duplicates=drop))
        await job._writer().change(list(whole.changes)[:done], lambda done: None)
        await job.apply(await job.plan(BackfillOptions(drop_duplicates=drop)))
        after = await everything(store)
        assert (await job.apply(await job.plan(BackfillOptions(drop_duplicates=drop)))).nothing_to_do
        assert await everything(store) == after
        kept, were = _vectors_of(after), _vectors_of(before)
        assert kept == {number: were[number] for number in kept}
        await _clear(store)
        await restore(archive, Target(store, settings_of(self.folder)))
        assert await everything(store) == before
        archive.unlink()


def _vectors_of(points: Points) -> dict[int, Any]:
    """Identified by a number of its own: a turn may have been moved."""
    return {payload["token_count"]: vector for payload, vector in points.values() if "token_count" in payload}


async def _clear(store: VectorStore) -> None:
    for name in (TURNS, SESSIONS):
        records, _ = await store.scroll(name, limit=10_000, with_payload=False)
        if records:
            await store.delete(name, models.PointIdsList(points=[record.id for record in records]))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    folder = tmp_path_factory.mktemp("repair")
    with asyncio.Runner() as runner:
        context = open_edge(folder)
        yield Opened(runner, runner.run(context.__aenter__()), folder)
        runner.run(context.__aexit__(None, None, None))


ABSENT = object()
point_ids = st.one_of(st.integers(0, 7).map(uid), st.integers(0, 4))
names = st.sampled_from([ABSENT, None, "", "first", 3, uid(3).upper(), *map(uid, range(8))])
FIELDS = {
    "session_id": st.sampled_from([S1, S1, S2, "an old name", None]),
    "turn_id": names,
    "parent_turn_id": names,
    "timestamp": st.sampled_from(
        [ABSENT, None, "", "once", 17, "2024-05-01T10:00:00Z", "2024-05-01 10:00:00", "2024-05-02"]
    ),
    "created_us": st.sampled_from([ABSENT, None, 0, 10, 1.5, True, 1_714_557_600_000_000]),
    "seq": st.sampled_from([ABSENT, None, 0, 3, "2"]),
    "owner": st.sampled_from([ABSENT, None, "", "local", "eve"]),
    "status": st.sampled_from([ABSENT, None, "completed", "done", "running"]),
    "schema": st.sampled_from([ABSENT, None, 0, 1, 2]),
    "assistant_response": st.sampled_from(["yes", "yes", "no"]),
    "context_docs": st.sampled_from([["a"], [{"text": "b", "score": 0.1}], "c", None]),
}
NORMAL = [[1.0, 0.0, 0.0, 0.0], [0.6, 0.8, 0.0, 0.0], [0.1, 0.7, 0.3, 0.2]]
vectors = st.fixed_dictionaries(
    {},
    optional={
        "turn": st.sampled_from(NORMAL),
        "question": st.sampled_from(NORMAL),
        "sparse": st.just(models.SparseVector(indices=[7, 4_000_000_000], values=[0.3, 1.7])),
    },
)


@st.composite
def points(draw: st.DrawFn) -> list[models.PointStruct]:
    ids = draw(st.lists(point_ids, min_size=1, max_size=7, unique_by=str))
    results = []
    for number, point_id in enumerate(ids):
        values = {name: draw(strategy) for name, strategy in FIELDS.items()}
        payload = {name: value for name, value in values.items() if value is not ABSENT}
        payload["token_count"] = number
        payload["user_query"] = draw(st.sampled_from([f"question {point_id}", "the same"]))
        results.append(models.PointStruct(id=point_id, vector=draw(vectors), payload=payload))
    return results


@pytest.mark.full("writes a whole store anew")
@settings(max_examples=40, deadline=None)
@given(points(), st.booleans(), st.integers(0, 7))
def test_a_restore_returns_payloads_ids_and_vectors_exactly(
    opened: Opened, stored: list[models.PointStruct], drop: bool, done: int
) -> None:
    opened.runner.run(opened.examine(stored, drop, done))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[VectorStore]:
    async with open_edge(tmp_path) as store:
        yield store


async def old_turns(store: VectorStore, *numbers: int) -> None:
    for number in numbers:
        await write_point(store, uid(number), session_id=S1, timestamp=f"2024-05-01T10:0{number}:00Z")


@dataclass
class Archives:
    """Backups as requested by a repair: the turns that were stored when each was made, by its name."""

    store: VectorStore
    error: WenmaiError | None = None
    made: dict[str, Any] = field(default_factory=dict)

    async def back_up(self, reason: str) -> str:
        if self.error is not None:
            raise self.error
        name = f"{reason} {len(self.made) + 1}"
        self.made[name] = await payloads(self.store)
        return name


def backing_up(archives: Archives) -> Backfill:
    return Backfill(turn_store(archives.store), archives.store, TURNS, SESSIONS, back_up=archives.back_up)


async def test_a_backup_is_made_before_the_first_change_and_only_if_something_changes(
    store: VectorStore,
) -> None:
    archives = Archives(store)
    job = backing_up(archives)
    assert (await job.apply(await job.plan())).backup == ""
    await old_turns(store, 1)
    before = await payloads(store)
    assert (await job.apply(await job.plan(), reason="request")).backup == "request 1"
    assert (await job.apply(await job.plan())).backup == ""
    assert archives.made == {"request 1": before} != {"request 1": await payloads(store)}


async def test_no_backup_is_made_if_none_is_requested(store: VectorStore) -> None:
    archives = Archives(store)
    await old_turns(store, 1)
    job = backing_up(archives)
    report = await job.apply(await job.plan(), backup=False)
    assert (report.changed, report.backup, archives.made) == (1, "", {})


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UnavailableError("BACKUP_DIR cannot be used: Permission denied"), UnavailableError),
        (DiskFullError("the disk is full"), DiskFullError),
        (BackupRunningError("A backup is already being made"), BackupRunningError),
    ],
)
async def test_nothing_is_changed_if_no_backup_can_be_made(
    store: VectorStore, error: WenmaiError, kind: type[WenmaiError]
) -> None:
    await old_turns(store, 1, 2)
    before, job = await payloads(store), backing_up(Archives(store, error))
    with pytest.raises(kind, match=str(error)) as refused:
        await job.apply(await job.plan())
    assert type(refused.value) is kind
    assert await payloads(store) == before


def test_the_first_erasure_deletes_the_undo_files_of_earlier_versions(tmp_path: Path) -> None:
    (tmp_path / "backfill-undo-20240501T100000-000001Z.jsonl").write_text("{}")
    (tmp_path / ".backfill-undo-rewriting").write_text("{}")
    (tmp_path / "mine.jsonl").write_text("{}")
    for _ in range(2):
        asyncio.run(delete_undo_files(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.jsonl"]
