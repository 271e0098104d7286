"""GET /metrics of the real application: what changes, who may read it, and what it never reveals."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from core.operations.reports import Receipt, ReceiptKind
from routes.app import create_app
from tests.support.servers.app import CHAT, App, make_settings, open_app, scripted
from tests.support.wire.metrics import Figures

KEYS = {"api_keys": ("alice",), "admin_api_keys": ("operator",)}
SILENT = scripted("Hel", 30.0, "lo")
MODELS = {"llms": {"default": scripted("Hel", "lo"), "silent": SILENT, "away": scripted("!")}}


async def scrape(app: App, **headers: str) -> Figures:
    response = await app.client.get("/metrics", headers=headers)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Figures(response.text)


async def scrape_updated(app: App) -> Figures:
    """Scrape with the store's current figures."""
    await app.container.store_status.refresh()
    return await scrape(app)


async def until_running(app: App, number: int) -> None:
    async with asyncio.timeout(10):
        while (await scrape(app))("running_turns") != number:  # noqa: ASYNC110 — it is asked over HTTP
            await asyncio.sleep(0.01)


async def stop_one(app: App) -> None:
    turn_id = str(uuid.uuid4())
    body = {"question": "Go on?", "model_id": "silent", "turn_id": turn_id}
    asked = asyncio.create_task(app.client.post(CHAT, json=body))
    await until_running(app, 1)
    assert (await app.client.post(f"/turns/{turn_id}/stop")).json()["stopped"]
    assert (await asked).status_code == 200
    await until_running(app, 0)


async def test_completed_stopped_and_refused_turns_are_counted_separately(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path, models=MODELS)) as app:
        await app.ask("Why?")
        await stop_one(app)
        assert (await app.client.post(CHAT, json={"question": " "})).status_code == 422
        assert (await app.client.post(CHAT, json={"question": "Who?", "model_id": "x"})).status_code == 404
        figures = await scrape(app)
    assert figures("turns_total", status="completed", model="default") == 1
    assert figures("turns_total", status="cancelled", model="silent") == 1
    assert figures("errors_total", code="empty_question") == 1
    assert figures("errors_total", code="unknown_model") == 1
    assert figures("first_token_seconds_count", model="default") == 1
    assert figures("turn_duration_seconds_count", model="default") == 1
    assert figures("turn_duration_seconds_count", model="silent") == 0
    assert figures("model_calls_total", model="default", outcome="answered") == 1
    assert figures("answer_tokens_total", model="default") > 0
    assert figures("running_turns_limit") == 1000


async def test_a_failed_turn_has_its_cause_and_a_replay_is_not_a_turn(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path, models=MODELS)) as app:
        await app.ask("Why?", model_id="away")
        turn_id = (await app.ask("Why?")).finished["turn_id"]
        await app.ask("Why?", turn_id=turn_id)
        await app.ask("/help")
        figures = await scrape(app)
    assert figures("turns_total", status="failed", model="away") == 1
    assert figures("turn_failures_total", code="llm_unavailable", model="away") == 1
    assert figures("model_calls_total", model="away", outcome="failed") == 1
    assert figures("model_circuit_open", model="away") == 0
    assert figures("turns_total", status="completed", model="default") == 1
    assert figures("commands_total", command="help") == 1


async def test_stored_objects_and_operations_are_exported_after_a_refresh(app: App) -> None:
    assert not (await scrape(app)).has("stored")
    await app.add_text("walnuts.md", "# Harvest\n\nThe walnut harvest begins in October.")
    await app.ask("When does the walnut harvest begin?")
    cleaned = await app.client.post("/admin/cleanup", params={"dry_run": "false", "days": 30})
    assert cleaned.status_code == 200, cleaned.text
    assert (await app.client.post("/admin/backups")).status_code in (200, 201)
    ahead_us = 2**52  # of a clock that was ahead: otherwise no alert fires until it is so late again
    await app.container.receipts.add(Receipt("", ReceiptKind.BACKUP, "command", ahead_us, ahead_us))
    await app.container.schedule.current()
    figures = await scrape_updated(app)
    stored = {kind: figures("stored", kind=kind) for kind in ("turns", "sessions", "documents", "chunks")}
    assert stored == {"turns": 1, "sessions": 1, "documents": 1, "chunks": 1}
    assert figures("store_bytes") > 0
    assert figures("disk_free_bytes") > 0
    assert figures("ingestion_jobs_ended_total", outcome="done") == 1
    for kind in ("expiry", "backup"):
        assert figures("operation_last_success", kind=kind) == 1
        assert figures("operation_last_timestamp_seconds", kind=kind) < ahead_us / 1_000_000
        assert 0 <= figures("operation_last_duration_seconds", kind=kind) < 60
    assert figures("cleanup_last_removed_turns") == 0
    assert figures("cleanup_done_until_timestamp_seconds") < figures("cleanup_next_run_timestamp_seconds")


