"""Folder sync over HTTP: admins see and start it, readers see names and counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from core.errors import StartRefusedError
from tests.support.servers.app import App, make_settings, open_app

PATH = "/admin/sync"
KEYS = {"api_keys": ["reader-key"], "admin_api_keys": ["admin-key"]}


@asynccontextmanager
async def open_synced(tmp_path: Path, **sections: Any) -> AsyncIterator[tuple[App, Path]]:
    folder = tmp_path / "handbook"
    folder.mkdir(exist_ok=True)
    knowledge = {
        "sources": {"docs": {"folder": folder, "tags": ["hr"]}},
        "sync_cron": "",
        **sections.pop("knowledge", {}),
    }
    async with open_app(make_settings(tmp_path / "data", knowledge=knowledge, **sections)) as app:
        yield app, folder


@pytest.fixture
async def synced(tmp_path: Path) -> AsyncIterator[tuple[App, Path]]:
    async with open_synced(tmp_path) as opened:
        yield opened


async def ended(app: App) -> dict[str, Any]:
    """The state when nothing runs any more."""
    async with asyncio.timeout(30):
        while (state := (await app.client.get(PATH)).json())["running"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    results: dict[str, Any] = state
    return results


@pytest.mark.slow("waits for the process that reads documents to start")
async def test_a_sync_is_started_followed_and_reported_and_its_files_are_searchable(
    synced: tuple[App, Path],
) -> None:
    app, folder = synced
    (folder / "leave.md").write_bytes(b"# Leave\n\nThere are five days of leave a year.")
    (folder / "empty.md").write_bytes(b"")
    (folder / "film.mp4").write_bytes(b"x")
    started = await app.client.post(PATH, json={})
    assert (started.status_code, started.json()["running"]) == (202, True)
    state = await ended(app)
    (source,) = state["sources"]
    assert (source["source"], source["folder"], source["owner"]) == ("docs", str(folder), "shared")
    last = source["last"]
    assert (last["added"], last["failed"], last["skipped"]) == (1, 1, [{"ending": ".mp4", "count": 1}])
    (failure,) = last["failures"]
    assert (failure["path"], failure["reason"]) == ("empty.md", "The file is empty.")
    assert failure["since"].endswith("Z")
    hits = (await app.client.post("/search", json={"question": "How many days of leave?"})).json()
    assert "leave.md" in str(hits)
    (summary,) = (await app.client.get("/sources")).json()["sources"]
    assert (summary["source"], summary["documents"]) == ("docs", 1)
    assert set(summary) == {"source", "documents", "synced_at"}


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_the_sync_at_start_runs_in_the_background(tmp_path: Path) -> None:
    (tmp_path / "handbook").mkdir()
    (tmp_path / "handbook" / "a.md").write_bytes(b"# A\n\ntext")
    async with open_synced(tmp_path, knowledge={"sync_cron": "0 0 1 1 *"}) as (app, _):
        async with asyncio.timeout(30):
            while not (await app.client.get("/sources")).json()["sources"][0]["synced_at"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert (await ended(app))["sources"][0]["last"]["added"] == 1


@pytest.mark.slow("waits for the process that reads documents to start")
async def test_only_one_runs_and_unknown_sources_and_fields_are_refused(synced: tuple[App, Path]) -> None:
    app, folder = synced
    for number in range(30):
        (folder / f"{number}.md").write_bytes(f"# {number}\n\ntext {number}".encode())
    assert (await app.client.post(PATH, json={"source": "docs"})).status_code == 202
    again = await app.client.post(PATH, json={})
    error = again.json()["error"]
    assert (again.status_code, error["code"], error["retryable"]) == (409, "conflict", True)
    unknown = await app.client.post(PATH, json={"source": "other"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (422, "unknown_source")
    assert (await app.client.post(PATH, json={"all": True})).status_code == 422
    assert (await app.client.delete(f"{PATH}/left")).status_code == 409
    await ended(app)


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_source_removed_from_the_configuration_is_reported_and_forgotten(tmp_path: Path) -> None:
    async with open_synced(tmp_path) as (app, folder):
        (folder / "a.md").write_bytes(b"# A\n\ntext")
        await app.client.post(PATH, json={})
        await ended(app)
        configured = await app.client.delete(f"{PATH}/docs")
        assert (configured.status_code, "would come back" in configured.text) == (422, True)
    async with open_synced(tmp_path, knowledge={"sources": {}}) as (app, _):
        (left,) = (await ended(app))["left"]
        assert (left["source"], left["documents"]) == ("docs", 1)
        assert (await app.client.delete(f"{PATH}/docs")).json() == {"source": "docs", "removed": 1}
        assert (await ended(app))["left"] == []
        assert (await app.client.get("/documents")).json()["documents"] == []


@pytest.mark.slow("waits for the process that reads documents to start")
async def test_only_admins_see_folders_and_start_a_sync(tmp_path: Path) -> None:
    async with open_synced(tmp_path, server=KEYS) as (app, folder):
        reader = {"Authorization": "Bearer reader-key"}
        for refused in (
            await app.client.get(PATH, headers=reader),
            await app.client.post(PATH, headers=reader, json={}),
            await app.client.delete(f"{PATH}/docs", headers=reader),
        ):
            assert refused.status_code == 403
            assert str(folder) not in refused.text
        observed = await app.client.get("/sources", headers=reader)
        assert observed.json()["sources"][0]["source"] == "docs"
        assert str(folder) not in observed.text
        assert (await app.client.get("/sources")).status_code == 401


@pytest.mark.parametrize(
    ("knowledge", "named"),
    [
        ({"sync_cron": "every day"}, r"^SYNC_CRON = 'every day' is refused"),
        ({"sources": {"x": {"folder": "/y", "include": ["!"]}}}, r"^sources\.x\.include is refused"),
    ],
)
async def test_an_invalid_configuration_refuses_the_start(
    tmp_path: Path, knowledge: dict[str, Any], named: str
) -> None:
    with pytest.raises(StartRefusedError, match=named):
        async with open_synced(tmp_path, knowledge=knowledge):
            pass
