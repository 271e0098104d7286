"""Retention over HTTP: limits of sessions, the clean-up, its receipts, and what a reader sees afterwards."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.conversation.turns import Turn, TurnStatus
from core.errors import ConflictError
from core.operations.expiry import DAY_US, GUARDED_TURNS
from services.operations.schedule.lease import LeaseStore
from services.operations.schedule.runner import CleanupSchedule
from tests.support.servers.app import App, make_settings, open_app

ADMIN = {"Authorization": "Bearer admin-key-of-thirty-two-characters!"}


async def new_session(app: App, **changes: Any) -> str:
    session_id = str((await app.client.post("/sessions", json={})).json()["session_id"])
    if changes:
        changed = await app.client.patch(f"/sessions/{session_id}", json=changes)
        assert changed.status_code == 200, changed.text
    return session_id


async def aged_turn(app: App, session_id: str, days: float, parent: str | None = None) -> str:
    """Stored as the server stores it, `days` ago."""
    turn = Turn(
        turn_id=str(uuid.uuid4()),
        session_id=session_id,
        owner="local",
        question="What is the fee?",
        created_us=time.time_ns() // 1_000 - int(days * DAY_US),
        status=TurnStatus.COMPLETED,
        parent_turn_id=parent,
        answer="300 yuan.",
    )
    await app.container.conversations.add_conversation_turn(turn)
    return turn.turn_id


async def clean_up(app: App, **params: str) -> dict[str, Any]:
    response = await app.client.post("/admin/cleanup", params=params)
    assert response.status_code == 200, response.text
    report: dict[str, Any] = response.json()
    return report


async def parents(app: App, session_id: str) -> dict[str, str | None]:
    turns = (await app.client.get(f"/sessions/{session_id}/tree")).json()["turns"]
    return {turn["turn_id"]: turn["parent_turn_id"] for turn in turns}


async def test_a_clean_up_follows_each_sessions_limit_and_leaves_a_receipt(app: App) -> None:
    """Discriminates: a limit that PATCH stores and expiry does not read; a dry run that deletes."""
    plain, short = await new_session(app), await new_session(app, expire_days=7)
    long, held = await new_session(app, expire_days=90), await new_session(app, expire_days=1, hold=True)
    for session_id in (plain, short, long, held):
        for days in (100, 40, 10):
            await aged_turn(app, session_id, days)
    dry = await clean_up(app)
    assert (dry["matched"], dry["deleted"], dry["receipt_id"]) == (6, 0, "")
    report = await clean_up(app, dry_run="false")
    assert report["sessions"] == {plain: 2, short: 3, long: 1}
    assert (report["deleted"], report["held"], report["total_after"]) == (6, 3, 6)
    assert [len(await parents(app, each)) for each in (plain, long, held)] == [1, 2, 3]
    receipts = (await app.client.get("/admin/receipts", params={"kind": "expiry"})).json()["receipts"]
    assert [(each["receipt_id"], each["reason"]) for each in receipts] == [(report["receipt_id"], "request")]
    assert receipts[0]["counts"]["turns"] == 6
    assert "fee" not in str(receipts)


async def test_a_reader_sees_no_expired_turn_and_its_children_as_roots(app: App) -> None:
    """Discriminates: a cached tree that outlives the deletion."""
    session_id = await new_session(app)
    old = await aged_turn(app, session_id, 31)
    child = await aged_turn(app, session_id, 29, old)
    leaf = await aged_turn(app, session_id, 28, child)
    assert await parents(app, session_id) == {old: None, child: old, leaf: child}
    await clean_up(app, dry_run="false")
    assert await parents(app, session_id) == {child: None, leaf: child}
    branch = (await app.client.get(f"/sessions/{session_id}/turns", params={"leaf": leaf})).json()["turns"]
    assert [turn["turn_id"] for turn in branch] == [child, leaf]
    assert (await app.client.get(f"/turns/{old}")).status_code == 404
    assert (await app.client.get(f"/turns/{child}")).json()["parent_turn_id"] is None
    asked = await app.ask("And now?", session_id=session_id, parent_turn_id=leaf)
    assert asked.finished["status"] == "completed"


async def test_after_a_clean_up_there_is_nothing_to_repair(app: App) -> None:
    """Discriminates: a child of an expired turn taken for one that lost its parent, and attached to
    another."""
    session_id = await new_session(app)
    old = await aged_turn(app, session_id, 31)
    await aged_turn(app, session_id, 29)
    child = await aged_turn(app, session_id, 28, old)
    before = (await app.client.post("/admin/backfill")).json()
    assert (await clean_up(app, dry_run="false"))["deleted"] == 1
    report = (await app.client.post("/admin/backfill", params={"dry_run": "false"})).json()
    assert (report["changed"], report["repairs"], report["sessions_created"]) == (0, {}, 0)
    assert set(report["troubles"]) <= {"missing_vectors"}, report["troubles"]
    assert set(before["troubles"]) <= {"missing_vectors"}, before["troubles"]
    assert (await parents(app, session_id))[child] is None


async def test_the_nightly_run_is_marked_in_its_receipt(app: App) -> None:
    session_id = await new_session(app)
    await aged_turn(app, session_id, 31)
    report = await app.container.conversations.cleanup_expired_conversations()
    newest = (await app.client.get("/admin/receipts", params={"limit": 1, "kind": "expiry"})).json()[
        "receipts"
    ][0]
    assert (newest["reason"], newest["counts"]["turns"]) == ("schedule", report.deleted == 1)


async def test_an_implausible_clock_stops_the_nightly_run_but_nobody_who_requests_a_run(
    app: App,
) -> None:
    """Discriminates: the check lost on the way to the schedule, or applied to a person's request."""
    session_id = await new_session(app)
    for _ in range(GUARDED_TURNS + 1):
        await aged_turn(app, session_id, 400)
    with pytest.raises(ConflictError, match="clean up by hand") as refused:
        await app.container.conversations.cleanup_expired_conversations(unattended=True)
    assert (await clean_up(app))["refusal"] == str(refused.value)
    assert len(await parents(app, session_id)) == GUARDED_TURNS + 1
    assert (await clean_up(app, dry_run="false"))["deleted"] == GUARDED_TURNS + 1


