"""Repair of stored conversations (RELIABILITY B104–B109, F3)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest

from core.conversation.sessions import walk_branch
from core.conversation.turns import Turn
from core.errors import BadRequestError
from core.operations.backfill_turns import BackfillOptions, BackfillPlan, BackfillReport
from services.conversation.sessions import SessionStore
from services.operations.repair.run import Backfill
from services.operations.repair.stored import BackfillWriter
from services.store.dialect import VectorStore
from tests.services.conversation.stores import (
    SESSIONS,
    TURNS,
    open_edge,
    payloads,
    turn_store,
    uid,
    write_point,
    write_session,
    write_turn,
)
from tests.services.operations.retention.parts import expire_turns

S1, S2 = uid(100), uid(200)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[VectorStore]:
    async with open_edge(tmp_path) as opened:
        yield opened


def backfill(store: VectorStore) -> Backfill:
    return Backfill(turn_store(store), store, TURNS, SESSIONS)


async def repair(store: VectorStore, zone: str = "UTC", **options: Any) -> BackfillReport:
    job = backfill(store)
    return await job.apply(await job.plan(BackfillOptions(zone, **options)))


async def vectors(store: VectorStore) -> dict[str, Any]:
    records, _ = await store.scroll(TURNS, limit=10_000, with_vectors=True, with_payload=False)
    return {str(record.id): record.vector for record in records}


async def chain(store: VectorStore, session_id: str) -> list[Turn]:
    """The branch of the newest turn, root first."""
    nodes = (await turn_store(store).tree(session_id, "local")).nodes
    leaf = max(nodes.values(), key=lambda node: node.order).turn_id
    return await turn_store(store).get_many([node.turn_id for node in walk_branch(nodes, leaf)])


async def old_conversation(store: VectorStore) -> None:
    """Eight fields, random point ids, times of three kinds, written out of order."""
    times = {3: "2024-05-01T10:02:00", 1: "2024-05-01T10:00:00Z", 2: "2024-05-01T18:01:00+08:00"}
    for number, timestamp in times.items():
        vector = {"turn": [0.1 * number, 0.7, 0.3, 0.2], "question": [0.3, 0.2, 0.1 * number, 0.9]}
        await write_point(
            store, uid(number), vector, session_id=S1, timestamp=timestamp, turn_id=uid(10 + number),
            parent_turn_id=None,
        )  # fmt: skip


async def test_an_old_conversation_is_linked_moved_and_listed(store: VectorStore) -> None:
    await old_conversation(store)
    report = await repair(store)
    turns = await chain(store, S1)
    assert [turn.turn_id for turn in turns] == [uid(11), uid(12), uid(13)]
    assert [turn.question for turn in turns] == [f"question {uid(number)}" for number in (1, 2, 3)]
    assert {turn.owner for turn in turns} == {"local"}
    assert [turn.seq for turn in turns] == [0, 1, 2]
    session = await SessionStore(store, SESSIONS).get(S1, "local")
    assert session.title == f"question {uid(1)}"
    assert (session.created_us, session.updated_us) == (turns[0].created_us, turns[-1].created_us)
    assert (report.rehomed, report.changed, report.sessions_created, report.dry_run) == (3, 3, 1, False)


async def test_vectors_and_texts_are_bitwise_equal_after_a_move(store: VectorStore) -> None:
    """Red when the copy is made without vectors, as by an older version of this job."""
    await old_conversation(store)
    before, texts = await vectors(store), await payloads(store)
    await repair(store)
    after = await payloads(store)
    assert await vectors(store) == {uid(10 + number): before[uid(number)] for number in (1, 2, 3)}
    for number in (1, 2, 3):
        for name in ("user_query", "assistant_response", "timestamp", "context_docs", "token_count"):
            assert after[uid(10 + number)][name] == texts[uid(number)][name]


async def test_a_second_run_changes_nothing(store: VectorStore) -> None:
    await old_conversation(store)
    await write_point(store, 7, session_id="an old name", timestamp="once")
    await repair(store)
    before = await payloads(store), await payloads(store, SESSIONS), await vectors(store)
    report = await repair(store)
    assert report.nothing_to_do
    assert report.repairs == {}
    assert (await payloads(store), await payloads(store, SESSIONS), await vectors(store)) == before


async def test_a_plan_writes_nothing(store: VectorStore) -> None:
    await old_conversation(store)
    before = await payloads(store)
    report = (await backfill(store).plan()).report()
    assert report.dry_run
    assert (report.turns, report.changed, report.sessions_created) == (3, 3, 1)
    assert report.repairs["parent_turn_id"] == 2
    assert report.repairs["created_us"] == 3
    assert (await payloads(store), await payloads(store, SESSIONS)) == (before, {})
    json.dumps(asdict(report))


async def test_turns_of_this_version_are_left_alone(store: VectorStore) -> None:
    await write_turn(store, 1, 10, session=100)
    await write_turn(store, 2, 20, session=100, parent_turn_id=uid(1), seq=1)
    await write_turn(store, 3, 30, session=100, parent_turn_id=uid(1), seq=2)
    await write_turn(store, 4, 40, "running", session=100, seq=3)
    await write_session(store, 100, 40)
    assert (await repair(store)).nothing_to_do


async def test_an_interrupted_run_is_finished_by_the_next(store: VectorStore) -> None:
    """Whatever is written first: a turn, or a copy whose original still exists."""
    await old_conversation(store)
    whole = await backfill(store).plan()
    first, copied, _ = whole.sessions[0].changes
    records = await store.retrieve(TURNS, [copied.point_id], with_vectors=True)
    await BackfillWriter(store, TURNS, SESSIONS).change([first, copied], lambda done: None)
    await write_point(store, copied.point_id, records[0].vector, **(records[0].payload or {}))  # type: ignore[arg-type]
    report = await repair(store)
    assert (report.leftovers, report.changed) == (1, 1)
    assert [turn.turn_id for turn in await chain(store, S1)] == [uid(11), uid(12), uid(13)]
    assert await turn_store(store).count() == 3


async def test_a_turn_deleted_between_plan_and_run_is_only_counted(store: VectorStore) -> None:
    await old_conversation(store)
    await write_point(store, uid(5), session_id=S2, timestamp="2024-05-01")
    plan = await backfill(store).plan()
    await turn_store(store).delete([uid(1), uid(5)])
    assert (await backfill(store).apply(plan)).deleted == 2
    assert await turn_store(store).count() == 2


async def test_an_id_of_another_session_is_not_overwritten(store: VectorStore) -> None:
    await write_point(store, uid(1), session_id=S1, turn_id=uid(2), timestamp="2024-05-01")
    await write_point(store, uid(2), session_id=S2, turn_id=uid(2), timestamp="2024-05-01")
    await write_point(store, uid(3), session_id=S1, turn_id=uid(9), timestamp="2024-05-02")
    await write_point(store, uid(4), session_id=S2, turn_id=uid(9), timestamp="2024-05-02")
    report = await repair(store)
    assert report.duplicates == 2
    stored = await payloads(store)
    assert {name: stored[name]["user_query"] for name in stored} == {
        uid(1): f"question {uid(1)}",
        uid(2): f"question {uid(2)}",
        uid(9): f"question {uid(3)}",
        uid(4): f"question {uid(4)}",
    }
    assert stored[uid(1)]["legacy_turn_id"] == uid(2)


async def test_a_parent_of_another_session_or_owner_is_replaced(store: VectorStore) -> None:
    common: dict[str, Any] = {"session_id": S1, "schema": 1, "status": "completed"}
    await write_point(store, uid(1), session_id=S2, turn_id=uid(1), timestamp="2024-05-01")
    await write_point(store, uid(2), turn_id=uid(2), owner="eve", created_us=5, seq=0, **common)
    await write_point(store, uid(3), turn_id=uid(3), parent_turn_id=uid(1), created_us=6, **common)
    await write_point(store, uid(4), turn_id=uid(4), parent_turn_id=uid(2), created_us=7, **common)
    await repair(store)
    stored = await payloads(store)
    assert (stored[uid(3)].get("parent_turn_id"), stored[uid(4)]["parent_turn_id"]) == (None, uid(3))
    assert stored[uid(2)]["owner"] == "eve"


async def test_every_kind_of_fault_is_counted_and_reported_with_its_values(store: VectorStore) -> None:
    """Only visible in the whole store: parents elsewhere, turns stored twice, records, sessions."""
    at: dict[str, Any] = {"session_id": S1, "schema": 1, "status": "completed", "owner": "local"}
    at["timestamp"] = "2024-05-01T10:00:00Z"
    await write_point(store, uid(1), session_id=S2, turn_id="old-1", timestamp="2024-05-01T10:00:00Z")
    await write_point(store, uid(2), turn_id=uid(2), created_us=5, seq=0, **at)
    await write_point(store, uid(3), turn_id=uid(3), parent_turn_id="old-1", created_us=6, seq=1, **at)
    await write_point(store, uid(4), turn_id=uid(4), parent_turn_id=uid(1), created_us=7, seq=2, **at)
    at["user_query"] = f"question {uid(4)}"
    await write_point(store, uid(5), turn_id=uid(5), parent_turn_id=uid(99), created_us=7, seq=3, **at)
    await write_point(store, uid(6))
    lost: dict[str, Any] = {"session_id": S2, "turn_id": uid(7), "parent_turn_id": uid(99)}
    await write_point(store, uid(7), timestamp="2024-05-01T11:00:00Z", **lost)
    plan = await backfill(store).plan()
    results = {(f.trouble.value, f.point_id, f.before, f.after) for f in plan.findings}
    assert {each for each in results if each[0] != "missing_fields"} == {
        ("other_turn_id", uid(1), "old-1", uid(1)),
        ("parent_of_other_session", uid(3), "old-1", uid(2)),
        ("parent_of_other_session", uid(4), uid(1), uid(3)),
        # not uid(5), written by this version: its parent has expired, and it is a root
        ("dangling_parent", uid(7), uid(99), uid(1)),
        ("duplicate_turn", uid(5), None, uid(4)),
    }
    assert plan.report().troubles == {
        "other_turn_id": 1, "duplicate_turn": 1, "dangling_parent": 1, "parent_of_other_session": 2,
        "missing_fields": 2, "session_without_record": 2, "no_session": 1,
    }  # fmt: skip


async def test_turns_stored_twice_are_kept_until_dropping_is_requested(store: VectorStore) -> None:
    for number in (1, 2):
        await write_point(store, uid(number), session_id=S1, timestamp="2024-05-01", user_query="same")
    await write_point(
        store, uid(3), session_id=S1, parent_turn_id=uid(2), timestamp="2024-05-02", user_query="after"
    )
    await repair(store)
    assert await turn_store(store).count() == 3
    job = backfill(store)
    report = await job.apply(await job.plan(BackfillOptions(drop_duplicates=True)))
    assert (report.dropped, await turn_store(store).count()) == (1, 2)
    assert [turn.question for turn in await chain(store, S1)] == ["same", "after"]


async def test_a_turn_that_changed_after_the_plan_is_left_to_the_next_run(store: VectorStore) -> None:
    """Red when the plan's view is not compared with what is stored."""
    await old_conversation(store)
    plan = await backfill(store).plan()
    await store.set_payload(TURNS, {"owner": "ann"}, points=[uid(1)])
    report = await backfill(store).apply(plan)
    assert (report.skipped, report.deleted) == (1, 0)
    stored = await payloads(store)
    assert (stored[uid(1)]["owner"], "created_us" in stored[uid(1)]) == ("ann", False)
    assert not (await repair(store)).nothing_to_do
    assert (await repair(store)).nothing_to_do


