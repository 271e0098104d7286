"""The guide that ships with Wenmai, over HTTP: it is left out beside a user's own documents, and can be
removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.admin.sample import SAMPLE_FOLDER, SAMPLE_MARKER
from core.knowledge import DocumentStatus, Upload
from services.store.dialect import Filter
from services.store.points import equals, matching
from tests.e2e.knowledge.test_search import search
from tests.support.servers.app import App, make_settings, open_app
from tests.support.waiting import until

BACKUPS = "# 备份\n\n备份写成一个归档文件，服务运行时也可以做。"
OWN = "# 运维手册\n\n备份每晚两点做，磁带存放在三号库房。"
QUESTION = "备份怎么做？"


async def add_sample(app: App) -> str:
    """As the first start ingests it."""
    upload = Upload("shared", "operations.md", BACKUPS.encode(), "zh/operations.md", tags=())
    addition = await app.container.knowledge.add(upload)
    assert addition.job_id is not None
    await app.container.knowledge.wait(addition.job_id, ["shared"])
    return addition.document.document_id


async def test_beside_own_documents_the_sample_is_not_searched_and_why_not_says_so(app: App) -> None:
    """Discriminates: only one of search and turn; a report as if everything had been searched."""
    sample_id = await add_sample(app)
    before = await search(app, QUESTION)
    assert [one["document_id"] for one in before["candidates"]] == [sample_id]
    assert before["sample_left_out"] is False
    own_id = await app.add_text("手册.md", OWN)
    after = await search(app, QUESTION, document_id=sample_id)
    assert {one["document_id"] for one in after["candidates"]} == {own_id}
    assert after["sample_left_out"] is True
    assert after["document"]["stage"] == "sample"
    assert "示例文档" in after["document"]["message"]
    answered = await app.ask(QUESTION)
    assert {one["document_id"] for one in answered.sources} == {own_id}
    named = await search(app, "问脉的备份怎么做？", document_id=sample_id)
    assert named["sample_left_out"] is False
    assert sample_id in {one["document_id"] for one in named["candidates"]}
    limited = await search(app, QUESTION, filters={"document_ids": [sample_id]})
    assert [one["document_id"] for one in limited["candidates"]] == [sample_id]


async def test_own_documents_are_answered_from_while_the_sample_is_ingested(tmp_path: Path) -> None:
    """Discriminates: "still being read in", and a stricter threshold, for what is not searched."""
    async with open_app(make_settings(tmp_path, retrieval={"rerank_score_threshold": 0.01})) as app:
        await add_sample(app)
        await app.add_text("手册.md", OWN)
        app.container.knowledge.jobs.sample_pending = True
        assert not (await app.ask(QUESTION)).answer.startswith("文档还在读入")
        assert (await app.ask("问脉的备份怎么做？")).answer.startswith("文档还在读入")


async def test_beside_a_shared_folder_the_search_itself_leaves_the_sample_out(app: App) -> None:
    """Even as an early version stored it. Discriminates: leaving out everything that is shared; a filter that
    only matches an empty field, or only a missing one."""
    sample_id = await add_sample(app)
    upload = Upload("shared", "handbook.md", OWN.encode(), "handbook/handbook.md", source="handbook")
    addition = await app.container.knowledge.add(upload)
    assert addition.job_id is not None
    await app.container.knowledge.wait(addition.job_id, ["shared"])
    collection = app.container.settings.store.knowledge_collection
    for _ in ("a field that is empty", "no field"):
        report = await search(app, QUESTION, document_id=sample_id)
        hits = [one["document_id"] for one in report["candidates"]]
        assert hits == [addition.document.document_id]
        assert report["document"]["stage"] == "sample"
        chunks = matching(Filter(must=[equals("document_id", sample_id)]))
        await app.container.store.delete_payload(collection, keys=["source"], points=chunks)


async def test_the_sample_is_marked_and_removed_for_good_and_nothing_else_is(app: App) -> None:
    sample_id, own_id = await add_sample(app), await app.add_text("手册.md", OWN)
    listed = (await app.client.get("/documents")).json()["documents"]
    assert {one["document_id"]: one["sample"] for one in listed} == {sample_id: True, own_id: False}
    removed = await app.client.delete("/documents/sample")
    assert (removed.status_code, removed.json()) == (200, {"documents": 1, "chunks": 1, "left": 0})
    assert (await app.client.get(f"/documents/{sample_id}")).status_code == 404
    assert (await app.client.get(f"/documents/{own_id}")).status_code == 200
    assert (app.container.settings.store.data_dir / SAMPLE_MARKER).exists()
    again = await app.client.delete("/documents/sample")
    assert (again.status_code, again.json()["documents"]) == (200, 0)
    assert (await search(app, QUESTION))["sample_left_out"] is False


async def test_a_backup_that_holds_the_sample_does_not_make_its_removal_fail(app: App) -> None:
    """Discriminates: a trace for each document of the public guide that an archive holds."""
    await add_sample(app)
    assert (await app.client.post("/admin/backups", json={})).status_code == 200
    assert (await app.client.delete("/documents/sample")).json() == {"documents": 1, "chunks": 1, "left": 0}


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_with_keys_only_an_operator_removes_it(tmp_path: Path) -> None:
    """Discriminates: a key that may not delete the sample's documents individually removing all of them."""
    keys = {"api_keys": ["key-ann"], "admin_api_keys": ["key-root"]}
    async with open_app(make_settings(tmp_path, server=keys)) as app:
        sample_id = await add_sample(app)
        for key, status, left in (("key-ann", 403, [sample_id]), ("key-root", 200, [])):
            headers = {"authorization": f"Bearer {key}"}
            assert (await app.client.delete("/documents/sample", headers=headers)).status_code == status
            assert await app.container.knowledge.documents.sample_ids() == left


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_shared_document_says_where_it_is_changed(tmp_path: Path) -> None:
    """Discriminates: "there is no such document" for one that the same key has just listed; a hint at
    somebody else's."""
    keys = {"api_keys": ["key-ann", "key-bo"], "admin_api_keys": ["key-root"]}
    async with open_app(make_settings(tmp_path, server=keys)) as app:
        sample_id = await add_sample(app)
        upload = Upload("shared", "handbook.md", OWN.encode(), "handbook/handbook.md", source="handbook")
        followed = (await app.container.knowledge.add(upload)).document.document_id
        files, bo = {"file": ("own.md", OWN.encode())}, {"authorization": "Bearer key-bo"}
        own = (await app.client.post("/documents", files=files, headers=bo)).json()["document"]["document_id"]
        expected = {
            followed: (409, "conflict", "[sources.handbook]"),
            sample_id: (403, "forbidden", "DELETE /documents/sample"),
            own: (404, "unknown_document", "no such document"),
        }
        for key in ("key-ann", "key-root"):
            headers = {"authorization": f"Bearer {key}"}
            for document_id, (status, code, words) in expected.items():
                for method, body in (
                    ("PATCH", {"tags": ["x"]}),
                    ("PATCH", {"date": "2026"}),
                    ("DELETE", None),
                ):
                    path = f"/documents/{document_id}"
                    reply = await app.client.request(method, path, json=body, headers=headers)
                    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
                    assert words in reply.json()["error"]["message"]
        assert await app.container.knowledge.documents.sample_ids() == [sample_id]
        assert (await app.client.get(f"/documents/{followed}", headers=bo)).json()["tags"] == []


