"""Repair and undo: whatever was stored is stored again, to the byte (RELIABILITY P9).

Discriminates: a field that was absent put back as null; null put back by setting the payload; a move undone
without its vectors; a line that is written after the change; a changed turn that is put back all the same.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qdrant_client import models

from core.errors import BadRequestError, StoreUnavailableError
from services.operations.repair.run import Backfill
from services.operations.repair.undo_file import UNDO_NAME, UndoFile, new_undo_file, read_undo_file
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

S1, S2 = uid(100), uid(200)
Points = dict[str, tuple[dict[str, Any], Any]]


def backfill(store: VectorStore) -> Backfill:
    return Backfill(turn_store(store), store, TURNS, SESSIONS)


async def everything(store: VectorStore) -> Points:
    """Payload and vectors of every point of both collections."""
    found: Points = {}
    for name in (TURNS, SESSIONS):
        records, _ = await store.scroll(name, limit=10_000, with_vectors=True)
        found |= {f"{name} {record.id}": (record.payload or {}, record.vector) for record in records}
    return found


@dataclass
class Opened:
    runner: asyncio.Runner
    store: VectorStore
    folder: Path
    files: int = 0

    async def examine(self, points: list[models.PointStruct], drop: bool, done: int) -> None:
        """Repair, cut after `done` changes, and to its end; a second run; undo both files; undo again."""
        store, job = self.store, backfill(self.store)
        await _clear(store)
        await store.upsert(TURNS, points)
        before = await everything(store)
        first, second = self._undo_file(), self._undo_file()
        whole = await job.plan(drop_duplicates=drop)
        changes = list(whole.changes)[:done]
        await job._writer(first).change(changes, lambda done: None)
        await job.apply(await job.plan(drop_duplicates=drop), undo=second)
        after = await everything(store)
        assert (await job.apply(await job.plan(drop_duplicates=drop))).nothing_to_do
        assert await everything(store) == after
        kept, were = _vectors_of(after), _vectors_of(before)
        assert kept == {number: were[number] for number in kept}
        for file in (second, first):
            if file.name:
                assert (await job.undo(file.path, dry_run=False)).refused == ()
        assert await everything(store) == before
        for file in (second, first):
            if file.name:
                assert (await job.undo(file.path, dry_run=False)).restored == 0
        assert await everything(store) == before

    def _undo_file(self) -> UndoFile:
        self.files += 1
        return UndoFile(self.folder / f"undo{self.files}.jsonl", TURNS)


def _vectors_of(points: Points) -> dict[int, Any]:
    """By a number of its own: a turn may have moved."""
    return {payload["token_count"]: vector for payload, vector in points.values() if "token_count" in payload}


async def _clear(store: VectorStore) -> None:
    for name in (TURNS, SESSIONS):
        records, _ = await store.scroll(name, limit=10_000, with_payload=False)
        if records:
            await store.delete(name, models.PointIdsList(points=[record.id for record in records]))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    folder = tmp_path_factory.mktemp("undo")
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
    found = []
    for number, point_id in enumerate(ids):
        values = {name: draw(strategy) for name, strategy in FIELDS.items()}
        payload = {name: value for name, value in values.items() if value is not ABSENT}
        payload["token_count"] = number
        payload["user_query"] = draw(st.sampled_from([f"question {point_id}", "the same"]))
        found.append(models.PointStruct(id=point_id, vector=draw(vectors), payload=payload))
    return found


@settings(max_examples=40, deadline=None)
@given(points(), st.booleans(), st.integers(0, 7))
def test_undo_gives_back_payloads_ids_and_vectors_exactly(
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


async def repaired(store: VectorStore, folder: Path) -> Path:
    job = backfill(store)
    undo = new_undo_file(folder, TURNS, 1_714_557_600_000_001)
    assert (await job.apply(await job.plan(), undo=undo)).undo_file == undo.path.name
    return undo.path


async def test_the_file_is_private_named_by_its_time_and_only_made_when_something_changes(
    store: VectorStore, tmp_path: Path
) -> None:
    path = new_undo_file(tmp_path, TURNS, 1_714_557_600_000_001).path
    job = backfill(store)
    assert (await job.apply(await job.plan(), undo=UndoFile(path, TURNS))).undo_file == ""
    assert not path.exists()
    await old_turns(store, 1)
    assert await repaired(store, tmp_path) == path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.name == "backfill-undo-20240501T100000-000001Z.jsonl"
    assert UNDO_NAME.fullmatch(path.name)


async def test_nothing_is_changed_when_the_file_cannot_be_written(store: VectorStore, tmp_path: Path) -> None:
    await old_turns(store, 1, 2)
    before, job = await payloads(store), backfill(store)
    with pytest.raises(StoreUnavailableError, match="undo"):
        await job.apply(await job.plan(), undo=UndoFile(tmp_path / "nowhere" / "undo.jsonl", TURNS))
    assert await payloads(store) == before


async def test_turns_that_changed_since_are_refused_and_the_others_put_back(
    store: VectorStore, tmp_path: Path
) -> None:
    await old_turns(store, 1, 2, 3)
    before = await payloads(store)
    path = await repaired(store, tmp_path)
    await store.set_payload(TURNS, {"parent_turn_id": None, "seq": 9}, points=[uid(2)])
    await store.set_payload(TURNS, {"feedback": "up"}, points=[uid(3)])
    await store.set_payload(SESSIONS, {"title": "mine"}, points=[S1])
    await turn_store(store).delete([uid(1)])
    dry = await backfill(store).undo(path)
    report = await backfill(store).undo(path, dry_run=False)
    assert (dry.dry_run, dry.restored, set(dry.refused)) == (True, 1, {uid(2), S1})
    assert (report.restored, report.gone, set(report.refused)) == (1, 1, {uid(2), S1})
    found = await payloads(store)
    assert found[uid(3)] == before[uid(3)] | {"feedback": "up"}
    assert found[uid(2)]["seq"] == 9
    assert S1 in await payloads(store, SESSIONS)


async def test_a_file_goes_on_after_a_cut_and_a_line_that_was_cut_is_not_read(
    store: VectorStore, tmp_path: Path
) -> None:
    await old_turns(store, 1, 2)
    before, path, job = await everything(store), tmp_path / "undo.jsonl", backfill(store)
    await job._writer(UndoFile(path, TURNS)).change(list((await job.plan()).changes)[:1], lambda done: None)
    with path.open("ab") as file:
        file.write(b'{"type":"rewritten","point":"')
    assert len(read_undo_file(path).lines) == 1
    await job.apply(await job.plan(), undo=UndoFile(path, TURNS))
    assert len(read_undo_file(path).lines) == 3
    assert (await job.undo(path, dry_run=False)).restored == 3
    assert await everything(store) == before


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "not an undo file"),
        ("{}\n", "not an undo file"),
        ('{"type":"backfill-undo","version":2,"collection":"conversations"}\n', "another version"),
        ('{"type":"backfill-undo","version":1,"collection":"others"}\n', "'others'"),
        ('{"type":"backfill-undo","version":1,"collection":"conversations"}\n{"type":"x"}\n', "line 2"),
        ('{"type":"backfill-undo","version":1,"collection":"conversations"}\n\xff\n', "line 2"),
        (None, "cannot be read"),
    ],
)
async def test_what_is_no_undo_file_is_refused(
    store: VectorStore, tmp_path: Path, content: str | None, told: str
) -> None:
    path = tmp_path / "undo.jsonl"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    with pytest.raises(BadRequestError, match=told):
        await backfill(store).undo(path, dry_run=False)
