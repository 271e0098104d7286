"""A document's date, given with the upload or extracted from the document: listed, indexed, cited."""

from __future__ import annotations

import pytest

from tests.support.servers.app import App

DATED = "# 手册\n\n更新时间：2015 - 12 - 25\n\n文学院的前身是1939年成立的。"


async def upload(app: App, text: str, name: str = "a.md", **fields: str) -> tuple[int, dict[str, str]]:
    reply = await app.client.post("/documents", files={"file": (name, text.encode())}, data=fields or None)
    return reply.status_code, reply.json().get("error") or reply.json()["document"]


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_day_a_month_or_a_year_is_accepted_and_listed(app: App) -> None:
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


async def test_the_documents_own_date_is_extracted_listed_and_searched_unless_the_upload_gives_one(
    app: App,
) -> None:
    """Discriminates: losing the date on the way back from the child process; the extracted date over the
    given one."""
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


TUITION = "# 收费办法\n\n学费每学年 {} 元，住宿费另计；录取后两周内在财务处缴清，逾期视为放弃录取资格。"


async def test_the_version_valid_when_the_question_is_asked_ranks_first(app: App) -> None:
    """Discriminates: a field of only one of the two routes; today's date whatever the request says."""
    for date, price in (("2018-03", 4800), ("2021-03", 5200), ("2024-03", 6100)):
        await app.add_text(f"收费办法（{date}）.md", TUITION.format(price), date=date)
    question = "学费每学年多少元？"
    for asked, price in (("", 6100), ("2022", 5200), ("2018-09-01", 4800)):
        reply = await app.client.post("/search", json={"question": question, "date": asked})
        assert f"{price} 元" in reply.json()["candidates"][0]["text"], asked
        answered = await app.ask(question, date=asked)
        assert f"{price} 元" in answered.sources[0]["text"], asked
    answered = await app.ask("去年学费每学年多少元？", date="2022-06-01")
    assert "5200 元" in answered.sources[0]["text"]
