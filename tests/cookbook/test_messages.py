"""The messages quoted on the pages are those of the program, and the described way back from an upgrade
works."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from qdrant_client import models

from api.wiring.parts import open_store
from config.settings import Settings
from tests.cookbook.pages import COOKBOOK, LANGUAGES, blocks, page
from tests.support.environment import ROOT, clean_environment
from tests.support.servers.app import HASHING, make_settings, open_app
from tests.support.servers.commands import command


def quoted(name: str, beginning: str) -> str:
    """The block of that page that begins with this text: what a program prints."""
    (text,) = [
        text for kind, text in blocks(page("en", name)) if kind == "text" and text.startswith(beginning)
    ]
    return text.strip()


async def run(script: str, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Return exit code, output, and errors."""
    ended = await asyncio.to_thread(command, script, *arguments, EMBEDDING=HASHING, **environment)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.slow("starts the server's process, which ends at once")
async def test_a_port_in_use_is_reported_as_on_the_page(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, _, errors = await run("serve", PORT=port, DATA_DIR=str(tmp_path))
    assert code == 2
    assert errors.strip() == quoted("troubleshooting", "wenmai: cannot listen").replace("8000", port)


@pytest.mark.slow("starts the server's process, which ends at once")
def test_a_start_on_a_full_disk_is_not_a_refused_setting(tmp_path: Path) -> None:
    """Discriminates: exit code 2, after which systemd leaves it stopped although somebody frees space."""
    mount = f"mount -t tmpfs -o size=3m tmpfs {tmp_path}"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], check=False, capture_output=True).returncode:
        pytest.skip("no mount namespace")
    started = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f"{mount} && exec {sys.executable} -m scripts.serve"],
        env=clean_environment({"DATA_DIR": str(tmp_path), "PORT": "0", "EMBEDDING": HASHING}),
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (started.returncode, "free some space on it" in started.stderr) == (1, True), started.stderr


@pytest.mark.slow("starts a second server, which ends at once")
async def test_a_store_in_use_is_reported_as_on_the_page(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path)):
        code, _, errors = await run("serve", PORT="0", DATA_DIR=str(tmp_path))
    assert code == 1
    expected = quoted("troubleshooting", "the data folder").replace("data/store", str(tmp_path / "store"))
    assert expected.partition("process")[0] in errors


async def write_later_schema(settings: Settings) -> None:
    """What a future version might leave."""
    later = {"embedding": "another", "dimension": 4, "schema_version": 99}
    words = {"sparse": models.SparseVectorParams(modifier=models.Modifier.IDF)}
    async with open_store(settings.store) as store:
        await store.delete_collection("conversations")
        await store.create_collection("conversations", {}, words, metadata=later)


@pytest.mark.full("runs the commands of the page, each a process of its own")
async def test_an_upgrade_is_reverted_as_described(tmp_path: Path) -> None:
    """Discriminates: an older version that opens a later store; a restore that asks for more."""
    settings, data = make_settings(tmp_path), {"DATA_DIR": str(tmp_path)}
    async with open_app(settings) as app:
        asked = await app.ask("How many days of leave are there?")
    code, printed, _ = await run("wenmai", "backup", **data)
    (archive,) = (tmp_path / "backups").iterdir()
    assert (code, str(archive) in printed) == (0, True)
    assert (await run("wenmai", "backup", "--verify", str(archive), **data))[0] == 0
    await write_later_schema(settings)
    code, _, errors = await run("serve", PORT="0", **data)
    assert (code, quoted("upgrading", "collection") in errors) == (2, True)
    (tmp_path / "store").rename(tmp_path / "store.newer")
    assert (await run("wenmai", "restore", str(archive), **data))[0] == 0
    assert (await run("wenmai", "restore", str(archive), "--apply", **data))[0] == 0
    async with open_app(settings) as app:
        turns = (await app.client.get(f"/sessions/{asked.session_id}/turns")).json()["turns"]
    assert [turn["answer"] for turn in turns] == [asked.answer]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_commands_on_the_pages_exist(language: str) -> None:
    texts = [each.read_text(encoding="utf-8") for each in (COOKBOOK / language).glob("*.md")]
    named = {name for text in texts for name in re.findall(r"(?:`|/bin/|^)wenmai ([a-z]+)", text, re.M)}
    _, overview, _ = await run("wenmai", "--help")
    assert "doctor" in named
    assert named <= set(re.findall(r"^ +([a-z]+) ", overview, re.M))
