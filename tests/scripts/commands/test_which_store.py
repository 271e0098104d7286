"""Which store a command acts on: the local one, a running server's, or none; and what it must leave alone."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from api.wiring.assembly import open_maintenance
from api.wiring.parts import open_store
from config.settings import load_settings
from scripts import wenmai
from services.store.collections import collection_specs
from services.store.dialect import Record
from services.store.durable import store_id
from services.store.points import scroll_all
from tests.support.servers.app import HASHING, make_settings, open_app
from tests.support.servers.server import RunningServer, running_server
from tests.support.stores.copies import copied
from tests.support.wire.exports import chatgpt

CLOSED = "http://127.0.0.1:9"
ANOTHER = "no server answers at http://127.0.0.1:9"
UNKNOWN = "0b0e8a52-6f1c-4d1e-9a43-5a1c6d1f7e21"
MINE = "6c1d7f0a-93be-4a57-8a52-2e9b1f3c4d5e"
STORES = ("here", "served", "named")


@dataclass(frozen=True)
class Case:
    """A command line, and its kind: "dry" opens the store or asks the server that has it, "asks" needs a
    server, "looks" has output even without a store, "elsewhere" names its stores itself. `writes`: it changes
    the store that it acts on, and no other; `exit_code`: if there is a store."""

    words: tuple[str, ...]
    kind: str
    writes: bool = False
    exit_code: int = 0


CASES = {
    "cleanup": Case(("cleanup",), "dry"),
    "repair": Case(("repair",), "dry"),
    "erase": Case(("erase", "--owner", "local"), "dry"),
    "backup": Case(("backup",), "dry", writes=True),
    "sync": Case(("sync",), "dry", writes=True),
    "reembed": Case(("reembed",), "dry"),
    "ask": Case(("ask", "Hello?"), "asks", writes=True),
    "search": Case(("search", "Hello?"), "asks"),
    "sessions": Case(("sessions",), "asks"),
    "prompt": Case(("prompt", UNKNOWN), "asks", exit_code=2),
    "ingest": Case(("ingest", __file__), "asks", writes=True),
    "import": Case(("import", "TALK", "--apply"), "asks", writes=True),
    "mcp": Case(("mcp",), "asks"),
    "calibrate": Case(("calibrate", "--show"), "asks"),
    "doctor": Case(("doctor",), "looks"),
    "restore": Case(("restore", "ARCHIVE"), "elsewhere"),
    "migrate": Case(("migrate", "--from", "HERE", "--to", "new"), "elsewhere"),
    "version": Case(("version",), "elsewhere"),
}
OF_THEIR_OWN = {"serve", "evaluate"}
"""The one makes stores and has tests of its own; the other measures in one that it throws away."""
SITUATIONS = ("here", "served", "named", "closed", "none", "unset")


@dataclass(frozen=True)
class World:
    """A store that nobody has open, two servers with their own stores, and an archive; all have the same
    sessions, of which each store can lose one."""

    here: Path
    served: tuple[RunningServer, Path]
    named: tuple[RunningServer, Path]
    archive: Path
    talk: Path
    """An export of another product, of one conversation."""
    sessions: dict[str, str]
    clients: dict[str, httpx.Client]
    """Of both servers, by the names of their stores."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("stores")

    async def fill() -> dict[str, str]:
        async with open_app(make_settings(folder / "here")) as app:
            return {name: (await app.ask(f"Hello {name}?")).session_id for name in STORES}

    sessions = asyncio.run(fill())
    for name in ("served", "named"):
        copied(folder / "here", folder / name)
    environment = {"EMBEDDING": HASHING, "LOAD_SAMPLE": "false"}
    with (
        running_server(folder / "served", **environment) as served,
        running_server(folder / "named", **environment) as named,
        httpx.Client(base_url=served.url, timeout=60) as of_served,
        httpx.Client(base_url=named.url, timeout=60) as of_named,
        pytest.MonkeyPatch.context() as patch,
    ):
        for variable, value in {**environment, "WENMAI_CONFIG": "", "DATA_DIR": f"{folder}/here"}.items():
            patch.setenv(variable, value)
        archive = folder / "all.wenmai.zip"
        assert wenmai.main(["backup", "--to", str(archive)]) == 0
        servers = (served, folder / "served"), (named, folder / "named")
        talk = folder / "talk.json"
        talk.write_text(json.dumps(chatgpt()), encoding="utf-8")
        yield World(
            folder / "here", *servers, archive, talk, sessions, {"served": of_served, "named": of_named}
        )


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    (tmp_path / "followed").mkdir()
    config = tmp_path / "wenmai.toml"
    config.write_text(f'[sources.docs]\nfolder = "{tmp_path / "followed"}"\n', encoding="utf-8")
    monkeypatch.setenv("WENMAI_CONFIG", str(config))
    monkeypatch.setenv("EMBEDDING", HASHING)
    monkeypatch.setenv("BACKUP_DIR", str(tmp_path / "backups"))
    monkeypatch.setenv("PORT", "9")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))  # an agent with closed input
    monkeypatch.chdir(tmp_path)
    return monkeypatch