async def test_only_the_named_session_is_repaired(store: VectorStore) -> None:
    for number, session in ((1, S1), (2, S2)):
        await write_point(store, uid(number), session_id=session, timestamp="2024-05-01")
    report = await repair(store, session_id=S2, owner="ann")
    assert (report.sessions, report.turns) == (1, 1)
    stored = await payloads(store)
    assert (stored[uid(1)].get("owner"), stored[uid(2)]["owner"]) == (None, "ann")
    assert (await backfill(store).plan(BackfillOptions(session_id=uid(300)))).report().sessions == 0


async def test_local_times_are_read_in_the_given_zone(store: VectorStore) -> None:
    await write_point(store, uid(1), session_id=S1, timestamp="2024-05-01T18:00:00")
    await repair(store, "Asia/Shanghai")
    assert (await payloads(store))[uid(1)]["created_us"] == 1_714_557_600_000_000
    with pytest.raises(BadRequestError, match="Mars"):
        await backfill(store).plan(BackfillOptions("Mars/Olympus"))


async def test_irreparable_turns_are_reported_and_kept(store: VectorStore) -> None:
    await write_point(store, uid(1), session_id=S1, timestamp="long ago")
    await write_point(store, uid(2))
    await write_point(store, uid(3), session_id="chat-7", timestamp="2024-05-01")
    report = await repair(store)
    assert (report.unparsable, report.unreadable, report.unlisted, report.sessions_created) == (1, 1, 1, 1)
    assert await turn_store(store).count() == 3
    assert (await payloads(store))[uid(1)]["timestamp"] == "long ago"


