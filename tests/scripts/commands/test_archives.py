"""The commands of backup, restore and moving, as an operator runs them (RELIABILITY B112, B113)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from config.settings import Settings
from scripts.commands import archives
from scripts.commands.maintenance import CommandError
from tests.support.servers.app import HASHING, make_settings, open_app, serving
from tests.support.servers.commands import command, options_of

QUESTION = "How long is the leave?"


def settings_of(folder: Path) -> Settings:
    return make_settings(folder, store={"low_disk_mb": 64})


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Yield a data folder with a document and a turn, and the turn's session."""
    folder = tmp_path_factory.mktemp("kept")

    async def fill() -> str:
        async with open_app(settings_of(folder)) as app:
            await app.add_text("leave.md", "# Leave\n\nThe leave is five days.")
            return (await app.ask(QUESTION)).session_id

    return folder, asyncio.run(fill())


async def back_up(settings: Settings, *arguments: str) -> int:
    return await archives._back_up(settings, options_of(archives.backup, arguments))


async def move(*arguments: str) -> int:
    return await archives._move(Settings(), options_of(archives.migrate, arguments))


async def questions(folder: Path, session_id: str) -> list[str]:
    async with open_app(settings_of(folder)) as app:
        turns = (await app.client.get(f"/sessions/{session_id}/turns")).json()["turns"]
        hits = (await app.client.post("/search", json={"question": "five days of leave"})).json()
        assert hits["candidates"]
    return [turn["question"] for turn in turns]


@pytest.mark.full("runs commands as processes of their own")
async def test_a_backup_is_restored_elsewhere_and_only_into_an_empty_store(
    session: tuple[Path, str], tmp_path: Path
) -> None:
    folder, session_id = session
    to = {"DATA_DIR": str(tmp_path / "new"), "EMBEDDING": HASHING}
    from_ = {"DATA_DIR": str(folder), "EMBEDDING": HASHING, "LOW_DISK_MB": "64"}
    archive = tmp_path / "kept.wenmai.zip"
    made = await asyncio.to_thread(command, "wenmai", "backup", "--to", str(archive), **from_)
    assert (made.returncode, made.stderr.startswith("Store ")) == (0, True), made.stderr
    assert ["conversations", "1"] in [line.split() for line in made.stdout.splitlines()]
    shown = await asyncio.to_thread(command, "wenmai", "restore", str(archive), **to)
    assert shown.returncode == 0
    assert "Nothing was changed" in shown.stdout
    assert not (tmp_path / "new").exists()
    done = await asyncio.to_thread(command, "wenmai", "restore", str(archive), "--apply", **to)
    assert done.returncode == 0, done.stderr
    assert await questions(tmp_path / "new", session_id) == [QUESTION]
    again = await asyncio.to_thread(command, "wenmai", "restore", str(archive), "--apply", **to)
    assert again.returncode == 2
    assert "not empty" in again.stderr
    store, refusal = again.stderr.splitlines()
    assert store.startswith("Store ")
    assert refusal.startswith("wenmai: the store is not empty")


