"""Documents marked ready that are not searched: found by the doctor, repaired by the repair."""

from __future__ import annotations

from core.operations.backfill_turns import BackfillReport
from services.operations.doctor.store import check_store
from services.store.dialect import Filter
from services.store.points import equals, matching
from tests.support.servers.app import App


async def documents_line(app: App, name: str = "documents") -> str:
    settings = app.container.settings
    found = (await check_store(app.container.store, settings.store, settings.models)).findings
    return next((finding.line for finding in found if finding.name == name), "")


async def repair(app: App) -> BackfillReport:
    backfill = app.container.backfill
    return await backfill.apply(await backfill.plan(), backup=False)


async def test_the_doctor_names_uploads_that_an_earlier_release_read(app: App) -> None:
    """Discriminates: files of followed folders, which need nobody; nothing to do, yet a line."""
    names, store = app.container.settings.store, app.container.store
    old, of_folder, _ = [await app.add_text(f"{n}.md", f"# Part\n\nLamp {n} is lit.") for n in range(3)]
    assert await documents_line(app, "readings") == ""
    await store.set_payload(names.document_collection, {"reading": 0}, points=[old])
    followed = {"reading": 0, "source": "team"}
    await store.set_payload(names.document_collection, followed, points=[of_folder])
    assert "1 document read by an earlier release (0.md)" in await documents_line(app, "readings")


async def test_complete_documents_are_searched_again_and_others_are_marked_lost(app: App) -> None:
    """Discriminates: a document that is ready and in no search."""
    names, store = app.container.settings.store, app.container.store
    whole, hidden, lost = [await app.add_text(f"{n}.md", f"# Part\n\nLamp {n} is lit.") for n in range(3)]
    assert (await repair(app)).documents == 0
    chunks = {each: matching(Filter(must=[equals("document_id", each)])) for each in (hidden, lost)}
    await store.set_payload(names.knowledge_collection, {"ready": False}, points=chunks[hidden])
    await store.delete(names.knowledge_collection, chunks[lost])
    assert "2 documents marked ready but not searched" in await documents_line(app)
    report = await repair(app)
    assert report.documents == 2
    assert report.troubles["document_not_searched"] == 2
    assert "3 documents" in await documents_line(app)
    status = {each: (await app.client.get(f"/documents/{each}")).json() for each in (whole, hidden, lost)}
    assert [each["status"] for each in status.values()] == ["ready", "ready", "failed"]
    assert "add it again" in status[lost]["error"]
    assert (await repair(app)).documents == 0