def sorted_vectors(record: Record) -> list[tuple[str, object]]:
    return sorted(record.vector.items()) if isinstance(record.vector, dict) else []


def points(data_dir: Path) -> dict[str, list[str]]:
    """Every point of a store that nobody has open."""

    async def read() -> dict[str, list[str]]:
        settings = make_settings(data_dir).store
        async with open_store(settings) as store:
            return {
                spec.name: [
                    repr((each.id, each.payload, sorted_vectors(each)))
                    async for each in scroll_all(store, spec.name, with_vectors=True)
                ]
                for spec in collection_specs(settings)
            }

    return asyncio.run(read())


SHOWN = (
    "sessions",
    "documents",
    "admin/receipts",
    "admin/sync",
    "admin/reembed",
    "admin/calibration",
    "admin/backups",
)


def contents(client: httpx.Client) -> dict[str, object]:
    """What a server has stored, as far as it shows it; its files change on their own."""
    shown = {path: client.get(path).raise_for_status().json() for path in SHOWN}
    return {**shown, "stored": client.get("/admin/stats").json()["stored"]}


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Each file with its size and modification time."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


def placed(words: Sequence[str], world: World) -> list[str]:
    known = {"ARCHIVE": str(world.archive), "HERE": str(world.here), "TALK": str(world.talk)}
    return [known.get(word, word) for word in words]


def words_of(name: str, situation: str, world: World) -> list[str]:
    words = placed(CASES[name].words, world)
    url = {"named": world.named[0].url, "closed": CLOSED}.get(situation)
    return [*words, "--url", url] if url else words


def outcome(name: str, situation: str, world: World) -> tuple[int, str]:
    """Return the exit code, and the output."""
    case = CASES[name]
    stores = {
        "here": f"Store {world.here / 'store'}",
        "served": f"Store {world.served[0].url} ({store_id(world.served[1] / 'store')}): ",
        "named": f"Store {world.named[0].url} ({store_id(world.named[1] / 'store')}): ",
    }
    if case.kind == "elsewhere":
        return (2, "No such option") if situation in ("named", "closed") else (0, "")
    if situation == "closed" or (case.kind == "asks" and situation not in ("served", "named")):
        return 1, ANOTHER
    if situation in stores:
        # the server was started before wenmai.toml named the folder
        late = (name, situation) == ("sync", "served")
        return (1 if late else case.exit_code), stores[situation]
    return (0, "nothing is stored yet") if case.kind == "looks" else (2, "wenmai: there is no store in")


OFTEN = 6  # one cell in six is in the quick half: each command in one situation
MATRIX = [
    pytest.param(
        name,
        situation,
        marks=[]
        if (row + column) % OFTEN == 0
        else pytest.mark.full("compares three stores before and after, a second a cell"),
    )
    for row, name in enumerate(CASES)
    for column, situation in enumerate(SITUATIONS)
]


