"""The command that erases: both ways to the store, dry by default, exit codes."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest
from qdrant_client import models

from config.settings import Settings
from scripts.commands import erase
from scripts.commands.maintenance import CommandError
from tests.support.servers.app import HASHING, make_settings, open_app, scripted, serving
from tests.support.servers.commands import command, options_of
from tests.support.servers.server import running_server

NOBODY = str(uuid.uuid4())
FEES = "Rumpelstilzchen pays nine golden ducats for the spinning wheel every autumn."


async def run_it(settings: Settings, *arguments: str) -> int:
    return await erase._erase(settings, options_of(erase.erase, arguments))


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the JSON, after what a test's logging prints."""
    out = capsys.readouterr().out
    report: dict[str, Any] = json.loads(out[out.index("{\n") :])
    return report


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return make_settings(
        tmp_path / "data",
        models={"llms": {"default": scripted(f"{FEES} [1]")}},
        conversation={"qa_log": tmp_path / "log"},
        retrieval={"rerank_score_threshold": 0.0},
    )


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--turn", "x"],
        ["--turn", NOBODY, "--session", NOBODY],
        ["--session", NOBODY, "--apply"],
        ["--owner", "", "--apply", "--yes"],
        ["--owner", "\udcff\udcfe"],
        ["--session", "\udcff\udcfe"],
        ["--session", str(uuid.UUID(int=0))],
        ["--turn", str(uuid.UUID(int=0))],
        ["--owner", "x", "--backups", "burn"],
        ["--owners", "--owner", "local"],
        ["--owners", "--apply", "--yes"],
        ["everything"],
    ],
)
def test_bad_usage_exits_with_2_and_changes_nothing(arguments: list[str], tmp_path: Path) -> None:
    shown = command("wenmai", "erase", *arguments, DATA_DIR=str(tmp_path))
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "Traceback" not in shown.stderr
    assert shown.stderr.count("\n") == 1 or shown.stderr.startswith("usage:")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow("starts a server, and a command for each step")
