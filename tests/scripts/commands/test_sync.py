"""`wenmai sync` as an operator runs it, with and without a running server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from config.settings import Settings
from core.errors import StartRefusedError
from core.operations.sync import KindCount, LeftSource, SyncFailure, SyncReport
from scripts.commands import sync
from scripts.commands.maintenance import CommandError, Options
from scripts.commands.sync import print_reports
from tests.support.servers.app import HASHING, make_settings, open_app, serving
from tests.support.servers.commands import command, options_of
from tests.support.servers.server import running_server


def settings_of(tmp_path: Path, source: str = "docs") -> Settings:
    """Settings with one source, whose folder is created. A run of the command overrides the rest."""
    folder = tmp_path / "handbook"
    folder.mkdir(exist_ok=True)
    return make_settings(
        tmp_path / "data", knowledge={"sources": {source: {"folder": folder}}, "sync_cron": ""}
    )


async def run_sync(settings: Settings, *arguments: str) -> int:
    """Return the exit code."""
    try:
        return await sync._sync(settings, options_of(sync.sync, arguments))
    except CommandError as error:
        print(f"wenmai: {error}")
        return error.exit_code


async def made(settings: Settings) -> Settings:
    async with open_app(settings):
        return settings


def numbers(printed: str) -> dict[str, int]:
    rows = [line.split() for line in printed.splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


@pytest.mark.full("runs commands as processes of their own")
async def test_without_a_server_it_syncs_itself_and_reports_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(tmp_path)
    with pytest.raises(StartRefusedError, match="there is no store"):
        await run_sync(settings)
    assert not (tmp_path / "data").exists()
    await made(settings)
    (tmp_path / "handbook" / "good.md").write_bytes(b"# Good\n\ntext")
    assert await run_sync(settings) == 0
    assert numbers(capsys.readouterr().out)["added"] == 1
    (tmp_path / "handbook" / "empty.md").write_bytes(b"")
    assert await run_sync(settings, "--source", "docs") == 1
    printed = capsys.readouterr().out
    assert numbers(printed)["failed"] == 1
    assert "  empty.md: The file is empty." in printed
    assert await run_sync(settings, "--source", "other") == 2
    assert "configured: docs" in capsys.readouterr().out


@pytest.mark.full("runs commands as processes of their own")
async def test_beside_a_server_it_asks_the_server_and_prints_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(tmp_path)
    files = [tmp_path / "handbook" / f"{number}.md" for number in range(3)]
    for file in files:
        file.write_text(f"# {file.name}\n\ntext")
    async with serving(settings) as url:
        assert await run_sync(settings, "--url", url) == 0
        assert numbers(capsys.readouterr().out)["added"] == 3
        for file in files:
            file.unlink()
        assert await run_sync(settings, "--url", url) == 1
        assert "The folder is empty, but had 3 documents:" in capsys.readouterr().out
        assert await run_sync(settings, "--url", url, "--yes") == 0
        assert numbers(capsys.readouterr().out)["removed"] == 3
        assert await run_sync(settings, "--url", url, "--source", "other") == 2
        assert await run_sync(settings, "--url", url, "--forget", "docs") == 2
        assert "would come back" in capsys.readouterr().out


@pytest.mark.full("runs commands as processes of their own")
async def test_a_source_no_longer_configured_is_reported_and_forgotten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = await made(settings_of(tmp_path, "old"))
    (tmp_path / "handbook" / "good.md").write_bytes(b"# Good\n\ntext")
    assert await run_sync(old) == 0
    settings = settings_of(tmp_path, "new")
    assert await run_sync(settings) == 0
    assert "Note: source old is no longer configured: 1 document left;" in capsys.readouterr().out
    assert await run_sync(settings, "--forget", "old") == 0
    assert capsys.readouterr().out.endswith("old: 1 document removed\n")
    assert await run_sync(settings) == 0
    assert "Note:" not in capsys.readouterr().out


@pytest.mark.full("runs commands as processes of their own")
def test_a_start_from_the_shell_reads_the_configuration_file(tmp_path: Path) -> None:
    asyncio.run(made(settings_of(tmp_path)))
    config = tmp_path / "wenmai.toml"
    config.write_text(f'[sources.docs]\nfolder = "{tmp_path / "handbook"}"\n')
    environment = {"WENMAI_CONFIG": str(config), "EMBEDDING": HASHING, "DATA_DIR": str(tmp_path / "data")}
    done = command("wenmai", "sync", **environment)
    assert (done.returncode, numbers(done.stdout)["added"]) == (0, 0)
    assert done.stderr.startswith("Store ")


@pytest.mark.full("runs commands as processes of their own")
async def test_a_server_syncs_what_this_shell_has_not_configured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: success without asking the server, although only its configuration names a folder."""
    folder, config = tmp_path / "handbook", tmp_path / "wenmai.toml"
    folder.mkdir()
    config.write_text(f'[sources.docs]\nfolder = "{folder}"\n')
    own = {"WENMAI_CONFIG": str(config), "EMBEDDING": HASHING, "LOAD_SAMPLE": "false", "SYNC_CRON": ""}
    with running_server(tmp_path / "data", **own):
        (folder / "good.md").write_bytes(b"# Good\n\ntext")
        assert await run_sync(make_settings(tmp_path / "data")) == 0
        assert numbers(capsys.readouterr().out)["added"] == 1


def test_with_no_source_configured_it_says_how_to_name_one(tmp_path: Path) -> None:
    text = command("wenmai", "sync", DATA_DIR=str(tmp_path))
    assert (text.returncode, "[sources.NAME]" in text.stdout) == (0, True)


async def test_a_server_without_sources_is_reported_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(make_settings(tmp_path / "data")):
        assert await run_sync(make_settings(tmp_path / "data")) == 0
    assert "[sources.NAME]" in capsys.readouterr().out


def test_the_output_cannot_control_a_terminal_and_names_every_kind_of_problem(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = SyncReport(
        "docs", 1, 2, failed=2, failures=(SyncFailure("a\x1b[2J.md", "It is broken.", 1),),
        skipped=(KindCount(".exe", 10), KindCount(".mp4", 2)), held_back=20, not_reached=3, changing=1,
        problem="Most are gone.", stopped="The store is away.",
    )  # fmt: skip
    assert print_reports([report], [LeftSource("old", 4)], Options(json=False)) == 1
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    for words in (
        "12 files of kinds that cannot be read: .exe ×10, .mp4 ×2", "Most are gone.", "and 1 more",
        "Stopped early: The store is away.", "wenmai sync --forget old",
    ):  # fmt: skip
        assert words in printed