async def test_a_sample_removed_during_its_ingestion_does_not_come_back(tmp_path: Path) -> None:
    """Discriminates: a loader that continues with the next file; a mark that is missing at the next start."""
    settings = make_settings(tmp_path, knowledge={"load_sample": True})
    async with open_app(settings) as app:
        assert app.container.knowledge.jobs.is_active(["shared"])
        await until(lambda: app.container.knowledge.jobs.list(["shared"]))
        removed = await app.client.delete("/documents/sample")
        assert removed.status_code == 200
        assert not app.container.knowledge.jobs.is_active(["shared"])
        assert await app.container.knowledge.documents.sample_ids() == []
    async with open_app(settings) as app:
        assert await app.container.knowledge.documents.sample_ids() == []


async def test_a_new_version_brings_its_guide_unless_the_sample_was_removed(tmp_path: Path) -> None:
    """An earlier version left an empty marker. Discriminates: a guide that stays that of the first start,
    with settings that no longer exist; a page that is gone; a removed sample that an upgrade brings back."""
    settings = make_settings(tmp_path, knowledge={"load_sample": True})
    marker = settings.store.data_dir / SAMPLE_MARKER
    async with open_app(make_settings(tmp_path)) as app:
        outdated = await add_sample(app)
        upload = Upload("shared", "asking.md", OWN.encode(), "zh/asked-before.md", tags=())
        dropped = (await app.container.knowledge.add(upload)).document.document_id
    marker.touch()
    shipped = (SAMPLE_FOLDER / "zh" / "operations.md").read_bytes()
    async with open_app(settings) as app:
        knowledge = app.container.knowledge
        await until(lambda: not knowledge.jobs.sample_pending, limit_s=120)
        now = await knowledge.get_document(outdated, ["shared"])
        assert (now.size_bytes, now.status) == (len(shipped), DocumentStatus.READY)
        assert dropped not in await knowledge.documents.sample_ids()
    async with open_app(settings) as app:
        assert not app.container.knowledge.jobs.sample_pending
        assert (await app.client.delete("/documents/sample")).json()["left"] == 0
    for content in (marker.read_bytes(), b""):
        marker.write_bytes(content)
        async with open_app(settings) as app:
            jobs = app.container.knowledge.jobs
            await until(lambda jobs=jobs: not jobs.sample_pending)  # type: ignore[misc]
            assert await app.container.knowledge.documents.sample_ids() == []