async def test_an_existing_session_record_is_kept(store: VectorStore) -> None:
    await write_session(store, 100, 5, hold=True)
    await old_conversation(store)
    before = await payloads(store, SESSIONS)
    assert (await repair(store)).sessions_created == 0
    assert await payloads(store, SESSIONS) == before


async def test_an_empty_store_has_nothing_to_repair(store: VectorStore) -> None:
    plan = await backfill(store).plan()
    assert plan == BackfillPlan()
    assert (await backfill(store).apply(plan)).nothing_to_do


@pytest.mark.full("works through many cases, for seconds")
async def test_2500_turns_of_one_session_become_one_chain(store: VectorStore) -> None:
    """Red when only the first page is read."""
    for number in range(2_500):
        stamp = f"2024-05-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}"
        await write_point(store, uid(number), session_id=S1, timestamp=stamp)
    done: list[int] = []
    plan = await backfill(store).plan()
    await backfill(store).apply(plan, done.append)
    assert [turn.turn_id for turn in await chain(store, S1)] == [uid(number) for number in range(2_500)]
    assert sum(done) == plan.writes == 2_500


async def test_after_the_repair_old_turns_expire_to_the_microsecond(store: VectorStore) -> None:
    await write_point(store, uid(1), session_id=S1, timestamp="2024-05-01T18:00:00")
    await repair(store, "Asia/Shanghai")
    at = 1_714_557_600_000_000 + 86_400_000_000
    assert (await expire_turns(turn_store(store), at, 1, dry_run=True)).matched == 0
    assert (await expire_turns(turn_store(store), at + 1, 1, dry_run=True)).matched == 1


