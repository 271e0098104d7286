"""Which store a command acts on: the one here, a running server's, or none; and what it must leave alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

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
    assert wenmai.main(DRY[name]) == 0
    assert f"Store {server.url} ({store_id(folder / 'store')}): 1 turns" in capsys.readouterr().err
    assert holder_of(folder / "store").url == server.url


@ALL
def test_a_server_that_is_named_is_asked_and_the_store_here_left_alone(
    name: str,
    served: tuple[RunningServer, Path],
    here: Path,
    environment: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Discriminates: a command that opens the store of DATA_DIR first."""
    environment.setenv("DATA_DIR", str(here))
    before = files(here)
    wenmai.main([*DRY[name], "--url", served[0].url])
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
