"""The tags of the documents that somebody may read, and what else the page is told before it asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from core.knowledge import SHARED_OWNER, Document, DocumentStatus
from services.knowledge.documents import DocumentStore
from tests.support.servers.app import App, make_settings, open_app, scripted


async def tags(client: httpx.AsyncClient, key: str = "") -> list[tuple[str, int]]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    response = await client.get("/tags", headers=headers)
    assert response.status_code == 200, response.text
    return [(each["tag"], each["documents"]) for each in response.json()["tags"]]


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_tags_are_listed_with_their_document_counts_most_first_then_by_name(app: App) -> None:
    """Discriminates: counting chunks; the engine's order; a tag that outlives its documents."""
    assert await tags(app.client) == []
    long = "\n\n".join(f"# Part {n}\n{'The heron pass costs ten. ' * 60}" for n in range(6))
    first = await app.add_text("one.md", long, tags="合同,2024")
    second = await app.add_text("two.md", "The owl pass costs two.", tags="2024,beta")
    await app.add_text("three.md", "The elk pass costs three.")
    assert await tags(app.client) == [("2024", 2), ("beta", 1), ("合同", 1)]
    listed = await app.client.get("/documents", params={"tag": "2024"})
    assert len(listed.json()["documents"]) == 2
    await app.client.patch(f"/documents/{second}", json={"tags": ["alpha"]})
    assert await tags(app.client) == [("2024", 1), ("alpha", 1), ("合同", 1)]
    await app.client.delete(f"/documents/{first}")
    assert await tags(app.client) == [("alpha", 1)]


async def test_an_upload_accepts_every_tag_that_is_sent(app: App) -> None:
    """Discriminates: only the last of repeated fields; a JSON array that is split at its commas."""
    sent: tuple[tuple[str | list[str], list[str]], ...] = (
        (["hr", "policy, 2024"], ["hr", "policy", "2024"]),
        ('["hr", "policy, 2024"]', ["hr", "policy, 2024"]),
        ("[]", []),
        ([f"t{n}" for n in range(32)], [f"t{n}" for n in range(32)]),
    )
    for number, (tags_field, stored) in enumerate(sent):
        file = {"file": ("a.md", f"# Fees of {number}".encode())}
        response = await app.client.post("/documents", files=file, data={"tags": tags_field})
        assert (response.status_code, response.json()["document"]["tags"]) == (201, stored), tags_field


async def test_a_form_that_would_lose_a_field_is_refused(app: App) -> None:
    forms: tuple[tuple[str, str | list[str], str], ...] = (
        ("tags", '["hr", 5]', "invalid_field"),
        ("tags", '["hr"', "invalid_field"),
        ("externalid", "7", "unknown_field"),
        ("date", ["2024", "2025"], "invalid_field"),
    )
    for name, value, code in forms:
        response = await app.client.post(
            "/documents", files={"file": ("a.md", b"# Fees")}, data={name: value}
        )
        error = response.json()["error"]
        assert (response.status_code, error["code"], name in error["message"]) == (422, code, True), value
        assert (await app.container.store.count("documents")).count == 0, value


def shared(tag: str) -> Document:
    return Document(
        document_id="5f0c1c62-0000-4000-8000-000000000001", owner=SHARED_OWNER, file_name="guide.md",
        content_hash="0" * 64, size_bytes=1, created_us=1, status=DocumentStatus.READY, tags=(tag,),
    )  # fmt: skip


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_only_tags_of_readable_documents_are_listed(tmp_path: Path) -> None:
    """Discriminates: counting without the owners, or without the shared ones."""
    settings = make_settings(tmp_path, server={"api_keys": ["mine", "other"]})
    async with open_app(settings) as app:
        for key, tag in (("mine", "secret"), ("other", "theirs")):
            added = await app.client.post(
                "/documents", files={"file": ("a.md", b"The heron pass costs ten.")},
                data={"tags": tag}, headers={"authorization": f"Bearer {key}"},
            )  # fmt: skip
            assert added.status_code == 201, added.text
        await DocumentStore(app.container.store, settings.store, lambda: 1).save(shared("guide"))
        assert await tags(app.client, "mine") == [("guide", 1), ("secret", 1)]
        assert await tags(app.client, "other") == [("guide", 1), ("theirs", 1)]
        assert (await app.client.get("/tags")).status_code == 401


@pytest.mark.full("opens the whole application, more than once or for seconds")
@pytest.mark.parametrize(
    ("llms", "judges"),
    [({}, False), ({"default": {"provider": "extractive"}, "big": scripted("x")}, True)],
)
async def test_a_page_receives_its_limits_and_whether_a_model_can_judge(
    tmp_path: Path, llms: dict[str, Any], judges: bool
) -> None:
    settings = make_settings(tmp_path, models={"llms": llms}, conversation={"max_question_chars": 77})
    async with open_app(settings) as app:
        limits = (await app.client.get("/settings/public")).json()
    assert (limits["max_question_chars"], limits["insert_block"]) == (77, judges)
    assert limits["rerank_top_n"] == {"default": 10, "max": 50}
