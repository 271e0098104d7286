"""The doctor: one line per check, exit codes, no secrets, no texts, and bounded time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import httpx
import pytest
from qdrant_client import models

from api.wiring.parts import check_schedule as refuse_schedule
from config.settings import ModelSettings, StoreSettings, load_settings
from config.tables import LLMSettings, SourceSettings
from core.operations.reports import Finding, Level, answered
from core.owners import owner_of
from scripts.commands import doctor
from scripts.commands.maintenance import invoke
from services.operations.doctor.machine import (
    DAY_S,
    PROJECT_FILE,
    check_backups,
    check_clock,
    check_data_dir,
    check_disk,
    check_files,
    check_libraries,
    check_old_stores,
    check_schedule,
    check_sources,
    pinned_libraries,
)
from services.operations.doctor.store import BUNDLED_NAME, StoreFindings, check_store, embedding_name
from services.operations.schedule.lease import LeaseRecord, LeaseStore
from services.store.clock import utc_now_us
from services.store.dialect import VectorStore
from tests.support.models.hashing_embedding import DIMENSION
from tests.support.servers.app import HASHING, make_settings, open_app
from tests.support.servers.server import running_server
from tests.support.waiting import wait_until

QUICK = {"EMBEDDING": HASHING, "LOAD_SAMPLE": "false"}
SECRET = "sk-planted-secret-0123456789"
PLANTED = "planted question about the quarterly numbers"
NOW_S = 1_800_000_000.0
ERASED = "00000000-0000-4000-8000-00000000beef"
UNKNOWN = "00000000-0000-4000-8000-00000000dead"


@dataclass(frozen=True)
class Output:
    returncode: int
    stdout: str
    stderr: str


class Run(Protocol):
    def __call__(self, *arguments: str, **environment: str) -> Output: ...


@pytest.fixture
def run_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process, with `tmp_path` as its data folder."""

    def run(*arguments: str, **environment: str) -> Output:
        values = {"WENMAI_CONFIG": "", "DATA_DIR": str(tmp_path), **QUICK, **environment}
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        capsys.readouterr()
        return Output(invoke(doctor.doctor, arguments), *capsys.readouterr())

    return run


def levels(findings: list[Finding]) -> dict[str, Level]:
    return {finding.name: finding.level for finding in findings}


def test_a_model_that_takes_long_is_a_warning_in_seconds() -> None:
    assert answered("model", 9_999).level is Level.OK
    slow = answered("model", 12_000)
    assert (slow.level, "answered in 12 s" in str(slow)) == (Level.WARN, True)


def test_on_an_empty_folder_every_check_has_one_line_and_the_exit_code_is_0(
    tmp_path: Path, run_doctor: Run
) -> None:
    shown = run_doctor()
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert all(line.split()[0] in ("ok", "warn", "fail") for line in lines)
    for name in ("python", "libraries", "configuration", "data folder", "disk", "backups", "clock", "store"):
        assert sum(line[6:].startswith(name) for line in lines) == 1
    assert not (tmp_path / "store").exists()


def test_a_refused_configuration_is_the_only_line_and_exits_with_2(run_doctor: Run) -> None:
    shown = run_doctor(MAX_RECENT_TURNS="-1")
    assert shown.returncode == 2
    assert shown.stdout.splitlines() == [line for line in shown.stdout.splitlines() if "fail" in line]
    assert "MAX_RECENT_TURNS" in shown.stdout
    as_json = json.loads(run_doctor("--json", HOST="0.0.0.0", MAX_RECENT_TURNS="5").stdout)
    assert [each["level"] for each in as_json] == ["fail"]
    assert "API_KEYS" in as_json[0]["sentence"]


def test_unused_settings_are_named_with_what_to_do(run_doctor: Run) -> None:
    """Discriminates: a removed setting, or a table, that only the server's log names."""
    shown = run_doctor("--fast", MAX_PERSONA_CHARS="7", LLMS="x")
    assert shown.returncode == 0
    named = [line for line in shown.stdout.splitlines() if line.startswith("warn  configuration")]
    assert [line.split()[2] for line in named] == ["MAX_PERSONA_CHARS", "LLMS"]
    assert "a persona has at most 15 % of the model's window" in named[0]
    assert "wenmai.toml" in named[1]


