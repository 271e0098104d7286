"""Which store a command acts on: the one here, a running server's, or none; and what it must leave alone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api.wiring.assembly import open_maintenance
from config.settings import load_settings
from scripts import wenmai
from services.store.durable import holder_of, store_id
from tests.support.servers.app import HASHING, make_settings, open_app
from tests.support.servers.server import RunningServer, running_server

CLOSED = "http://127.0.0.1:9"
DRY = {
    "cleanup": ["cleanup"],
    "repair": ["repair"],
    "erase": ["erase", "--owner", "nobody"],
    "backup": ["backup"],
    "sync": ["sync"],
    "reembed": ["reembed"],
}
ALL = pytest.mark.parametrize("name", DRY)
BY_SERVER = {
    "ask": ["ask", "Hello?"],
    "search": ["search", "Hello?"],
    "sessions": ["sessions"],
    "prompt": ["prompt", "0b0e8a52-6f1c-4d1e-9a43-5a1c6d1f7e21"],
    "ingest": ["ingest", __file__],
    "calibrate": ["calibrate", "--show"],
}
"""Commands that ask a server, and open no store."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, Path]]:
    """A running server with one turn, and its data folder."""
    folder = tmp_path_factory.mktemp("served")
    with running_server(folder, EMBEDDING=HASHING, LOAD_SAMPLE="false") as server:
        question = {"question": "Hello?", "stream": False}
        httpx.post(f"{server.url}/knowledge_chat_conversation", json=question).raise_for_status()
        yield server, folder


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that nobody has open, with one turn."""
    folder = tmp_path_factory.mktemp("here")

    async def fill() -> None:
        async with open_app(make_settings(folder)) as app:
            await app.ask("Hello?")

    asyncio.run(fill())
    return folder


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    (tmp_path / "followed").mkdir()
    config = tmp_path / "wenmai.toml"
    config.write_text(f'[sources.docs]\nfolder = "{tmp_path / "followed"}"\n', encoding="utf-8")
    monkeypatch.setenv("WENMAI_CONFIG", str(config))
    monkeypatch.setenv("EMBEDDING", HASHING)
    monkeypatch.setenv("BACKUP_DIR", str(tmp_path / "backups"))
    monkeypatch.chdir(tmp_path)
    return monkeypatch


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Each with its size and when it was changed."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


@ALL
def test_without_a_server_the_store_here_is_shown_and_read(
    name: str, here: Path, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.setenv("DATA_DIR", str(here))
    assert wenmai.main(DRY[name]) == 0
    assert f"Store {here / 'store'}: 1 turns, 0 documents" in capsys.readouterr().err


@ALL
def test_a_server_that_has_it_open_is_found_by_the_lock_and_asked(
    name: str,
    served: tuple[RunningServer, Path],
    environment: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Discriminates: PORT of the environment, at which another server may listen."""
    server, folder = served
    environment.setenv("DATA_DIR", str(folder))
    environment.setenv("PORT", "9")
    code = 1 if name == "sync" else 0  # the server was started before wenmai.toml named the folder
    assert wenmai.main(DRY[name]) == code
    printed = capsys.readouterr()
    assert f"Store {server.url} ({store_id(folder / 'store')}): " in printed.err
    assert ("the server does not follow docs yet: restart it" in printed.err) == (name == "sync")
    assert holder_of(folder / "store").url == server.url