class WatchedStore:
    """The real store; counts the requests by name, and the turns that the event loop took between them."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store
        self.requests: Counter[str] = Counter()
        self.turns = self._turns_before = 0
        self.between: list[int] = []

    def __getattr__(self, name: str) -> Any:
        ask = getattr(self._store, name)

        async def asked(*args: Any, **named: Any) -> Any:
            self.requests[name] += 1
            self.between.append(self.turns - self._turns_before)
            try:
                return await ask(*args, **named)
            finally:
                self._turns_before = self.turns

        return asked

    async def count_turns(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.turns += 1


async def watched_plan(store: VectorStore) -> tuple[BackfillPlan, WatchedStore]:
    watched = WatchedStore(store)
    counting = asyncio.create_task(watched.count_turns())
    try:
        return await backfill(cast(VectorStore, watched)).plan(), watched
    finally:
        counting.cancel()


async def test_others_get_the_event_loop_while_a_session_is_planned(store: VectorStore) -> None:
    """Discriminates: planned on the event loop, which nobody else gets for seconds in a big store."""
    await old_conversation(store)
    plan, watched = await watched_plan(store)
    assert len(list(plan.changes)) == 3
    assert any(watched.between[1:])


async def test_ids_and_parents_are_looked_up_for_many_sessions_at_once(store: VectorStore) -> None:
    """Discriminates: one request per session whose points are not named by their turn ids, and a search
    through all payloads for parents that have expired."""
    for number in range(1, 31):
        await write_point(
            store, uid(number), session_id=uid(100 + number), turn_id=uid(1_000 + number),
            parent_turn_id=uid(2_000 + number), timestamp="2024-05-01",
        )  # fmt: skip
    plan, watched = await watched_plan(store)
    assert plan.troubles["dangling_parent"] == plan.troubles["other_turn_id"] == 30
    assert watched.requests["scroll"] == 2
    assert watched.requests["retrieve"] == 4
