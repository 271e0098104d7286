"""A document's date: given with the upload, or found in the document; listed, indexed, cited with it."""

from __future__ import annotations

import pytest

from tests.support.servers.app import App

DATED = "# 手册\n\n更新时间：2015 - 12 - 25\n\n文学院的前身是1939年成立的。"


async def upload(app: App, text: str, name: str = "a.md", **fields: str) -> tuple[int, dict[str, str]]:
    reply = await app.client.post("/documents", files={"file": (name, text.encode())}, data=fields or None)
    return reply.status_code, reply.json().get("error") or reply.json()["document"]


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_day_a_month_or_a_year_is_taken_and_listed(app: App) -> None:
    for date in ("2026", "2026-01", "2026-01-31"):
        status, document = await upload(app, f"text of {date}", date=date)
        assert (status, document["date"]) == (201, date)
    listed = (await app.client.get("/documents")).json()["documents"]
    assert {document["date"] for document in listed} == {"2026", "2026-01", "2026-01-31"}


async def test_any_other_form_is_refused_and_nothing_is_stored(app: App) -> None:
    for date in ("31.1.2026", "26", "0999", "3000", "2026-1", "2026-02-30", "2026-01-31T10:00"):
        status, error = await upload(app, "text", date=date)
        assert (status, error["code"]) == (422, "invalid_request")
        says = "date: must be a day, a month or a year, like 2026-01-31, 2026-01 or 2026."
        assert error["message"] == says
    assert (await app.client.get("/documents")).json()["documents"] == []


async def test_the_documents_own_date_is_found_listed_and_searched_unless_the_upload_gives_one(
    app: App,
) -> None:
    """Discriminates: losing the date on the way back from the child process; finding over what was given."""
    document_id = await app.add_text("a.md", DATED)
    other_id = await app.add_text("b.md", DATED + "又及。", date="2020")
    plain_id = await app.add_text("c.md", "文学院成立于1939年，此后发展很快。")
    dates = {
        document["document_id"]: document["date"]
        for document in (await app.client.get("/documents")).json()["documents"]
    }
    assert dates == {document_id: "2015-12-25", other_id: "2020", plain_id: None}
    chunks = (await app.client.get(f"/documents/{document_id}/chunks")).json()["chunks"]
    assert {chunk["date"] for chunk in chunks} == {"2015-12-25"}