@ALL
def test_a_server_that_is_named_is_asked_and_the_store_here_left_alone(
    name: str,
    served: tuple[RunningServer, Path],
    here: Path,
    environment: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Discriminates: a command that opens the store of DATA_DIR first, or looks for folders named here."""
    environment.setenv("DATA_DIR", str(here))
    (here.parent / "no-sources.toml").touch()
    environment.setenv("WENMAI_CONFIG", str(here.parent / "no-sources.toml"))
    before = files(here)
    assert wenmai.main([*DRY[name], "--url", served[0].url]) == 0
    assert f"Store {served[0].url} (" in capsys.readouterr().err
    assert wenmai.main([*DRY[name], "--url", CLOSED]) == 1
    assert f"no server answers at {CLOSED}" in capsys.readouterr().err
    assert files(here) == before


@ALL
def test_where_there_is_no_store_none_is_made(
    name: str, environment: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (tmp_path / "none", None):
        if folder:
            environment.setenv("DATA_DIR", str(folder))
        else:
            environment.delenv("DATA_DIR")
        before = sorted(tmp_path.rglob("*"))
        assert wenmai.main(DRY[name]) == 2
        assert "wenmai: there is no store in" in capsys.readouterr().err
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", BY_SERVER)
def test_a_command_that_asks_a_server_asks_the_one_that_has_the_store_open(
    name: str,
    served: tuple[RunningServer, Path],
    environment: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Discriminates: the address of HOST and PORT, at which another server may listen."""
    server, folder = served
    environment.setenv("DATA_DIR", str(folder))
    environment.setenv("PORT", "9")
    code = 1 if name == "prompt" else 0  # there is no such turn
    assert wenmai.main(BY_SERVER[name]) == code
    assert f"Store {server.url} ({store_id(folder / 'store')}): " in capsys.readouterr().err
    environment.setenv("DATA_DIR", str(tmp_path / "none"))
    assert wenmai.main([*BY_SERVER[name], "--url", server.url]) == code
    assert f"Store {server.url} (" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", [*DRY, *BY_SERVER])
def test_an_address_without_its_protocol_is_refused(
    name: str, here: Path, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.setenv("DATA_DIR", str(here))
    assert wenmai.main([*(DRY | BY_SERVER)[name], "--url", "127.0.0.1:8000"]) == 2
    line = "wenmai: --url 127.0.0.1:8000 is refused: an address is like http://127.0.0.1:8000\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize("name", BY_SERVER)
def test_where_no_server_answers_such_a_command_says_how_to_start_one_and_touches_nothing(
    name: str,
    here: Path,
    environment: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    environment.setenv("PORT", "9")
    before = files(here)
    for folder, more in ((here, []), (here, ["--url", CLOSED]), (tmp_path / "none", [])):
        environment.setenv("DATA_DIR", str(folder))
        assert wenmai.main([*BY_SERVER[name], *more]) == 1
        shown = capsys.readouterr()
        assert shown.out == ""
        assert f"no server answers at {CLOSED}" in shown.err
        assert "wenmai serve" in shown.err
    assert files(here) == before
    assert not (tmp_path / "none").exists()


def test_doctor_restore_and_migrate_make_no_store_either(
    here: Path, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Discriminates: a dry run that leaves a folder behind."""
    environment.setenv("DATA_DIR", str(here))
    assert wenmai.main(["backup"]) == 0
    (archive,) = (tmp_path / "backups").iterdir()
    environment.setenv("DATA_DIR", str(tmp_path / "none"))
    before = sorted(tmp_path.rglob("*"))
    wenmai.main(["doctor", "--url", CLOSED])
    assert wenmai.main(["restore", str(archive)]) == 0
    assert wenmai.main(["migrate", "--from", str(here), "--to", str(tmp_path / "none")]) == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_of_two_commands_at_once_the_second_says_who_has_the_store(
    here: Path, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: a lock without its process; a wait without an end."""
    environment.setenv("DATA_DIR", str(here))

    async def meanwhile() -> int:
        async with open_maintenance(load_settings()):
            return await asyncio.to_thread(wenmai.main, ["cleanup"])

    assert asyncio.run(meanwhile()) == 1
    assert str(os.getpid()) in capsys.readouterr().err


def test_a_lock_that_names_another_servers_address_is_not_believed(
    served: tuple[RunningServer, Path],
    environment: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Discriminates: an erasure proved in the wrong store, after a port was taken over."""
    from services.store.durable import Holder, locked, write_holder

    folder = tmp_path / "data" / "store"
    folder.mkdir(parents=True)
    environment.setenv("DATA_DIR", str(folder.parent))
    with locked(folder / "lock"), (folder / "lock").open("r+b") as lock:
        write_holder(lock.fileno(), Holder(1, 1, "now", served[0].url))
        (folder / "id").write_text("mine")
        assert wenmai.main(["erase", "--owner", "nobody", "--apply", "--yes"]) == 1
    assert "another store" in capsys.readouterr().err


async def test_of_nothing_there_is_no_proof_and_no_backup(tmp_path: Path) -> None:
    """Discriminates: a proof that looked into an empty store; an archive of the wrong one."""
    async with open_app(make_settings(tmp_path / "data")):
        pass
    for arguments in (["erase", "--owner", "nobody", "--apply", "--yes"], ["backup"]):
        assert await asyncio.to_thread(_in, tmp_path / "data", arguments) == 2
    assert not (tmp_path / "backups").exists()
    assert await asyncio.to_thread(_in, tmp_path / "data", ["backup", "--allow-empty"]) == 0


def _in(folder: Path, arguments: list[str]) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATA_DIR", str(folder))
        return wenmai.main(arguments)
