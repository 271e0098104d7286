"""scripts.backfill_parent_turns as an operator runs it (RELIABILITY B104–B109), and its routes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from qdrant_client import models

from api.wiring.assembly import open_container, open_maintenance
from config.settings import Settings
from core.errors import UnavailableError
from routes.admin.store import router as repair_router
from routes.errors import install_error_handlers
from scripts import backfill_parent_turns
from scripts.backfill_parent_turns import RepairByServer
from scripts.commands.archives import _restore, restore
from scripts.commands.maintenance import CommandError, invoke
from scripts.commands.server import Server, ServerClient
from services.store.dialect import VectorStore
from tests.services.conversation.stores import TURNS, payloads, uid
from tests.support.servers.app import HASHING, make_settings
from tests.support.servers.commands import options_of

SESSION = uid(100)


async def repair(settings: Settings, *arguments: str) -> int:
    return await backfill_parent_turns._repair(settings, options_of(backfill_parent_turns.repair, arguments))


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[VectorStore]:
    async with open_maintenance(settings) as maintenance:
        yield maintenance.conversations.turns._store


@dataclass(frozen=True)
class Old:
    """A turn of an earlier version; None leaves a field out."""

    number: int
    timestamp: str | None
    parent: str | None = None
    session: str = SESSION
    question: str = ""


async def write(settings: Settings, *turns: Old, collection: str = TURNS) -> None:
    points = []
    for turn in turns:
        payload = {
            "session_id": turn.session, "user_query": turn.question or f"question {turn.number}",
            "assistant_response": "answer", "timestamp": turn.timestamp, "context_docs": ["text"],
            "token_count": 1, "turn_id": uid(turn.number), "parent_turn_id": turn.parent,
        }  # fmt: skip
        remaining = {name: value for name, value in payload.items() if value is not None}
        points.append(models.PointStruct(id=uid(turn.number), vector={}, payload=remaining))
    async with opened(settings) as store:
        if not await store.collection_exists(collection):
            await store.create_collection(
                collection, {"x": models.VectorParams(size=3, distance=models.Distance.DOT)}
            )
        for start in range(0, len(points), 500):
            await store.upsert(collection, points[start : start + 500])


async def read(settings: Settings) -> dict[str, dict[str, Any]]:
    async with opened(settings) as store:
        return await payloads(store)


async def parents(settings: Settings) -> dict[str, str | None]:
    return {turn_id: payload.get("parent_turn_id") for turn_id, payload in (await read(settings)).items()}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return make_settings(tmp_path / "data")


def table(shown: str) -> dict[str, int]:
    """Return the printed rows."""
    rows = [line.rsplit(None, 1) for line in shown.splitlines()]
    return {row[0].strip(): int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def archives(settings: Settings) -> list[Path]:
    return sorted(settings.store.backups.glob("*.zip"))


async def test_no_sessions_are_not_a_failure(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    await made(settings)
    for arguments in ([], ["--apply"]):
        assert await repair(settings, *arguments) == 0
        assert "There is nothing to repair." in capsys.readouterr().out
    assert archives(settings) == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--plan", "/proc/none.json"], "--plan /proc/none.json cannot be read: No such file"),
        (["--save-plan", "/proc/none.json"], "--save-plan /proc/none.json cannot be written: No such file"),
        (["--import-from", "none"], "no collection 'none'"),
    ],
)
async def test_a_missing_collection_is_refused_by_name(
    arguments: list[str], named: str, settings: Settings
) -> None:
    """Discriminates: exit code 1, as for a repair that was started; the system's "[Errno 2]"."""
    await made(settings)
    with pytest.raises(CommandError, match=named) as refused:
        await repair(settings, *arguments)
    assert refused.value.exit_code == 2


