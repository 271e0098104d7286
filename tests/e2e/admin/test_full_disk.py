"""Behaviour on a completely full disk: a tmpfs in a mount namespace, filled to the end."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from core.errors import DiskFullError
from services.adapters.edge.client import open_edge_client
from tests.services.adapters.edge.stores import COLLECTION, make_collection, thing
from tests.support.environment import ROOT
from tests.support.servers.app import App, make_settings, open_app, scripted
from tests.support.waiting import until

SIZE_MB = 1_200  # the engine touches every page of its files, which then occupy the tmpfs


def free_bytes(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def fill(folder: Path) -> None:
    with (folder / "ballast").open("wb") as file:
        while free := free_bytes(folder):
            with suppress(OSError):
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), min(free, 1 << 20))


async def deleted(app: App, paths: list[str]) -> list[tuple[int, int]]:
    """The status of each deletion, and of reading the object afterwards."""
    return [
        ((await app.client.delete(path)).status_code, (await app.client.get(path)).status_code)
        for path in paths
    ]


async def trial(folder: Path) -> dict[str, Any]:
    llms = {"default": scripted("fine")}
    reserve = folder / "data/store/reserve"
    async with open_app(make_settings(folder / "data", models={"llms": llms})) as app:
        document = await app.add_text("fee.md", "# Fee\n\nThe fee is 300.")
        one, other = [await app.ask("What is the fee?") for _ in range(2)]
        await until(reserve.exists, limit_s=20)
        fill(folder)
        paths = [
            f"/turns/{one.finished['turn_id']}",
            f"/sessions/{other.session_id}",
            f"/documents/{document}",
        ]
        outcome: dict[str, Any] = {"deleted": await deleted(app, paths)}
        cleanup = await app.client.post("/admin/cleanup", params={"dry_run": "false", "days": 1})
        asked = await app.client.post("/knowledge_chat_conversation", json={"question": "And now?"})
        outcome |= {"cleanup": cleanup.status_code, "asked": asked.status_code, "given": not reserve.exists()}
        (folder / "ballast").unlink()
        await app.ask("Once more?")
        await until(reserve.exists, limit_s=20)
    return outcome


async def clean_up(folder: Path) -> dict[str, Any]:
    """First when nothing has expired, then with a turn to delete."""
    reserve = folder / "data/store/reserve"
    async with open_app(
        make_settings(folder / "data", models={"llms": {"default": scripted("fine")}})
    ) as app:
        asked = await app.ask("What is the fee?")
        await until(reserve.exists, limit_s=20)
        fill(folder)
        cleanup = await app.client.post("/admin/cleanup", params={"dry_run": "false", "days": 1})
        outcome = {
            "cleanup": cleanup.status_code,
            "matched": cleanup.json()["matched"],
            "left": reserve.exists(),
        }
        return outcome | {"deleted": await deleted(app, [f"/turns/{asked.finished['turn_id']}"])}


async def start(folder: Path) -> dict[str, Any]:
    """Start on a store that was complete, but without its reserve."""
    store = folder / "data/store"
    async with open_edge_client(store) as client:
        await make_collection(client)
        await client.upsert(COLLECTION, [thing(1)])
    (store / "reserve").unlink(missing_ok=True)
    fill(folder)
    outcome: dict[str, Any] = {}
    with suppress(DiskFullError):
        async with open_edge_client(store):
            outcome["started"] = True
    (folder / "ballast").unlink()
    async with open_edge_client(store) as client:
        outcome["damage"] = (await client.condition(whole=True)).damage
        outcome["points"] = (await client.count(COLLECTION)).count
    return outcome


def outcome_of(name: str, folder: Path) -> dict[str, Any]:
    command = ["unshare", "-rm", sys.executable, "-m", __name__, name, str(folder)]
    if subprocess.run([*command[:2], "true"], capture_output=True, check=False).returncode:
        pytest.skip("users may not make namespaces here")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.full("fills a disk of more than a gigabyte")
def test_a_cleanup_that_deletes_nothing_leaves_the_reserve_to_deletions(tmp_path: Path) -> None:
    """Discriminates: a receipt, or a deletion that matches nothing, which uses it up."""
    expected = {"cleanup": 200, "matched": 0, "left": True, "deleted": [[200, 404]]}
    assert outcome_of("clean_up", tmp_path) == expected


@pytest.mark.full("mounts a disk")
def test_a_start_without_space_is_refused_and_damages_nothing(tmp_path: Path) -> None:
    """Discriminates: an engine that opens its files although it cannot write."""
    assert outcome_of("start", tmp_path) == {"damage": [], "points": 1}


@pytest.mark.full("fills a disk of more than a gigabyte")
def test_on_a_full_disk_deletions_work_and_questions_do_not(tmp_path: Path) -> None:
    """Discriminates: a reserve that a question may use; a deletion that is refused for its receipt."""
    assert outcome_of("trial", tmp_path) == {
        "deleted": [[200, 404]] * 3, "cleanup": 200, "asked": 507, "given": True,
    }  # fmt: skip


if __name__ == "__main__":
    place = Path(sys.argv[2])
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(place)], check=True)
    print(json.dumps(asyncio.run({"trial": trial, "start": start, "clean_up": clean_up}[sys.argv[1]](place))))
