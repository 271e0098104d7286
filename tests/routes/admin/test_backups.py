"""Backups over HTTP: for admins only, one at a time, in one folder; answers continue meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from core.operations.archive import Role
from services.operations.backup.reader import holds, open_archive
from services.operations.backup.writer import only_one
from tests.support.servers.app import App, make_settings, open_app

KEYS = {"api_keys": ["reader-key"], "admin_api_keys": ["admin-key"], "host": "127.0.0.1"}
PATH = "/admin/backups"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    async with open_app(make_settings(tmp_path, store={"low_disk_mb": 64})) as opened:
        yield opened


async def make(app: App, **params: Any) -> Path:
    response = await app.client.post(PATH, params=params)
    assert response.status_code == 200, response.text
    return app.container.backups.folder / str(response.json()["file"])


async def test_a_backup_is_made_listed_and_contains_what_was_asked(app: App, tmp_path: Path) -> None:
    asked = await app.ask("What is the fee?")
    archive = await make(app)
    assert archive.parent == tmp_path / "backups"
    assert holds(archive, [asked.session_id])
    with open_archive(archive) as opened:
        opened.verify()
        assert opened.manifest.points[Role.CONVERSATIONS] == 1
    listed = (await app.client.get(PATH)).json()["backups"]
    assert [(each["file"], each["problem"]) for each in listed] == [(archive.name, "")]
    assert listed[0]["points"]["conversations"] == 1
    assert listed[0]["size_bytes"] == archive.stat().st_size


async def test_questions_are_answered_and_turns_erased_during_a_backup(app: App) -> None:
    turns = [(await app.ask(f"Question {n}")).finished["turn_id"] for n in range(3)]
    making = asyncio.create_task(make(app))
    erased = asyncio.create_task(app.client.delete(f"/turns/{turns[0]}"))
    assert (await app.ask("And another one?")).kinds[-1] == "DONE"
    assert (await erased).status_code == 200
    archive = await making
    assert holds(archive, [turns[1]])
    newest = await make(app, keep=1)
    assert not holds(newest, [turns[0]])
    assert not archive.exists()


async def test_a_second_one_at_the_same_time_is_refused(app: App) -> None:
    with only_one(app.container.backups.folder):
        response = await app.client.post(PATH)
    assert (response.status_code, response.json()["error"]["code"]) == (409, "backup_running")
    together = await asyncio.gather(*[app.client.post(PATH) for _ in range(3)])
    assert sorted(each.status_code for each in together) == [200, 409, 409]


async def test_without_space_it_is_refused_as_such(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path, store={"low_disk_mb": 1_000_000})) as app:
        if (await app.client.get("/health/ready")).status_code == 200:
            response = await app.client.post(PATH)
            assert (response.status_code, response.json()["error"]["code"]) == (507, "disk_full")


async def test_an_unusable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = make_settings(tmp_path, store={"backup_dir": tmp_path / "file" / "below"})
    async with open_app(settings) as app:
        response = await app.client.post(PATH)
        assert response.status_code == 503
        assert "BACKUP_DIR" in response.json()["error"]["message"]
        assert str(tmp_path) not in response.text


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_it_is_for_admins_and_no_request_names_a_location(tmp_path: Path, method: str) -> None:
    async with open_app(make_settings(tmp_path, server=KEYS)) as app:
        for key, status in ((None, 401), ("reader-key", 403)):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            response = await app.client.request(method, PATH, headers=headers)
            assert response.status_code == status
    assert not (tmp_path / "backups").exists()


async def test_the_number_of_kept_backups_is_bounded(app: App) -> None:
    for keep in ("0", "-1", "1001", "all"):
        assert (await app.client.post(PATH, params={"keep": keep})).status_code == 422, keep