async def test_turns_that_only_lack_vectors_are_counted_before_and_noted_after(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: a count of 0 before, and no note that no backup is made."""
    await write(settings, Old(1, "2024-05-01"))
    assert await repair(settings, "--apply", "--no-embed") == 0
    capsys.readouterr()
    assert await repair(settings) == 0
    assert table(capsys.readouterr().out)["turns to embed"] == 1
    made_before = archives(settings)
    assert await repair(settings, "--apply") == 0
    output = capsys.readouterr().out
    assert (table(output)["turns embedded"], archives(settings)) == (1, made_before)
    assert "no backup was made" in output


async def test_an_unknown_session_is_a_failure(settings: Settings) -> None:
    await write(settings, Old(1, "2024-05-01"))
    with pytest.raises(CommandError, match=uid(7)) as failed:
        await repair(settings, "--session", uid(7), "--apply")
    assert failed.value.exit_code == 1


@pytest.mark.full("runs commands as processes of their own")
async def test_missing_equal_and_mixed_zone_times_are_reported_and_repaired(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    await write(
        settings,
        Old(1, None),
        Old(2, "2024-05-01T10:00:00Z"),
        Old(3, "2024-05-01T18:00:00"),
        Old(4, "2024-05-01T18:00:01"),
        Old(5, "a while ago"),
    )
    before = await read(settings)
    assert await repair(settings, "--assume-timezone", "Asia/Shanghai") == 0
    counts = table(capsys.readouterr().out)
    assert (counts["times without a zone"], counts["sessions with and without zones"]) == (2, 1)
    assert (counts["times that cannot be read"], counts["turns to change"]) == (2, 5)
    assert await read(settings) == before
    assert await repair(settings, "--assume-timezone", "Asia/Shanghai", "--apply") == 0
    links = await parents(settings)
    assert links == {uid(2): None, uid(3): uid(2), uid(4): uid(3), uid(1): uid(4), uid(5): uid(1)}
    assert {
        name: each.get("timestamp") for name, each in (await read(settings)).items() if name != uid(1)
    } == {name: each.get("timestamp") for name, each in before.items() if name != uid(1)}


@pytest.mark.full("runs commands as processes of their own")
async def test_branches_are_kept_and_a_cycle_is_cut(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    await write(
        settings,
        Old(1, "2024-05-01T10:00:00Z"),
        Old(2, "2024-05-01T10:01:00Z", uid(1)),
        Old(3, "2024-05-01T10:02:00Z", uid(1)),
        Old(4, "2024-05-01T10:03:00Z", uid(5)),
        Old(5, "2024-05-01T10:04:00Z", uid(4)),
    )
    assert await repair(settings, "--apply") == 0
    assert table(capsys.readouterr().out)["parents in a cycle"] == 1
    assert await parents(settings) == {
        uid(1): None, uid(2): uid(1), uid(3): uid(1), uid(4): uid(3), uid(5): uid(4),
    }  # fmt: skip
    assert await repair(settings, "--apply") == 0
    assert "There is nothing to repair." in capsys.readouterr().out


@pytest.mark.full("writes a whole store anew")
async def test_the_previous_state_is_restored_from_the_backup(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await write(settings, Old(1, "2024-05-01"), Old(2, "2024-05-02", "nobody"))
    before = await read(settings)
    assert await repair(settings, "--apply") == 0
    (archive,) = archives(settings)
    assert archive.name in capsys.readouterr().out
    assert await read(settings) != before
    (settings.store.data_dir / "store").rename(tmp_path / "aside")
    assert await _restore(settings, options_of(restore, [str(archive), "--apply"])) == 0
    assert await read(settings) == before


@pytest.mark.slow("runs a command as a process")
async def test_nothing_is_written_without_a_backup_unless_it_is_declined(settings: Settings) -> None:
    await write(settings, Old(1, "2024-05-01"))
    before = await read(settings)
    settings.store.backups.write_text("not a folder")
    with pytest.raises(UnavailableError, match=r"Nothing was changed, .* BACKUP_DIR cannot be used"):
        await repair(settings, "--apply")
    assert await read(settings) == before
    assert await repair(settings, "--apply", "--no-backup") == 0
    assert await read(settings) != before


@pytest.mark.full("runs commands as processes of their own")
async def test_an_unwritable_plan_file_aborts_before_anything_is_written(
    settings: Settings, tmp_path: Path
) -> None:
    await write(settings, Old(1, "2024-05-01"))
    before = await read(settings)
    with pytest.raises(CommandError, match="nowhere"):
        await repair(settings, "--apply", "--save-plan", str(tmp_path / "nowhere" / "plan.json"))
    assert await read(settings) == before


@pytest.mark.full("runs commands as processes of their own")
async def test_a_saved_plan_is_applied_only_while_it_is_valid(settings: Settings, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    await write(settings, Old(1, "2024-05-01"), Old(2, "2024-05-02"))
    assert await repair(settings, "--save-plan", str(plan), "--assume-timezone", "Asia/Shanghai") == 0
    saved = json.loads(plan.read_text(encoding="utf-8"))
    results = {(each["trouble"], each["before"], each["after"]) for each in saved["sessions"][0]["findings"]}
    assert ("naive_timestamp", "2024-05-01", "2024-04-30T16:00:00.000000Z") in results
    assert saved["report"]["troubles"]["missing_parent"] == 1
    await write(settings, Old(3, "2024-05-03"))
    with pytest.raises(CommandError, match="plan again") as refused:
        await repair(settings, "--plan", str(plan), "--apply")
    assert refused.value.exit_code == 2
    assert await repair(settings, "--save-plan", str(plan), "--assume-timezone", "Asia/Shanghai") == 0
    assert await repair(settings, "--plan", str(plan), "--apply") == 0
    assert (await read(settings))[uid(1)]["created_us"] == 1_714_492_800_000_000
    plan.write_text("{}")
    with pytest.raises(CommandError, match="not a plan"):
        await repair(settings, "--plan", str(plan))


@pytest.mark.full("runs commands as processes of their own")
async def test_an_old_collection_is_imported(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    await write(settings, Old(1, "2024-05-01"), Old(2, "2024-05-02"), collection="chat_history")
    assert await repair(settings, "--import-from", "chat_history") == 0
    assert await read(settings) == {}
    assert await repair(settings, "--import-from", "chat_history", "--apply") == 0
    assert await parents(settings) == {uid(1): None, uid(2): uid(1)}
    assert await repair(settings, "--import-from", "chat_history", "--apply") == 0
    assert "There is nothing to import." in capsys.readouterr().out


@pytest.mark.full("runs commands as processes of their own")
async def test_2500_turns_are_repaired_in_ten_seconds(settings: Settings) -> None:
    minutes = [f"2024-05-01T{n // 60 % 24:02}:{n % 60:02}:{n // 1440:02}Z" for n in range(2_500)]
    await write(settings, *(Old(number, minutes[number]) for number in range(2_500)))
    begun = time.monotonic()
    assert await repair(settings, "--apply", "--no-embed") == 0
    assert time.monotonic() - begun < 10
    links = await parents(settings)
    assert sum(parent is None for parent in links.values()) == 1
    assert len(set(links.values())) == 2_500
    assert await repair(settings, "--no-embed") == 0


@pytest.mark.full("runs commands as processes of their own")
async def made(settings: Settings) -> None:
    async with open_maintenance(settings):
        pass


def test_exit_codes_and_one_plain_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 nothing to do, 1 failed, 2 refused; standard error has one line and no traceback."""
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("EMBEDDING", HASHING)
    assert invoke(backfill_parent_turns.repair, ["--apply"]) == 2
    assert capsys.readouterr().err.startswith("wenmai: there is no store in")
    asyncio.run(made(make_settings(tmp_path / "data")))
    assert invoke(backfill_parent_turns.repair, ["--apply"]) == 0
    capsys.readouterr()
    for code, arguments in (
        (1, ["--session", uid(1)]),
        (2, ["--import-from", "nowhere"]),
        (2, ["--save-plan", str(tmp_path / "nowhere" / "plan.json")]),
        (2, ["--import-from", TURNS]),
    ):
        assert invoke(backfill_parent_turns.repair, arguments) == code, arguments
        *_, line = capsys.readouterr().err.splitlines()
        assert line.startswith("wenmai: "), line


def test_contradicting_options_are_refused() -> None:
    assert invoke(backfill_parent_turns.repair, ["--import-from", "x", "--plan", "y"]) == 2


def test_every_kind_of_problem_has_a_line_in_the_table() -> None:
    from core.operations.backfill_turns import Trouble

    assert list(backfill_parent_turns.TROUBLES) == [trouble.value for trouble in Trouble]


@asynccontextmanager
async def routes(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """The repair's routes over a real container."""
    app = FastAPI()
    app.include_router(repair_router)
    install_error_handlers(app, ())
    async with open_container(settings) as container:
        app.state.container = container
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=30) as client:
            yield client


async def test_the_server_returns_the_same_report_and_backs_up_first(settings: Settings) -> None:
    await write(settings, Old(1, "2024-05-01"), Old(2, "2024-05-02", "nobody"))
    asked: dict[str, Any] = {"dry_run": False, "embed": False}
    async with routes(settings) as client:
        dry = (await client.post("/admin/backfill", params={"details": True})).json()
        assert dry["plan"]["sessions"][0]["findings"]
        done = (await client.post("/admin/backfill", params=asked)).json()
        assert dry["troubles"] == done["troubles"]
        assert (done["changed"], done["plan"], dry["backup"]) == (2, None, "")
        again = (await client.post("/admin/backfill", params=asked)).json()
        assert (again["changed"], again["backup"]) == (0, "")
    assert [path.name for path in archives(settings)] == [done["backup"]]


async def test_the_server_changes_nothing_when_it_cannot_back_up(settings: Settings) -> None:
    await write(settings, Old(1, "2024-05-01"))
    settings.store.backups.write_text("not a folder")
    asked: dict[str, Any] = {"dry_run": False, "embed": False}
    async with routes(settings) as client:
        refused = await client.post("/admin/backfill", params=asked)
        assert (refused.status_code, "Nothing was changed" in refused.text) == (503, True)
        done = (await client.post("/admin/backfill", params={**asked, "backup": False})).json()
        assert (done["changed"], done["backup"]) == (1, "")


@pytest.mark.full("runs commands as processes of their own")
async def test_an_import_through_the_server(settings: Settings) -> None:
    await write(settings, Old(1, "2024-05-01"), Old(2, "2024-05-02"), collection="chat_history")
    async with routes(settings) as client:
        asked: dict[str, Any] = {"collection": "chat_history", "embed": False}
        assert (await client.post("/admin/backfill/import", params=asked)).json()["turns"] == 2
        done = await client.post("/admin/backfill/import", params={**asked, "dry_run": False})
        assert (done.status_code, done.json()["added"]) == (200, 2)
        unknown = await client.post("/admin/backfill/import", params={"collection": "nowhere"})
        assert unknown.status_code == 404
        unnamed = await client.post("/admin/backfill/import", params={"collection": "../x"})
        assert unnamed.status_code == 422


async def test_the_command_understands_the_servers_reply(settings: Settings, tmp_path: Path) -> None:
    """Discriminates: a count that is sent under another name than the report's."""
    await write(settings, Old(1, "2024-05-01"))
    await write(settings, Old(2, "2024-05-02"), collection="chat_history")
    async with routes(settings) as client:
        plan = tmp_path / "plan.json"
        words = ["--session", SESSION, "--save-plan", str(plan), "--no-embed"]
        asking = ServerClient(client, Server("http://127.0.0.1"), "")
        report = await RepairByServer(asking, options_of(backfill_parent_turns.repair, words)).repair()
        assert (report.dry_run, report.turns, report.deleted) == (True, 1, 0)
        assert json.loads(plan.read_text())["report"]["turns"] == 1
        options = options_of(backfill_parent_turns.repair, ["--no-embed", "--apply"])
        imported = await RepairByServer(asking, options).import_from("chat_history")
        assert (imported.turns, imported.existing, imported.added) == (1, 0, 1)