async def test_the_schedule_is_wired_to_an_unattended_run(app: App) -> None:
    """Discriminates: a nightly run that trusts any clock, like a run that a person has requested."""
    session_id = await new_session(app)
    for _ in range(GUARDED_TURNS + 1):
        await aged_turn(app, session_id, 400)
    schedule, lease = app.container.schedule, LeaseStore(app.container.store, "operations")
    assert isinstance(schedule, CleanupSchedule)
    await schedule.current()  # creates the record of a new store, for which nothing is due
    record = await lease.read()
    assert record is not None
    overdue = replace(record, token="overdue", holder="", last_slot=record.last_slot - DAY_US)
    assert await lease.swap(record, overdue) == overdue
    with pytest.raises(ConflictError, match="clean up by hand"):
        await schedule.runner.run()
    assert len(await parents(app, session_id)) == GUARDED_TURNS + 1


@pytest.mark.full("opens the whole application, more than once or for seconds")
@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/admin/cleanup", {"days": "0"}),
        ("/admin/cleanup", {"days": "-1"}),
        ("/admin/cleanup", {"days": "thirty"}),
        ("/admin/cleanup", {"days": "1000000000"}),
        ("/admin/cleanup", {"dry_run": "perhaps"}),
        ("/admin/cleanup", {"reason": "schedule"}),
        ("/admin/receipts", {"limit": "0"}),
        ("/admin/receipts", {"kind": "theft"}),
    ],
)
async def test_bad_parameters_are_refused_by_name_and_delete_nothing(
    app: App, path: str, params: dict[str, str]
) -> None:
    await aged_turn(app, await new_session(app), 40)
    method = "GET" if path.endswith("receipts") else "POST"
    apply = {"dry_run": "false"} if method == "POST" else {}
    refused = await app.client.request(method, path, params={**apply, **params})
    assert refused.status_code == 422
    assert next(iter(params)) in refused.json()["error"]["message"]
    assert await app.container.conversations.turns.count() == 1


async def test_a_body_is_refused_where_parameters_are_in_the_address(app: App) -> None:
    """Discriminates: a `days` that is ignored, so that another limit applies. An empty object is none."""
    for path in ("cleanup", "backfill", "backups", "erase?kind=turn&name=x"):
        refused = await app.client.post(f"/admin/{path}", json={"days": 30})
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "unknown_field"), path
        assert "address" in refused.json()["error"]["message"]
    assert (await app.client.post("/admin/cleanup", json={})).status_code == 200


async def test_receipts_are_for_administrators(tmp_path: Path) -> None:
    keys = {
        "api_keys": ("a-user-key-of-thirty-two-characters!",),
        "admin_api_keys": (ADMIN["Authorization"][7:],),
    }
    async with open_app(make_settings(tmp_path, server=keys)) as app:
        mine = {"Authorization": f"Bearer {keys['api_keys'][0]}"}
        assert (await app.client.get("/admin/receipts")).status_code == 401
        assert (await app.client.get("/admin/receipts", headers=mine)).status_code == 403
        assert (await app.client.get("/admin/receipts", headers=ADMIN)).json() == {
            "receipts": [],
            "next": None,
        }


async def test_statistics_report_the_bytes_on_disk_if_the_engine_does(app: App) -> None:
    stats = (await app.client.get("/admin/stats")).json()
    known = app.container.space is not None
    assert isinstance(stats["bytes_on_disk"], int) is known


async def test_with_a_backup_before_it_a_clean_up_can_be_undone(tmp_path: Path) -> None:
    """Discriminates: an archive of the remaining data; an archive for a run that deletes nothing."""
    settings = make_settings(tmp_path, conversation={"backup_before_cleanup": True})
    async with open_app(settings) as app:
        await clean_up(app, dry_run="false")
        assert list(settings.store.backups.glob("*")) == []
        await aged_turn(app, session_id := await new_session(app), 40)
        assert (await clean_up(app, dry_run="false"))["deleted"] == 1
        assert await parents(app, session_id) == {}
        (receipt, _) = (await app.client.get("/admin/receipts", params={"kind": "expiry"})).json()["receipts"]
        (backup,) = (await app.client.get("/admin/backups")).json()["backups"]
    assert receipt["details"]["backup"] == backup["file"]
    assert backup["points"]["conversations"] == 1


async def test_without_the_backup_nothing_is_deleted(tmp_path: Path) -> None:
    (in_the_way := tmp_path / "backups").write_text("a file where the folder should be")
    settings = make_settings(
        tmp_path, conversation={"backup_before_cleanup": True}, store={"backup_dir": in_the_way}
    )
    async with open_app(settings) as app:
        turn_id = await aged_turn(app, session_id := await new_session(app), 40)
        refused = await app.client.post("/admin/cleanup", params={"dry_run": "false"})
        assert refused.status_code == 503
        assert list(await parents(app, session_id)) == [turn_id]
