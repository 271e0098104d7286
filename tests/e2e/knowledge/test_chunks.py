"""GET /documents/{id}/chunks/{chunk_id}: a chunk with its surroundings."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.app import App, make_settings, open_app

PARAGRAPH = "The {} clause of this part says what is to be done, at some length and in plain words."
ORDINALS = ("first", "second", "third", "fourth")
TEXT = "\n\n".join(
    f"# Part {part}\n\n" + "\n\n".join(PARAGRAPH.format(ordinal) for ordinal in ORDINALS) for part in (1, 2)
)


@asynccontextmanager
async def filled(tmp_path: Path, **sections: Any) -> AsyncIterator[tuple[App, str, list[dict[str, Any]]]]:
    """The app, a document's id, and its chunks: four of each part."""
    knowledge = {"chunk_tokens": 32, **sections.pop("knowledge", {})}
    async with open_app(make_settings(tmp_path, knowledge=knowledge, **sections)) as app:
        document_id = await app.add_text("parts.md", TEXT)
        chunks = (await app.client.get(f"/documents/{document_id}/chunks")).json()["chunks"]
        assert len(chunks) == 8
        yield app, document_id, chunks


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_chunk_comes_with_its_neighbours_and_its_section(tmp_path: Path) -> None:
    """Discriminates: parameters that are not passed on; a section that continues into the next."""
    async with filled(tmp_path) as (app, document_id, chunks):
        path = f"/documents/{document_id}/chunks/{chunks[3]['chunk_id']}"
        plain = (await app.client.get(path)).json()
        wide = (await app.client.get(f"{path}?before=10&after=2&section=false")).json()
        none = (await app.client.get(f"{path}?before=0&after=0")).json()
        refused = [(await app.client.get(f"{path}?{name}=11")).status_code for name in ("before", "after")]
    assert {key: plain[key] for key in chunks[3]} == chunks[3]
    assert plain["neighbours"] == {"before": [chunks[2]], "after": [chunks[4]]}
    assert plain["section"] == chunks[:4]
    assert (wide["neighbours"], wide["section"]) == ({"before": chunks[:3], "after": chunks[4:6]}, [])
    assert (none["neighbours"], none["section"]) == ({"before": [], "after": []}, chunks[:4])
    assert refused == [422, 422]


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_missing_chunk_is_not_found(tmp_path: Path) -> None:
    async with filled(tmp_path) as (app, document_id, chunks):
        other = await app.add_text("other.md", "Something else.")
        answers = [
            await app.client.get(f"/documents/{document}/chunks/{chunk}")
            for document, chunk in (
                (document_id, uuid.uuid4()),
                (uuid.uuid4(), chunks[0]["chunk_id"]),
                (other, chunks[0]["chunk_id"]),
            )
        ]
    assert [answer.status_code for answer in answers] == [404] * 3
    assert {answer.json()["error"]["code"] for answer in answers} == {"unknown_chunk"}


@pytest.mark.slow("waits for the process that reads documents to start")
async def test_another_owners_chunk_is_not_found(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, server={"api_keys": ["key-a", "key-b"]})
    mine, other = ({"Authorization": f"Bearer key-{name}"} for name in "ab")
    async with open_app(settings) as app:
        files = {"file": ("mine.md", b"Mine alone.")}
        added = (await app.client.post("/documents", files=files, headers=mine)).json()
        await app.client.get(f"/jobs/{added['job_id']}/stream", headers=mine)
        path = f"/documents/{added['document']['document_id']}/chunks"
        [chunk] = (await app.client.get(path, headers=mine)).json()["chunks"]
        path = f"{path}/{chunk['chunk_id']}"
        answers = [(await app.client.get(path, headers=who)).status_code for who in (mine, other)]
    assert answers == [200, 404]