async def test_a_scrape_starts_the_refresh_whose_figures_the_next_one_has(app: App) -> None:
    await scrape(app)
    async with asyncio.timeout(10):
        while not (await scrape(app)).has("stored"):  # noqa: ASYNC110 — it is asked over HTTP
            await asyncio.sleep(0.01)


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_synced_folders_are_counted_and_not_named(tmp_path: Path) -> None:
    folder = tmp_path / "walnuts"
    folder.mkdir()
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    sources = {"sources": {"walnuts": {"folder": folder}}, "sync_cron": ""}
    async with open_app(make_settings(tmp_path / "data", knowledge=sources)) as app:
        await app.container.sync.run()
        figures = await scrape_updated(app)
        text = (await app.client.get("/metrics")).text
    assert (figures("sync_sources"), figures("sync_sources_failing")) == (1, 1)
    assert figures("sync_failed_files") == 1
    assert figures("sync_oldest_run_timestamp_seconds") > 1_600_000_000
    assert "walnuts" not in text


# ---- who may read it ------------------------------------------------------------------------------


async def test_with_keys_it_needs_an_admins_key(tmp_path: Path) -> None:
    """Discriminates: a route that any key may read, or no key."""
    async with open_app(make_settings(tmp_path, server=KEYS)) as app:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"x-api-key": "wrong"}):
            refused = await app.client.get("/metrics", headers=headers)
            assert refused.status_code == 401
            assert "wenmai_" not in refused.text
        refused = await app.client.get("/metrics", headers={"authorization": "Bearer alice"})
        assert (refused.status_code, "wenmai_" in refused.text) == (403, False)
        await scrape(app, authorization="Bearer operator")
        figures = await scrape(app, **{"x-api-key": "operator"})
    assert figures("errors_total", code="unauthorized") == 3


async def test_without_keys_it_is_only_reachable_by_local_names(app: App) -> None:
    await scrape(app)
    assert (await app.client.get("/metrics", headers={"host": "evil.example"})).status_code == 400
    assert (await scrape(app))("errors_total", code="invalid_host") == 1


def test_openapi_says_that_it_is_plain_text(tmp_path: Path) -> None:
    described = create_app(make_settings(tmp_path)).openapi()["paths"]["/metrics"]["get"]
    assert list(described["responses"]["200"]["content"]) == ["text/plain"]
    assert "401" in described["responses"]


# ---- while something is unreachable -----------------------------------------------------------------


async def test_it_is_answered_although_the_store_was_never_reachable(tmp_path: Path) -> None:
    """Discriminates: querying the store at a scrape."""
    nobody = {"qdrant_url": "http://127.0.0.1:9"}
    async with open_app(make_settings(tmp_path, store=nobody)) as app:
        figures = await scrape_updated(app)
    assert figures("ready", part="store") == 0
    assert figures("ready", part="server") == 1
    assert not figures.has("stored")


async def test_an_unreachable_store_is_reported_and_its_last_figures_stay(app: App) -> None:
    await app.ask("Why?")
    assert (await scrape_updated(app))("ready", part="store") == 1
    await app.container.store.close()
    figures = await scrape_updated(app)
    assert figures("ready", part="store") == 0
    assert figures("stored", kind="turns") == 1


async def test_a_server_that_shuts_down_says_so(app: App) -> None:
    await app.container.running.close(0)
    figures = await scrape(app)
    assert (figures("ready", part="server"), figures("ready", part="store")) == (0, 1)


# ---- two in one process -----------------------------------------------------------------------------


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_two_applications_in_one_process_count_separately(tmp_path: Path) -> None:
    """Discriminates: one registry for the process."""
    async with open_app(make_settings(tmp_path / "a")) as one, open_app(make_settings(tmp_path / "b")) as two:
        await one.ask("Why?")
        await two.client.post(CHAT, json={"question": ""})
        first, second = await scrape(one), await scrape(two)
    assert first("turns_total", status="completed", model="default") == 1
    assert second("turns_total", status="completed", model="default") == 0
    assert second("errors_total", code="empty_question") == 1
    assert first("errors_total", code="empty_question") != 1
