"""The maintenance commands: usage, both ways to the store, exit codes (RELIABILITY B104–B111)."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from api.wiring.assembly import open_maintenance
from config.settings import Settings, load_settings
from config.sources import ConfigurationError
from core.operations.expiry import DAY_US, ExpiryReport
from core.operations.reports import ReceiptKind
from routes.wire.operations import Cleanup
from scripts import backfill_parent_turns, cleanup_expired
from scripts.commands.maintenance import EXIT_NO_READER, CommandError, Options, invoke, run
from scripts.commands.server import Server, open_client, refusal, server_of, wait_shown
from tests.services.conversation.stores import uid, write_point
from tests.support.environment import ROOT, clean_environment
from tests.support.servers.app import HASHING, make_settings
from tests.support.servers.commands import command, options_of, python
from tests.support.servers.server import RunningServer, running_server
from tests.support.waiting import until

SESSION = uid(100)


async def clean_up(settings: Settings, *arguments: str) -> int:
    return await cleanup_expired._clean_up(settings, options_of(cleanup_expired.cleanup, arguments))


async def repair(settings: Settings, *arguments: str) -> int:
    return await backfill_parent_turns._repair(settings, options_of(backfill_parent_turns.repair, arguments))


async def old_turns(settings: Settings, *days_ago: float) -> None:
    """Write turns of this age, like an earlier version, in one session."""
    async with open_maintenance(settings) as maintenance:
        for number, days in enumerate(days_ago):
            moment = time.gmtime(time.time() - days * DAY_US / 1e6)
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)
            await write_point(
                maintenance.conversations.turns._store, uid(number), session_id=SESSION, timestamp=stamp
            )


async def stored(settings: Settings) -> int:
    async with open_maintenance(settings) as maintenance:
        return await maintenance.conversations.turns.count()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return make_settings(tmp_path)


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, Path]]:
    """A server with its own key and age limit, and the folder that it has open."""
    folder = tmp_path_factory.mktemp("maintained")
    own = {"ADMIN_API_KEYS": "secret", "CONVERSATION_EXPIRE_DAYS": "365"}
    with running_server(folder, EMBEDDING=HASHING, LOAD_SAMPLE="false", **own) as server:
        yield server, folder


@pytest.mark.parametrize(
    ("script", "name"), [("cleanup_expired", "cleanup"), ("backfill_parent_turns", "repair")]
)
def test_help_appears_immediately(script: str, name: str) -> None:
    """Red when a model library is imported before the arguments are parsed."""
    code = f"import sys, scripts.{script} as s; s.{name}.make_context('it', []); print(sorted(sys.modules))"
    loaded = python(code)
    assert "qdrant_client" not in loaded.stdout
    assert "pydantic" not in loaded.stdout
    shown = command(script, "--help")
    assert (shown.returncode, "--apply" in shown.stdout) == (0, True)


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("cleanup_expired", ["--days", "0"]),
        ("cleanup_expired", ["--days", "0", "--apply", "--yes"]),
        ("cleanup_expired", ["--days", "soon"]),
        ("cleanup_expired", ["--delete"]),
        ("backfill_parent_turns", ["--assume-timezone", "Mars/Olympus"]),
        ("backfill_parent_turns", ["everything"]),
    ],
)
def test_bad_usage_exits_with_2(script: str, arguments: list[str]) -> None:
    shown = command(script, *arguments)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "Traceback" not in shown.stderr


def test_a_bad_configuration_is_one_line_and_exits_with_2(tmp_path: Path) -> None:
    shown = command("cleanup_expired", DATA_DIR=str(tmp_path), CONVERSATION_EXPIRE_DAYS="0")
    assert shown.returncode == 2
    assert "CONVERSATION_EXPIRE_DAYS" in shown.stderr
    assert len(shown.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("CONVERSATION_EXPIRE_DAYS", "0", "1"),
        ("CONVERSATION_EXPIRE_DAYS", "-1", "1"),
        ("CONVERSATION_EXPIRE_DAYS", "thirty", "integer"),
        ("CONVERSATION_EXPIRE_DAYS", "1e9", "integer"),
        ("CONVERSATION_EXPIRE_DAYS", "1000000000", "36500"),
        ("CONVERSATION_EXPIRE_DAYS", "29.5", "integer"),
        ("MAX_RECENT_TURNS", "-1", "0"),
        ("MAX_RECENT_TURNS", "many", "integer"),
        ("RERANK_SCORE_THRESHOLD", "nan", "finite"),
        ("RERANK_SCORE_THRESHOLD", "1.5", "1"),
        ("COMPRESS_AFTER_TOKENS", "199", "200"),
        ("RELEVANT_TURN_THRESHOLD", "NaN", "finite"),
        ("PROMPT_KEEP_DAYS", "-1", "0"),
        ("LOW_DISK_MB", "0", "64"),
        ("CONVERSATION_COLLECTION", "operations", "another collection"),
        ("COLLECTION_SUFFIX", "a b", "48 letters"),
    ],
)
def test_a_setting_out_of_its_range_aborts_every_start_and_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, allowed: str
) -> None:
    """B92 to B97, in this process; that the commands exit with 2 is tested once above and below."""
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    line = str(refused.value)
    assert (name in line, value in line, allowed in line, "\n" in line) == (True, True, True, False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("script", ["serve", "cleanup_expired"])
@pytest.mark.parametrize("value", ["-1", "1000000000"])
def test_a_wrong_age_limit_exits_with_2_wherever_it_is_read(tmp_path: Path, script: str, value: str) -> None:
    shown = command(script, DATA_DIR=str(tmp_path), CONVERSATION_EXPIRE_DAYS=value)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert (value in shown.stderr, len(shown.stderr.splitlines())) == (True, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow("runs a command as a process")
async def test_a_dry_run_counts_and_apply_deletes(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    await old_turns(settings, 40, 31, 29)
    assert await clean_up(settings, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["matched"], report["deleted"], report["dry_run"]) == (2, 0, True)
    assert report["total_after"] == 3
    assert await clean_up(settings, "--apply") == 0
    assert "turns deleted" in capsys.readouterr().out
    assert await stored(settings) == 1


@pytest.mark.full("runs commands as processes of their own")
async def test_fewer_days_than_configured_need_yes(settings: Settings) -> None:
    await old_turns(settings, 29, 1)
    with pytest.raises(CommandError, match="--yes") as refused:
        await clean_up(settings, "--apply", "--days", "7")
    assert refused.value.exit_code == 2
    assert await clean_up(settings, "--days", "7") == 0
    assert await stored(settings) == 2
    assert await clean_up(settings, "--apply", "--days", "7", "--yes") == 0
    assert await stored(settings) == 1


@pytest.mark.full("runs commands as processes of their own")
async def test_a_deletion_by_command_has_a_receipt_that_says_so(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    await old_turns(settings, 40, 31, 29)
    assert await clean_up(settings, "--apply") == 0
    async with open_maintenance(settings) as maintenance:
        (receipt,) = await maintenance.receipts.newest(kind=ReceiptKind.EXPIRY)
    assert (receipt.reason, receipt.counts["turns"], receipt.error) == ("command", 2, "")
    shown = capsys.readouterr().out
    assert receipt.receipt_id in shown
    assert f"{SESSION}  2" in shown


@pytest.mark.parametrize(("turns", "memories"), [(1, 0), (0, 1), (0, 0)])
def test_a_preview_says_how_to_delete_what_it_counts(
    turns: int, memories: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: only turns counted, although memories expire, too; advice where nothing expires."""
    preview = ExpiryReport("2026-01-01T00:00:00.000000Z", 30, True, total_before=9, matched=turns, deleted=0)
    cleanup_expired._print_report(Cleanup.model_validate(replace(preview, memories_matched=memories)))
    assert ("add --apply to delete" in capsys.readouterr().out) == bool(turns + memories)


