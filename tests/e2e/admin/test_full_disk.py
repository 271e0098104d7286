"""What can be deleted when the disk has no byte left: a tmpfs in a namespace, filled to the end."""

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

from tests.support.environment import ROOT
from tests.support.servers.app import App, make_settings, open_app, scripted
from tests.support.waiting import until

SIZE_MB = 1_200  # the engine touches every page of its files, which a tmpfs then has to hold


def free_bytes(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def fill(folder: Path) -> None:
    with (folder / "ballast").open("wb") as file:
        while free := free_bytes(folder):
            with suppress(OSError):
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), min(free, 1 << 20))


async def deleted(app: App, paths: list[str]) -> list[tuple[int, int]]:
    """The status of each deletion, and of reading it again."""
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


@pytest.mark.full("fills a disk of more than a gigabyte")
def test_deletions_work_with_no_byte_left_and_questions_do_not(tmp_path: Path) -> None:
    """Discriminates: a reserve that a question may use; a deletion that is refused for its receipt."""
    command = ["unshare", "-rm", sys.executable, "-m", __name__, str(tmp_path)]
    if subprocess.run([*command[:2], "true"], capture_output=True, check=False).returncode:
        pytest.skip("users may not make namespaces here")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome == {"deleted": [[200, 404]] * 3, "cleanup": 200, "asked": 507, "given": True}


if __name__ == "__main__":
    place = Path(sys.argv[1])
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(place)], check=True)
    print(json.dumps(asyncio.run(trial(place))))
