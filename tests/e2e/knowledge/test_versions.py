"""Versions, changes, lists and erasure of documents over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from core.knowledge import Upload
from tests.support.servers.app import App, make_settings, open_app
from tests.support.wire.sse import Streamed

OLD = "# Fees\n\nThe lighthouse costs nine ducats a month.\n"
NEW = "# Fees\n\nThe lighthouse costs twelve ducats a month.\n"
QUESTION = "What does the lighthouse cost?"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    async with open_app(make_settings(tmp_path, retrieval={"rerank_score_threshold": 0.0})) as opened:
        yield opened


async def sources(app: App, asked: Streamed) -> list[dict[str, Any]]:
    body = (await app.client.get(f"/turns/{asked.finished['turn_id']}")).json()
    return list(body["sources"])


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_new_version_answers_and_the_old_citation_is_outdated_and_then_removed(
    app: App,
) -> None:
    document_id = await app.add_text("fees.md", OLD, external_id="fees")
    before = await app.ask(QUESTION)
    assert "nine" in before.sources[0]["text"]
    assert await app.add_text("fees.md", NEW, external_id="fees") == document_id
    after = await app.ask(QUESTION)
    assert ["twelve" in source["text"] for source in after.sources] == [True]
    assert [source.get("outdated", False) for source in await sources(app, before)] == [True]
    assert not any("outdated" in source for source in await sources(app, after))
    await app.client.delete(f"/documents/{document_id}")
    for asked in (before, after):
        assert [source["removed"] for source in await sources(app, asked)] == [True]


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_erasing_a_document_finds_the_traces_of_its_older_versions(app: App) -> None:
    """Discriminates: tracing only the stored chunks."""
    document_id = await app.add_text("fees.md", OLD, external_id="fees")
    asked = await app.ask(QUESTION)
    old_chunk = asked.sources[0]["chunk_id"]
    await app.add_text("fees.md", NEW, external_id="fees")
    erased = (await app.client.delete(f"/documents/{document_id}", params={"proof": "full"})).json()
    assert erased["proof"]["hits"] == 0
    assert "uploads waiting to be read" in {place["place"] for place in erased["proof"]["searched"]}
    for collection in ("conversations", "knowledge", "documents"):
        records, _ = await app.container.store.scroll(collection, limit=1_000)
        payloads = json.dumps([record.payload for record in records])
        assert old_chunk not in payloads
        assert document_id not in payloads


async def test_tags_and_date_are_changed_by_the_documents_owner(app: App) -> None:
    document_id = await app.add_text("fees.md", OLD, tags="a,b")
    path = f"/documents/{document_id}"
    changed = await app.client.patch(path, json={"tags": ["c"]})
    assert (changed.status_code, changed.json()["tags"], changed.json()["date"]) == (200, ["c"], None)
    changed = await app.client.patch(path, json={"date": "2026-03"})
    assert (changed.json()["tags"], changed.json()["date"]) == (["c"], "2026-03")
    assert (await app.client.patch(path, json={"date": None})).json()["date"] is None
    for body in ({"tags": "c"}, {"tags": ["x" * 65]}, {"date": "soon"}, {"owner": "me"}):
        assert (await app.client.patch(path, json=body)).status_code == 422
    missing = await app.client.patch(f"/documents/{'0' * 8}-0000-4000-8000-{'0' * 12}", json={})
    assert missing.status_code == 404
    chunks = (await app.client.get(f"{path}/chunks")).json()["chunks"]
    assert chunks


async def test_documents_are_listed_by_status_source_and_tag(app: App) -> None:
    await app.add_text("fees.md", OLD, tags="a")
    await app.add_text("other.md", NEW, tags="b")

    async def names(**expected: str) -> list[str]:
        listed = (await app.client.get("/documents", params=expected)).json()
        return [document["file_name"] for document in listed["documents"]]

    assert await names() == ["other.md", "fees.md"]
    assert await names(tag="a") == ["fees.md"]
    assert await names(status="ready", tag="b") == ["other.md"]
    assert await names(status="failed") == []
    assert await names(source="nowhere") == []
    assert (await app.client.get("/documents", params={"status": "odd"})).status_code == 422
    [document, _] = (await app.client.get("/documents")).json()["documents"]
    assert (document["source"], document["modified_at"], document["error"]) == ("", None, None)
    assert not {"owner", "created_us", "modified_us", "refused_hash"} & document.keys()


async def test_a_job_reports_its_attempt_its_start_and_its_end(app: App) -> None:
    await app.add_text("fees.md", OLD)
    [job] = (await app.client.get("/jobs")).json()["jobs"]
    assert (job["stage"], job["attempt"], job["retryable"], job["reused"]) == ("done", 1, False, 0)
    assert job["started_at"] <= job["ended_at"]
    assert job["next_try_at"] is None
    assert (await app.client.get(f"/jobs/{job['job_id']}")).json() == job
    streamed = (await app.client.get(f"/jobs/{job['job_id']}/stream")).text
    assert json.loads(streamed.split("data: ")[-1]) == job


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_without_tags_a_new_version_keeps_them_and_an_empty_field_clears_them(app: App) -> None:
    """Discriminates: taking the missing field for an empty one."""
    path = f"/documents/{await app.add_text('fees.md', OLD, external_id='fees', tags='a,b')}"
    for text, fields, remaining in (
        (NEW, {}, ["a", "b"]),
        (OLD, {"tags": ""}, []),
        (NEW, {"tags": "c"}, ["c"]),
    ):
        await app.add_text("fees.md", text, external_id="fees", **fields)
        assert (await app.client.get(path)).json()["tags"] == remaining


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_synced_document_keeps_its_tags_and_its_deletion_names_its_source(app: App) -> None:
    """Discriminates: a change that the next sync undoes; a deletion that looks final."""
    followed = Upload("local", "fees.md", OLD.encode(), "fees.md", source="handbook")
    addition = await app.container.knowledge.add(followed)
    await app.container.knowledge.wait(addition.job_id or "", ["local"])
    path = f"/documents/{addition.document.document_id}"
    refused = await app.client.patch(path, json={"tags": ["x"]})
    assert (refused.status_code, "[sources.handbook]" in refused.text) == (409, True)
    assert (await app.client.patch(path, json={"date": "2026"})).json()["date"] == "2026"
    assert (await app.client.delete(path)).json()["source"] == "handbook"
    uploaded = await app.add_text("other.md", NEW)
    assert (await app.client.delete(f"/documents/{uploaded}")).json()["source"] is None