async def test_a_count_says_why_the_archive_could_not_be_restored(
    session: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: an invitation to use --apply, which then refuses a store that is not empty."""
    archive = tmp_path / "kept.wenmai.zip"
    assert await back_up(settings_of(session[0]), "--to", str(archive)) == 0

    async def count(data: Path, *arguments: str) -> str:
        capsys.readouterr()
        options = options_of(archives.restore, [str(archive), *arguments])
        assert await archives._restore(settings_of(data), options) == 0
        return capsys.readouterr().out

    assert (await count(tmp_path / "new")).endswith("add --apply to restore it into an empty store.\n")
    assert "already contains a store; only an empty one can be filled" in await count(session[0])
    assert "already contains a store" in json.loads(await count(session[0], "--json"))["problem"]


@pytest.mark.full("runs commands as processes of their own")
async def test_a_damaged_archive_is_reported_by_verify_and_refused_by_restore(
    session: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "kept.wenmai.zip"
    assert await back_up(settings_of(session[0]), "--to", str(archive)) == 0
    assert await back_up(settings_of(tmp_path), "--verify", str(archive)) == 0
    assert "is intact" in capsys.readouterr().out
    whole = bytearray(archive.read_bytes())
    whole[len(whole) // 3] ^= 1
    archive.write_bytes(whole)
    with pytest.raises(CommandError) as raised:
        await back_up(settings_of(tmp_path), "--verify", str(archive))
    assert raised.value.exit_code == 1
    refused = await asyncio.to_thread(
        command, "wenmai", "restore", str(archive), "--apply",
        DATA_DIR=str(tmp_path / "new"), EMBEDDING=HASHING,
    )  # fmt: skip
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert not (tmp_path / "new").exists()


async def test_the_list_and_the_refusals(
    session: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(session[0])
    assert await back_up(settings, "--to", str(tmp_path), "--keep", "1") == 0
    assert await back_up(settings, "--to", str(tmp_path), "--keep", "1") == 0
    assert "removed wenmai-" in capsys.readouterr().out
    assert await back_up(settings, "--list", "--to", str(tmp_path)) == 0
    assert capsys.readouterr().out.count("wenmai-") == 1
    upgrade = str(tmp_path / "before-upgrade.wenmai.zip")
    assert await back_up(settings, "--to", upgrade) == 0
    assert await back_up(settings, "--to", str(tmp_path), "--keep", "1") == 0  # an existing one stays
    capsys.readouterr()
    assert await back_up(settings, "--list", "--to", str(tmp_path)) == 0
    newest, named = capsys.readouterr().out.splitlines()
    assert newest.startswith("wenmai-")
    assert named.startswith("before-upgrade.wenmai.zip")
    existing, missing = tmp_path / "there.wenmai.zip", tmp_path / "not-mounted"
    existing.touch()
    for refused in (existing, tmp_path / "a.zip", missing, missing / "b", missing / "c.wenmai.zip"):
        with pytest.raises(CommandError) as raised:
            await back_up(settings, "--to", str(refused))
        assert raised.value.exit_code == 2
    assert not missing.exists()  # discriminates: a backup on the disk below an unmounted one


@pytest.mark.full("runs commands as processes of their own")
async def test_a_data_folder_without_a_store_is_refused_and_not_created(tmp_path: Path) -> None:
    none = await asyncio.to_thread(
        command, "wenmai", "backup", DATA_DIR=str(tmp_path / "none"), EMBEDDING=HASHING
    )
    assert none.returncode == 2
    assert "there is no store" in none.stderr
    assert not (tmp_path / "none").exists()


async def test_a_backup_folder_that_is_a_file_is_reported_in_one_plain_line(
    session: tuple[Path, str], tmp_path: Path
) -> None:
    """Discriminates: the operating system's words, "[Errno 17] File exists"."""
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        settings = make_settings(session[0], store={"low_disk_mb": 64, "backup_dir": folder})
        for arguments in ([], ["--list"]):
            with pytest.raises(CommandError) as raised:
                await back_up(settings, *arguments)
            assert (str(raised.value), raised.value.exit_code) == (f"BACKUP_DIR {folder} is not a folder", 2)


@pytest.mark.full("runs commands as processes of their own")
async def test_a_running_server_is_asked_and_writes_into_its_own_folder(
    session: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(session[0])
    async with serving(settings) as url:
        assert await back_up(settings, "--url", url) == 0
        (made,) = (session[0] / "backups").glob("*.wenmai.zip")
        assert str(made) in capsys.readouterr().out
        elsewhere = make_settings(session[0], store={"backup_dir": tmp_path})  # as this shell has it
        assert await back_up(elsewhere, "--url", url) == 0
        printed = capsys.readouterr().out
        assert str(tmp_path) not in printed  # no file of that name exists
        assert ".wenmai.zip in BACKUP_DIR of the server" in printed
        with pytest.raises(CommandError, match="omit --to") as raised:
            await back_up(settings, "--url", url, "--to", str(tmp_path))
        assert raised.value.exit_code == 2


@pytest.mark.full("runs commands as processes of their own")
async def test_a_move_is_first_shown_and_then_made(
    session: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, session_id = session
    places = ("--from", str(folder), "--to", str(tmp_path / "moved"))
    assert await move(*places) == 0
    assert "Nothing was changed" in capsys.readouterr().out
    assert not (tmp_path / "moved").exists()
    assert await move(*places, "--apply") == 0
    assert await questions(tmp_path / "moved", session_id) == [QUESTION]


async def test_a_move_onto_itself_or_to_no_address_is_refused_without_showing_the_key(
    session: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "the-secret")
    folder = str(session[0])
    for to in (folder, "http://user:the-secret@ bad"):
        with pytest.raises(CommandError) as raised:
            await move("--from", folder, "--to", to, "--to-key-env", "MY_KEY")
        assert raised.value.exit_code == 2
        assert "the-secret" not in str(raised.value)


@pytest.mark.full("runs commands as processes of their own")
async def test_restore_without_the_archives_embedding_names_the_solution(
    session: tuple[Path, str], tmp_path: Path
) -> None:
    archive = tmp_path / "kept.wenmai.zip"
    await back_up(settings_of(session[0]), "--to", str(archive))
    options = options_of(archives.restore, [str(archive), "--apply", "--as-is"])
    other = make_settings(tmp_path / "new", models={"embedding": "bundled"})
    assert await archives._restore(other, options) == 0
    refused = await asyncio.to_thread(
        command, "wenmai", "restore", str(archive), DATA_DIR=str(tmp_path / "x")
    )
    assert refused.returncode == 2
    assert "--as-is" in refused.stderr