async def plant(data: Path) -> str:
    """Store texts that must not be shown, in a store with faults to report. Returns the id of a session."""
    async with open_app(make_settings(data)) as app:
        streamed = await app.ask(PLANTED)
        await app.add_text("planted.md", PLANTED)
        store = app.container.store
        broken = {"user_query": PLANTED, "session_id": UNKNOWN, "parent_turn_id": ERASED, "created_us": "no"}
        await store.upsert("conversations", [models.PointStruct(id=UNKNOWN, vector={}, payload=broken)])
        chunk = {"document_id": UNKNOWN, "text": PLANTED}
        await store.upsert("knowledge", [models.PointStruct(id=UNKNOWN, vector={}, payload=chunk)])
    return streamed.session_id


@pytest.mark.full("runs commands as processes of their own")
def test_neither_a_key_nor_a_text_is_ever_printed(tmp_path: Path, run_doctor: Run) -> None:
    """Discriminates: printing a base URL with its user; printing a stored title or question."""
    session_id = asyncio.run(plant(tmp_path))
    environment = {
        "API_KEYS": SECRET,
        "ADMIN_API_KEYS": SECRET,
        "OPENAI_API_KEY": SECRET,
        "OPENAI_BASE_URL": f"http://user:{SECRET}@127.0.0.1:9/v1?key={SECRET}",
        "QDRANT_API_KEY": SECRET,
    }
    for more in ([], ["--json"]):
        shown = run_doctor(*more, **environment)
        assert shown.returncode == 1
        output = shown.stdout + shown.stderr
        assert SECRET not in output
        assert "planted" not in output
        assert session_id not in output
    for part in ("1 session with turns and no record", "without a readable time", "whose parent was"):
        assert part in shown.stdout
    assert "1 chunk without a document" in shown.stdout
    assert "127.0.0.1:9 cannot be reached" in shown.stdout


@pytest.mark.full("runs commands as processes of their own")
def test_a_running_server_is_asked_what_is_stored(tmp_path: Path, run_doctor: Run) -> None:
    """Discriminates: asking the server at PORT, which may be another; with `--url`, inspecting the local
    store."""
    with running_server(tmp_path, **QUICK) as server:
        shown = run_doctor(PORT="9")
        named = run_doctor("--url", server.url, DATA_DIR=str(tmp_path / "none"), EMBEDDING="openai")
        elsewhere = run_doctor("--url", "http://127.0.0.1:9")
    for each in (shown, named):
        assert each.returncode == 0
        assert each.stderr.startswith(f"Store {server.url} (")
        assert f"ready at {server.url}" in each.stdout
        assert "in use by the server: turns 0" in each.stdout
        assert "the next clean-up is at" in each.stdout
        assert "embedding      answered in" in each.stdout
    assert "data folder" in shown.stdout
    assert "as set here, turns older than 30 days" in shown.stdout  # the server may have other settings
    assert "data folder" not in named.stdout
    (line,) = elsewhere.stdout.splitlines()
    assert line.startswith("fail  server         no server answers at http://127.0.0.1:9")
    assert elsewhere.returncode == 1


@pytest.mark.full("runs commands as processes of their own")
def test_a_refused_clean_up_is_a_warning(tmp_path: Path, run_doctor: Run) -> None:
    """Discriminates: "ok", although nothing is cleaned up any more."""

    async def refuse() -> None:
        async with open_app(make_settings(tmp_path)) as app:
            record = LeaseRecord("t", last_slot=utc_now_us(), last_error="The clock was put forward.")
            await LeaseStore(app.container.store, "operations").make(record)

    asyncio.run(refuse())
    with running_server(tmp_path, **QUICK) as server:
        wait_until(lambda: httpx.get(f"{server.url}/admin/schedule").json()["last_error"] is not None)
        shown = run_doctor()
    assert (
        "\nwarn  schedule       the last clean-up failed: The clock was put forward. The next" in shown.stdout
    )


@pytest.mark.full("runs commands as processes of their own")
def test_the_warnings_of_a_running_server_are_shown(tmp_path: Path, run_doctor: Run) -> None:
    """Discriminates: a store that lost a part, and a disk that is nearly full, hidden behind "ready"."""
    with running_server(tmp_path, LOW_DISK_MB="1000000", **QUICK) as server:
        low = run_doctor()
        assert low.returncode == 0
        assert (
            f"\nwarn  server         degraded at {server.url}: disk: The disk of the data folder"
            in low.stdout
        )
    (tmp_path / "store" / "sessions" / "closed.json").write_text("[")
    with running_server(tmp_path, **QUICK) as server:
        lost = run_doctor()
    assert lost.returncode == 1
    assert (
        f"\nfail  server         degraded at {server.url}: store: Part of what was stored is lost"
        in lost.stdout
    )
    assert "ready at" not in lost.stdout