@pytest.mark.full("runs commands as processes of their own")
async def test_unreadable_times_are_named(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    async with open_maintenance(settings) as maintenance:
        store = maintenance.conversations.turns._store
        await write_point(store, uid(7), session_id=SESSION, timestamp="last spring")
    assert await clean_up(settings, "--apply") == 0
    assert uid(7) in capsys.readouterr().out
    assert await stored(settings) == 1


@pytest.mark.slow("runs a command as a process")
async def test_an_implausible_clock_is_reported_and_a_person_may_proceed(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: the check lost on the way to the command, or applied to a person's request."""
    await old_turns(settings, *[400.0] * 51)
    assert await clean_up(settings) == 0
    assert "The nightly run would do nothing" in capsys.readouterr().out
    assert await clean_up(settings, "--apply") == 0
    assert await stored(settings) == 0


async def test_the_plan_of_a_repair_is_shown_and_saved(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await old_turns(settings, 3, 2, 1)
    file = tmp_path / "plan.json"
    assert await repair(settings, "--save-plan", str(file)) == 0
    assert "Nothing was changed" in capsys.readouterr().out
    (session,) = json.loads(file.read_text(encoding="utf-8"))["sessions"]
    assert [change["parent_turn_id"] for change in session["changes"]] == [None, uid(0), uid(1)]


@pytest.mark.full("runs commands as processes of their own")
async def test_a_second_repair_has_nothing_to_do(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    await old_turns(settings, 2, 1)
    assert await repair(settings, "--apply") == 0
    assert "nothing to repair" not in capsys.readouterr().out
    assert await repair(settings, "--apply") == 0
    assert "nothing to repair" in capsys.readouterr().out


async def test_an_empty_store_is_fine_and_an_unknown_session_is_not(settings: Settings) -> None:
    async with open_maintenance(settings):
        pass
    assert await repair(settings) == 0
    assert await clean_up(settings, "--apply") == 0
    with pytest.raises(CommandError, match=SESSION) as failed:
        await repair(settings, "--session", SESSION)
    assert failed.value.exit_code == 1


@pytest.mark.full("runs commands as processes of their own")
async def test_a_running_server_carries_out_the_command(
    small_server: tuple[RunningServer, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    server, folder = small_server
    settings = make_settings(folder, server={"admin_api_keys": ("secret",)})
    assert await clean_up(settings, "--url", server.url, "--apply", "--json") == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["dry_run"] is False
    assert server.url in shown.err
    assert await repair(settings, "--url", server.url, "--apply") == 0
    assert "nothing to repair" in capsys.readouterr().out


@pytest.mark.full("runs commands as processes of their own")
async def test_a_server_expires_by_its_own_limit(
    small_server: tuple[RunningServer, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: the 30 days of the command's own environment, which delete what the server keeps for a
    year; a --days that needs no --yes because it is more than those."""
    server, folder = small_server
    at = ("--url", server.url)
    settings = make_settings(folder, server={"admin_api_keys": ("secret",)})
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 100 * DAY_US / 1e6))
    body = {"turns": [{"question": "q", "answer": "a", "timestamp": stamp}]}
    key = {"Authorization": "Bearer secret"}
    async with httpx.AsyncClient(base_url=server.url, headers=key) as client:
        (await client.post("/sessions/import", json=body)).raise_for_status()
    assert await clean_up(settings, *at, "--apply", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["deleted"], report["total_after"]) == (0, 1)
    with pytest.raises(CommandError, match="--days 60 is less than CONVERSATION_EXPIRE_DAYS = 365"):
        await clean_up(settings, *at, "--apply", "--days", "60")
    assert await clean_up(settings, *at, "--apply", "--days", "60", "--yes", "--json") == 0
    assert json.loads(capsys.readouterr().out)["deleted"] == 1


@pytest.mark.full("runs commands as processes of their own")
def test_the_doctor_names_the_servers_own_limit(small_server: tuple[RunningServer, Path]) -> None:
    """Discriminates: the next clean-up beside the 30 days of the shell only."""
    server, folder = small_server
    environment = {"DATA_DIR": str(folder), "EMBEDDING": HASHING, "WENMAI_KEY": "secret"}
    shown = command("wenmai", "doctor", "--url", server.url, **environment)
    assert "the server's turns older than 365 days are deleted" in shown.stdout


async def test_a_wrong_key_is_reported_in_the_servers_words(small_server: tuple[RunningServer, Path]) -> None:
    server, folder = small_server
    with pytest.raises(CommandError, match=r"401.*API key.*set ADMIN_API_KEYS here"):
        await clean_up(make_settings(folder, server={"admin_api_keys": ("wrong",)}), "--url", server.url)


async def test_a_locked_store_without_a_server_is_explained(small_server: tuple[RunningServer, Path]) -> None:
    """Discriminates: the local store cleaned up although a server was named."""
    with pytest.raises(CommandError, match="no server answers at"):
        await clean_up(make_settings(small_server[1]), "--url", "http://127.0.0.1:9")


async def test_a_reply_from_something_else_is_not_trusted(small_server: tuple[RunningServer, Path]) -> None:
    server = Server(small_server[0].url, "secret")
    with pytest.raises(CommandError, match=r"405|404"):
        async with open_client(server) as client:
            await client.send("POST", "/health/ready", ExpiryReport)


@pytest.mark.parametrize("server", [Server("http://127.0.0.1:9", "\udcff"), Server("http://127.0.0.1:9")])
async def test_what_cannot_be_sent_is_refused_in_one_line(server: Server) -> None:
    """Discriminates: a traceback of UnicodeEncodeError."""
    with pytest.raises(CommandError, match="cannot be sent") as raised:
        async with open_client(server) as client:
            await client.send("POST", "/admin/x", ExpiryReport, owner="\udcff")
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("status", "exit_code", "text"),
    [(409, 2, "busy"), (422, 2, "busy"), (503, 1, "busy"), (403, 2, "ADMIN_API_KEYS")],
)
def test_a_refusal_of_the_server_determines_the_exit_code(status: int, exit_code: int, text: str) -> None:
    error = refusal(httpx.Response(status, json={"error": {"message": "busy"}}))
    assert error.exit_code == exit_code
    assert re.search(text, str(error))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_a_long_wait_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    async with wait_shown(after_s=0.0):
        await until(lambda: "waiting for the server: 00:0" in terminal.getvalue())
    assert not terminal.getvalue().rpartition("\r")[2].strip(), "cleared"


def test_output_that_nobody_reads_ends_quietly() -> None:
    """Discriminates: `[Errno 32] Broken pipe` on standard error, immediately or when Python exits."""
    code = "import sys\nfrom scripts.commands.maintenance import run\n"
    code += "async def work(*_):\n    sys.stdin.read()\n    print('x' * int(sys.argv[1]))\n    return 0\n"
    code += "sys.exit(run(work, None))"
    for size in ("10", "1000000"):
        process = subprocess.Popen(
            [sys.executable, "-c", code, size], cwd=ROOT, env=clean_environment({}),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        process.stdin.close()
        errors = process.stderr.read()
        process.stderr.close()
        assert (process.wait(60), errors) == (EXIT_NO_READER, b"")


def test_terminal_control_characters_are_not_printed_raw(capsys: pytest.CaptureFixture[str]) -> None:
    async def refuse(settings: Settings, options: Options) -> int:
        raise CommandError("a\x1b[2Jb\nc 退款")

    assert run(refuse, Options()) == 1
    assert capsys.readouterr().err == "wenmai: a\\x1b[2Jb\nc 退款\n"


def test_days_that_are_not_a_number_are_reported_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    for days in ("abc", "0", "36501", "9" * 5_000):
        assert invoke(cleanup_expired.cleanup, ["--days", days]) == 2
        line = capsys.readouterr().err
        assert line.startswith("wenmai: Invalid value for '--days': ")
        assert (line.endswith(" See wenmai cleanup --help.\n"), line.count("\n")) == (True, 1)


@pytest.mark.parametrize(
    ("host", "url"), [("127.0.0.1", "http://127.0.0.1:8123"), ("::", "http://[::1]:8123")]
)
def test_the_address_comes_from_host_and_port(tmp_path: Path, host: str, url: str) -> None:
    settings = make_settings(tmp_path, server={"host": host, "port": 8123, "api_keys": ("one", "two")})
    assert server_of(settings, None) == Server(url, "one")
    assert server_of(settings, "http://elsewhere") == Server("http://elsewhere", "one")


def test_the_key_is_the_named_one_then_the_administrators_or_the_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: the first key in API_KEYS taken for that of whoever runs the command."""

    def key(*, as_admin: bool, **keys: tuple[str, ...]) -> str:
        return server_of(make_settings(tmp_path, server=keys), None, as_admin=as_admin).api_key

    one, two, admins = ("one",), ("one", "two"), ("root", "other")
    assert key(as_admin=True, api_keys=two, admin_api_keys=admins) == "root"
    assert key(as_admin=False, api_keys=one, admin_api_keys=admins) == "one"
    assert key(as_admin=False, api_keys=("one", "one")) == "one"
    assert key(as_admin=False, admin_api_keys=("root",)) == "root"
    assert key(as_admin=False) == ""
    for keys in ({"api_keys": two}, {"api_keys": two, "admin_api_keys": admins}, {"admin_api_keys": admins}):
        with pytest.raises(CommandError, match="has 2 keys: set WENMAI_KEY to one of them"):
            key(as_admin=False, **keys)
    monkeypatch.setenv("WENMAI_KEY", " mine ")
    for as_admin in (True, False):
        assert key(as_admin=as_admin, api_keys=two, admin_api_keys=admins) == "mine"