def test_every_command_is_in_the_matrix() -> None:
    """Discriminates: a command added later that asks or opens arbitrary stores."""
    assert CASES.keys() | OF_THEIR_OWN == wenmai.COMMANDS.keys()


@pytest.mark.parametrize(("name", "situation"), MATRIX)
def test_a_command_acts_on_the_intended_store_and_touches_no_other(
    name: str,
    situation: str,
    world: World,
    environment: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Discriminates: PORT of the environment, at which another server may listen; a command that opens the
    store of DATA_DIR first, or checks folders named here; a dry run that leaves a file."""
    data = {"served": world.served[1], "none": tmp_path / "none"}.get(situation, world.here)
    environment.setenv("DATA_DIR", str(data))
    if situation == "unset":
        environment.delenv("DATA_DIR")
    if situation == "named":  # the synced sources are those of the server
        environment.setenv("WENMAI_CONFIG", "")
    exit_code, words = outcome(name, situation, world)
    opened = (situation == "here" and CASES[name].kind in ("dry", "looks")) or name == "migrate"
    before = {place: contents(client) for place, client in world.clients.items()}
    untouched = points(world.here) if opened else files(world.here)
    around = sorted(tmp_path.rglob("*"))

    assert wenmai.main(words_of(name, situation, world)) == exit_code
    printed = capsys.readouterr()
    assert words in printed.err + printed.out
    writes = CASES[name].writes and exit_code in (0, 1)
    after = {place: contents(client) for place, client in world.clients.items()}
    assert {place for place in after if after[place] != before[place]} <= ({situation} if writes else set())
    if not (situation == "here" and writes):
        assert (points(world.here) if opened else files(world.here)) == untouched
    archives = (
        [tmp_path / "backups", *(tmp_path / "backups").glob("*")]
        if (name, situation) == ("backup", "here")
        else []
    )
    assert sorted(tmp_path.rglob("*")) == sorted({*around, *archives})


@pytest.mark.parametrize("situation", STORES)
def test_an_erasure_deletes_the_session_from_one_store_and_proves_it_there(
    situation: str, world: World, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: an erasure proved in the wrong store."""
    session_id = world.sessions[situation]
    environment.setenv("DATA_DIR", str(world.served[1] if situation == "served" else world.here))
    where = ["--url", world.named[0].url] if situation == "named" else []
    assert (
        wenmai.main(["erase", "--session", session_id, "--apply", "--yes", "--backups", "delete", *where])
        == 0
    )
    assert "Nothing of it was found." in capsys.readouterr().out
    present = {"here": session_id in repr(points(world.here))}
    for name, (server, _) in (("served", world.served), ("named", world.named)):
        present[name] = httpx.get(f"{server.url}/sessions/{session_id}").status_code == 200
    assert present == {name: name != situation for name in STORES}


def test_a_server_at_the_port_that_has_another_store_is_not_asked(
    world: World, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: HOST and PORT taken for the store of DATA_DIR, which no server has open."""
    environment.setenv("DATA_DIR", str(world.here))
    (world.here / "store" / "id").write_text(MINE)
    environment.setenv("PORT", world.named[0].url.rpartition(":")[2])
    before = contents(world.clients["named"])
    for case in (each for each in CASES.values() if each.kind == "asks"):
        assert wenmai.main(placed(case.words, world)) == 1
        assert f"{world.named[0].url} has another store" in capsys.readouterr().err
    assert contents(world.clients["named"]) == before


@pytest.mark.full("starts a server of its own")
def test_a_users_key_is_checked_against_the_store_too(
    world: World, environment: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: a check by figures that only administrators may read; a traceback for a wrong key."""
    environment.setenv("API_KEYS", "user")
    environment.setenv("DATA_DIR", str(world.here))
    (world.here / "store" / "id").write_text(MINE)
    keys = {"API_KEYS": "user", "ADMIN_API_KEYS": "root"}
    with running_server(tmp_path / "keyed", EMBEDDING=HASHING, LOAD_SAMPLE="false", **keys) as server:
        environment.setenv("PORT", server.url.rpartition(":")[2])
        assert wenmai.main(["ask", "Hello?"]) == 1
        assert "has another store" in capsys.readouterr().err
        environment.setenv("DATA_DIR", str(tmp_path / "keyed"))
        assert wenmai.main(["ask", "Hello?"]) == 0
        assert f"Store {server.url} ({store_id(tmp_path / 'keyed' / 'store')})\n" in capsys.readouterr().err
        environment.setenv("API_KEYS", "wrong")
        for name, case in CASES.items():
            if case.kind == "asks":
                assert wenmai.main(placed(case.words, world)) == 2, name
                assert "API key missing or wrong" in capsys.readouterr().err, name


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8000", "http://", "http://127.0.0.1:99999", "http://u:se@[", ""]
)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.kind != "elsewhere"])
def test_an_invalid_address_is_refused(
    name: str, address: str, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: a traceback; an address with its password in the line."""
    assert wenmai.main([*CASES[name].words, "--url", address]) == 2
    reason = f"an address is like http://127.0.0.1:8000. See wenmai {name} --help."
    assert capsys.readouterr().err == f"wenmai: Invalid value for '--url': {reason}\n"


def test_a_password_in_an_address_is_not_shown(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    url = world.named[0].url.replace("://", "://me:pass1word@")
    for words in (["sessions"], ["cleanup"], ["doctor"]):
        assert wenmai.main([*words, "--url", url]) == 0
        printed = capsys.readouterr()
        assert "Store http://" in printed.err
        assert "pass1word" not in printed.err + printed.out


def test_archives_are_listed_from_the_server_and_read_only_locally(
    world: World, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: the local folder shown for that of the named server."""
    environment.setenv("DATA_DIR", str(world.here))
    url = world.named[0].url
    assert wenmai.main(["backup", "--url", url]) == 0
    capsys.readouterr()
    assert wenmai.main(["backup", "--list", "--json", "--url", url]) == 0
    (archive, *_) = json.loads(capsys.readouterr().out)
    assert (world.named[1] / "backups" / archive["file"]).is_file()
    shutil.rmtree(world.named[1] / "backups")
    for words in (["--verify", str(world.archive)], ["--list", "--to", "x"]):
        assert wenmai.main(["backup", *words, "--url", url]) == 2
    assert wenmai.main(["backup", "--list"]) == 0
    assert "No backups in " in capsys.readouterr().out


DEAR = pytest.mark.full("each waits a second for the store")
OPENING = [
    *(
        pytest.param(case.words, marks=[] if name in ("cleanup", "doctor") else DEAR, id=name)
        for name, case in CASES.items()
        if case.kind in ("dry", "looks")
    ),
    pytest.param(("migrate", "--from", "HERE", "--to", "new", "--apply"), marks=DEAR, id="migrate"),
    pytest.param(("restore", "ARCHIVE", "--apply"), marks=DEAR, id="restore"),
]


@pytest.mark.parametrize("words", OPENING)
def test_of_two_commands_at_once_the_second_says_who_has_the_store(
    words: tuple[str, ...], world: World, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: a lock without its process; an endless wait; another server asked instead."""
    environment.setenv("DATA_DIR", str(world.here))
    environment.setenv("PORT", world.named[0].url.rpartition(":")[2])

    async def meanwhile() -> int:
        async with open_maintenance(load_settings()):
            return await asyncio.to_thread(wenmai.main, placed(words, world))

    assert asyncio.run(meanwhile()) == 1
    printed = capsys.readouterr()
    assert str(os.getpid()) in printed.err + printed.out


def test_a_lock_that_names_another_servers_address_is_not_trusted(
    world: World,
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
        write_holder(lock.fileno(), Holder(1, 1, "now", world.served[0].url))
        (folder / "id").write_text(MINE)
        assert wenmai.main(["erase", "--owner", "nobody", "--apply", "--yes"]) == 1
    assert "another store" in capsys.readouterr().err


async def test_without_a_store_there_is_no_proof_and_no_backup(tmp_path: Path) -> None:
    """Discriminates: a proof that checked an empty store; an archive of the wrong one."""
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