async def test_it_counts_first_and_erases_on_request(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_app(settings) as app:
        document = await app.add_text("fees.md", FEES)
        asked = await app.ask("How much?")
        second = await app.ask("And then?", session_id=asked.session_id)
    assert await run_it(settings, "--session", asked.session_id) == 0
    assert "Nothing was changed" in capsys.readouterr().out
    with pytest.raises(CommandError, match="--yes") as refused:
        await run_it(settings, "--document", document, "--apply")
    assert refused.value.exit_code == 2
    assert await run_it(settings, "--document", document, "--apply", "--yes", "--json") == 0
    output = printed(capsys)
    turns = {asked.finished["turn_id"], second.finished["turn_id"]}
    assert (set(output["quoted_in"]["turn_ids"]), output["proof"]["hits"]) == (turns, 0)
    assert await run_it(settings, "--document", document, "--apply", "--yes") == 0  # once more
    assert await run_it(settings, "--turn", asked.finished["turn_id"], "--apply", "--yes") == 0
    assert await run_it(settings, "--turn", asked.finished["turn_id"], "--apply", "--yes") == 0
    assert "Nothing of it was found." in capsys.readouterr().out
    assert await run_it(settings, "--owner", "local", "--apply", "--yes", "--json") == 0
    output = printed(capsys)
    assert (output["counts"], output["proof"]["complete"]) == (
        {"turns": 1, "sessions": 1, "log_lines": 1},
        True,
    )
    async with open_app(settings) as app:
        assert (await app.client.get("/sessions")).json()["sessions"] == []


@pytest.mark.full("runs commands as processes of their own")
async def test_what_remains_only_in_backups_is_reported_and_is_not_a_failure(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: an exit code that counts the archives, too."""
    async with open_app(settings) as app:
        asked = await app.ask("How much?")
        await app.container.backups.create()
    [archive] = settings.store.backups.iterdir()
    one = ("--turn", asked.finished["turn_id"], "--apply", "--yes")
    assert await run_it(settings, *one, "--backups", "keep") == 0
    output = capsys.readouterr().out
    assert f"\nleft in 1 backup: {archive.name}\n" in output
    assert "--backups delete" in output
    assert "No backup is left" not in output
    assert await run_it(settings, *one, "--backups", "delete") == 0
    assert not archive.exists()
    assert "No backup is left: run `wenmai backup`." in capsys.readouterr().out


@pytest.mark.full("runs commands as processes of their own")
def test_a_running_server_is_asked(tmp_path: Path) -> None:
    with running_server(tmp_path, EMBEDDING=HASHING, LOAD_SAMPLE="false", ADMIN_API_KEYS="secret") as server:
        headers = {"authorization": "Bearer secret"}
        body = {"question": "Who?", "stream": False}
        url = f"{server.url}/knowledge_chat_conversation"
        session = httpx.post(url, json=body, headers=headers, timeout=30).json()["session_id"]
        where = {"DATA_DIR": str(tmp_path), "EMBEDDING": HASHING, "ADMIN_API_KEYS": "secret"}
        arguments = ("--session", session, "--url", server.url, "--json")
        counted = command("wenmai", "erase", *arguments, **where)
        assert (counted.returncode, json.loads(counted.stdout)["counts"]) == (0, {"sessions": 1, "turns": 1})
        done = command("wenmai", "erase", *arguments, "--apply", "--yes", **where)
        assert (done.returncode, json.loads(done.stdout)["proof"]["hits"]) == (0, 0)
        assert httpx.get(f"{server.url}/sessions/{session}", headers=headers).status_code == 404


async def test_an_unknown_name_is_noted(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """Discriminates: a typo in an owner's name that looks like a proof."""
    async with open_app(settings) as app:
        await app.ask("How much?")
    for name, reason in (("locl", "not an owner's name"), (f"key-{'0' * 16}", "wenmai erase --owners")):
        for more in ((), ("--apply", "--yes")):
            with pytest.raises(CommandError, match=reason) as refused:
                await run_it(settings, "--owner", name, *more)
            assert refused.value.exit_code == 2
            assert name not in str(refused.value)
    assert "Receipt" not in capsys.readouterr().out
    assert await run_it(settings, "--owner", "local") == 0
    assert "No such" not in capsys.readouterr().out
    assert await run_it(settings, "--session", "x") == 0
    assert "No such session is stored" in capsys.readouterr().out


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_owners_are_listed_from_the_store_and_by_its_server(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: a first page that is taken for the whole list."""
    async with open_app(settings) as app:
        await app.ask("How much?")
        turn = {"session_id": "s", "user_query": "?", "status": "completed"}
        points = [
            models.PointStruct(id=str(uuid.uuid4()), vector={}, payload={**turn, "owner": f"anna{number:04}"})
            for number in range(erase.PAGE)
        ]
        await app.container.store.upsert("conversations", points)
    assert await erase._list_owners(settings, options_of(erase.erase, ["--owners"])) == 0
    table = capsys.readouterr().out
    head, local, anna, *_ = [line.split() for line in table.splitlines() if not line.startswith("20")]
    assert head == ["owner", "sessions", "turns", "documents", "memories", "last", "turn", "key"]
    assert (local[:5], local[-1]) == (["local", "1", "1", "0", "0"], "yes")
    assert anna == ["anna0000", "0", "1", "0", "0", "-", "no"]
    assert await erase._list_owners(settings, options_of(erase.erase, ["--owners", "--json"])) == 0
    by_store = printed(capsys)
    async with serving(settings) as url:
        arguments = options_of(erase.erase, ["--owners", "--json", "--url", url])
        assert await erase._list_owners(settings, arguments) == 0
    assert printed(capsys) == by_store
    assert len(by_store["owners"]) == erase.PAGE + 1


async def test_a_server_receives_what_to_erase_with_the_document(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: --with-answers or --delete-backups lost on the way to the server that has the store."""
    async with serving(settings) as url, httpx.AsyncClient(base_url=url, timeout=30) as client:
        added = (await client.post("/documents", files={"file": ("fees.md", FEES.encode())})).json()
        await client.get(f"/jobs/{added['job_id']}/stream")
        body = {"question": "How much?", "stream": False}
        turn = (await client.post("/knowledge_chat_conversation", json=body)).json()["turn_id"]
        assert (await client.post("/admin/backups")).status_code == 200
        one = ("--document", added["document"]["document_id"], "--url", url)
        everything = ("--with-answers", "--backups", "delete", "--apply", "--yes")
        assert await run_it(settings, *one, *everything) == 0
        assert "Nothing of it was found." in capsys.readouterr().out
        assert (await client.get(f"/turns/{turn}")).status_code == 404
    assert list(settings.store.backups.glob("*.zip")) == []


@pytest.mark.full("runs commands as processes of their own")
@pytest.mark.parametrize("place", ["erase.traces", "erase.points"])
async def test_an_erasure_that_was_killed_is_completed_by_repeating_it(tmp_path: Path, place: str) -> None:
    """Discriminates: a point that is deleted before its traces and can no longer be named."""
    where = {"EMBEDDING": HASHING, "LOAD_SAMPLE": "false"}
    settings = make_settings(tmp_path)
    async with open_app(settings) as app:
        root = await app.ask("Who is Rumpelstilzchen?")
        await app.ask("And then?", session_id=root.session_id)
    killed = command(
        "wenmai", "erase", "--turn", root.finished["turn_id"], "--apply", "--yes",
        DATA_DIR=str(tmp_path), WENMAI_FAILPOINT=place, **where,
    )  # fmt: skip
    assert killed.returncode == -9
    repeated = command(
        "wenmai", "erase", "--turn", root.finished["turn_id"], "--apply", "--yes", "--json",
        DATA_DIR=str(tmp_path), **where,
    )  # fmt: skip
    assert (repeated.returncode, json.loads(repeated.stdout)["proof"]["hits"]) == (0, 0)
    async with open_app(settings) as app:
        records, _ = await app.container.store.scroll("conversations", limit=10)
        assert [(record.payload or {}).get("parent_turn_id") for record in records] == [None]
        assert root.finished["turn_id"] not in json.dumps([record.payload for record in records])