def test_models_on_this_machine_are_searched_for(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    here = ModelSettings(embedding=f"sentence-transformers:{tmp_path / 'model'}")
    deleted = ModelSettings(embedding=f"sentence-transformers:{tmp_path / 'gone'}")
    gguf = {"local": LLMSettings(provider="gguf", model=str(tmp_path / "gone.gguf"))}
    assert [each.level for each in check_files(here, {})] == [Level.OK]
    assert [each.level for each in check_files(deleted, gguf)] == [Level.FAIL, Level.FAIL]


def test_libraries_are_compared_with_the_tested_versions() -> None:
    assert PROJECT_FILE.is_file()  # discriminates: a path that left the project with the module
    assert check_libraries(pinned_libraries()).level is Level.OK
    assert check_libraries(["qdrant-edge-py==0.0.1"]).level is Level.WARN
    assert check_libraries(["no-such-library==1"]).level is Level.FAIL
    assert check_libraries(["no-such-library==1; sys_platform == 'win32'"]).level is Level.OK


def test_the_data_folder_the_disk_backups_and_old_stores_are_judged(tmp_path: Path) -> None:
    store = StoreSettings(data_dir=tmp_path / "data")
    assert check_data_dir(store).level is Level.OK
    assert check_backups(store, NOW_S).level is Level.WARN
    assert check_old_stores(tmp_path / "data" / "store") is None
    (tmp_path / "data").mkdir(mode=0o700)
    assert check_data_dir(store).level is Level.OK
    store.data_dir.chmod(0o755)
    assert check_data_dir(store).level is Level.WARN
    (tmp_path / "data" / "store.before-20260101T000000000Z").mkdir()
    old = check_old_stores(tmp_path / "data" / "store")
    assert old is not None
    assert old.level is Level.WARN
    store.backups.mkdir()
    (store.backups / "a.tar").touch()
    written_s = (store.backups / "a.tar").stat().st_mtime
    assert check_backups(store, written_s + DAY_S).level is Level.OK
    assert check_backups(store, written_s + 9 * DAY_S).level is Level.WARN
    assert check_disk(store).level is Level.OK
    assert check_disk(StoreSettings(data_dir=tmp_path, low_disk_mb=1_000_000)).level is Level.WARN
    (tmp_path / "file").touch()
    assert check_data_dir(StoreSettings(data_dir=tmp_path / "file")).level is Level.FAIL


def test_an_implausible_clock_and_an_unknown_zone_are_reported() -> None:
    assert check_clock(NOW_S, None).level is Level.OK
    assert check_clock(NOW_S, int((NOW_S - 5) * 1e6)).level is Level.OK
    assert check_clock(NOW_S, int((NOW_S + 3_600) * 1e6)).level is Level.WARN
    assert check_clock(86_400.0, None).level is Level.FAIL
    settings = load_settings(conversation={"timezone": "Mars/Olympus"})
    assert check_schedule(settings.conversation, refuse_schedule).level is Level.FAIL


def test_a_schedule_is_judged_as_at_a_start() -> None:
    """Discriminates: a doctor that only checks the time zone."""
    for cron, level in (("nonsense", Level.FAIL), ("0 3 31 2 *", Level.FAIL), ("0 3 * * 0", Level.OK)):
        settings = load_settings(conversation={"cleanup_cron": cron})
        findings = check_schedule(settings.conversation, refuse_schedule)
        assert findings.level is level
        assert cron in findings.sentence


def test_unusable_folders_are_named(tmp_path: Path, run_doctor: Run) -> None:
    """Discriminates: checking only permissions, of which root has all; a backup folder that is only searched
    for."""
    (tmp_path / "file").touch()
    shown = run_doctor("--fast", BACKUP_DIR=str(tmp_path / "file"))
    assert shown.returncode == 1
    assert f"fail  backups        BACKUP_DIR {tmp_path / 'file'} cannot be used" in shown.stdout
    for place in ("/proc/y", str(tmp_path / "file" / "below")):
        store = StoreSettings(data_dir=Path(place))
        findings = check_data_dir(store)
        assert (findings.level, place in findings.sentence) == (Level.FAIL, True)
        assert (
            check_backups(StoreSettings(data_dir=tmp_path, backup_dir=Path(place)), NOW_S).level is Level.FAIL
        )
    assert check_backups(StoreSettings(data_dir=tmp_path), NOW_S).level is Level.WARN
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.full("runs commands as processes of their own")
async def test_a_sound_store_is_ok_and_another_embedding_is_not(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path)) as app:
        await app.ask("How many days?")
        await app.client.post("/sessions", json={})
        await app.add_text("leave.md", "Five days of leave.")
        await app.ask("/help")
        await app.container.conversations.index_missing()
        names, store = app.container.settings.store, app.container.store
        findings = await check_store(store, names, ModelSettings(embedding=HASHING))
        assert {finding.level for finding in findings.findings} == {Level.OK}, findings.findings
        assert findings.newest_turn_us is not None
        other = await check_store(store, names, ModelSettings())
        assert levels(other.findings)["embedding"] is Level.FAIL
        await store.delete_collection("documents")
        await store.delete_collection("sessions")
        assert (await check_store(store, names, ModelSettings(embedding=HASHING))).findings


async def test_the_remains_of_a_crash_are_reported_with_the_command_that_repairs_them(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path)) as app:
        names, store = app.container.settings.store, app.container.store
        base = {"session_id": UNKNOWN, "user_query": "q", "created_us": 5, "status": "completed"}
        await store.upsert(
            "conversations",
            [
                models.PointStruct(id=1, vector={}, payload=base),
                models.PointStruct(id=2, vector={}, payload={**base, "status": "running"}),
                models.PointStruct(
                    id=3, vector={"question": [1.0] * DIMENSION, "turn": [1.0] * DIMENSION}, payload=base
                ),
            ],
        )
        await store.upsert(
            "documents", [models.PointStruct(id=1, vector={}, payload={"status": "ingesting"})]
        )
        findings = await check_store(store, names, ModelSettings(embedding=HASHING))
    output = {finding.name: finding for finding in findings.findings}
    assert output["vectors"].sentence.startswith("1 turn without")
    assert output["running"].sentence.startswith("1 turn cut")
    assert output["documents"].level is Level.WARN
    assert "the next start continues" in output["documents"].sentence
    assert "wenmai repair" in output["sessions"].sentence


class _CancelledAtTurns:
    """A store whose caller's time is over when turns are read."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def scroll(self, *_: Any, **__: Any) -> Any:
        raise asyncio.CancelledError


async def test_findings_made_within_the_time_limit_are_kept(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path)) as app:
        names, kept = app.container.settings.store, StoreFindings()
        store = cast(VectorStore, _CancelledAtTurns(app.container.store))
        with pytest.raises(asyncio.CancelledError):
            await check_store(store, names, ModelSettings(embedding=HASHING), kept)
    assert {"store", "damage", "size", "embedding"} <= {finding.name for finding in kept.findings}


def test_the_embeddings_name_is_shown_without_loading_it() -> None:
    from services.adapters.e5.embedding import NAME

    assert NAME == BUNDLED_NAME
    for embedding, name in (
        ("bundled", NAME),
        ("sentence-transformers:BAAI/bge-m3", "bge-m3"),
        ("openai", "text-embedding-3-small"),
        (HASHING, HASHING.partition(":")[2]),
    ):
        assert embedding_name(ModelSettings(embedding=embedding)) == name


def test_fast_does_not_inspect_the_store(tmp_path: Path, run_doctor: Run) -> None:
    (tmp_path / "store").mkdir()
    assert "skipped" in run_doctor("--fast").stdout


def test_synced_folders_are_checked(tmp_path: Path) -> None:
    """Discriminates: only a warning about a missing folder."""
    for name in ("full", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "a.md").write_text("text")
    sources = {name: SourceSettings(folder=tmp_path / name) for name in ("full", "empty", "missing")}
    levels = [finding.level for finding in check_sources(sources, keys=())]
    assert levels == [Level.OK, Level.WARN, Level.FAIL]


def test_a_synced_folder_that_nobody_can_read_causes_a_warning(tmp_path: Path) -> None:
    """Discriminates: "ok" for an owner written by hand, or of a key that has changed."""
    (tmp_path / "a.md").write_text("text")
    owners = ("anna", owner_of("k-old"), owner_of("k-one"), None)
    sources = {str(owner): SourceSettings(folder=tmp_path, owner=owner) for owner in owners}
    findings = list(check_sources(sources, keys=("k-one", "k-two")))
    assert [finding.level for finding in findings] == [Level.WARN, Level.WARN, Level.OK, Level.OK]
    assert "sha256sum" in findings[0].sentence


def test_a_sync_schedule_is_judged_as_at_a_start() -> None:
    """Discriminates: CLEANUP_CRON named instead of SYNC_CRON."""
    settings = load_settings(conversation={"cleanup_cron": "0 3 * * 0"})
    findings = check_schedule(settings.conversation, refuse_schedule, sync_cron="every minute")
    assert findings.level is Level.FAIL
    assert "SYNC_CRON" in findings.sentence
