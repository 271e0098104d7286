"""A long session, or a long list of memories, is sent piece by piece, and is as a short one otherwise."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from core.conversation.turns import Turn, TurnStatus
from core.memory.record import Memory
from services.conversation.turns import TurnVectors
from tests.support.servers.app import App

TURNS = 1_100
PIECES = 3


def uid(number: int) -> str:
    return str(uuid.UUID(int=number))


class Pieces:
    """An application that passes everything on and counts the pieces of its answers' bodies."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.number = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def counted(message: Any) -> None:
            self.number += bool(message.get("body"))
            await send(message)

        await self._app(scope, receive, counted)


async def received(app: App, path: str) -> tuple[httpx.Response, int]:
    """The response, and the number of its pieces."""
    pieces = Pieces(app.client._transport.app)  # type: ignore[attr-defined]
    transport = httpx.ASGITransport(pieces)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        response = await client.get(path)
    return response, pieces.number


async def long_session(app: App) -> str:
    """Store a session whose turns follow one another; returns its id."""
    session_id = (await app.client.post("/sessions", json={})).json()["session_id"]
    turns = [
        Turn(
            uid(number), session_id, "local", f"question {number}", number, TurnStatus.COMPLETED,
            parent_turn_id=uid(number - 1) if number > 1 else None, answer=f"answer {number}", seq=number - 1,
        )
        for number in range(1, TURNS + 1)
    ]  # fmt: skip
    await app.container.conversations.turns.put_many([(turn, TurnVectors()) for turn in turns])
    return str(session_id)


@pytest.mark.parametrize("form", ["turns", "tree"])
async def test_a_long_session_is_sent_in_pieces(app: App, form: str) -> None:
    """Discriminates: one body, which at 20,000 turns is a hundred megabytes and holds everybody up."""
    session_id = await long_session(app)
    response, pieces = await received(app, f"/sessions/{session_id}/{form}")
    turns = response.json()["turns"]
    assert [turn["turn_id"] for turn in turns] == [uid(number) for number in range(1, TURNS + 1)]
    assert [turn["parent_turn_id"] for turn in turns] == [None, *[uid(number) for number in range(1, TURNS)]]
    assert pieces >= PIECES


async def test_a_link_to_a_long_session_is_sent_in_pieces(app: App) -> None:
    """Discriminates: one page, built while nobody else is answered."""
    session_id = await long_session(app)
    link = (await app.client.post(f"/sessions/{session_id}/shares", json={})).json()
    response, pieces = await received(app, link["url"])
    numbers = re.findall(r"<h2>question (\d+)</h2><div><p>answer \1</p>", response.text)
    assert numbers == [str(number) for number in range(1, TURNS + 1)]
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.text.endswith("</body></html>")
    assert pieces >= PIECES


async def test_a_link_to_a_long_session_is_created_without_reading_its_turns(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: reading every text of the branch for the id at its end: at 20,000 turns half a minute
    and 300 MB."""
    session_id = await long_session(app)
    read: list[str] = []
    retrieve = app.container.store.retrieve

    async def counting(name: str, ids: Sequence[str], **contents: Any) -> Any:
        read.extend(ids if name == "conversations" else ())
        return await retrieve(name, ids, **contents)

    monkeypatch.setattr(app.container.store, "retrieve", counting)
    link = await app.client.post(f"/sessions/{session_id}/shares", json={})
    assert (link.status_code, link.json()["leaf"], read) == (201, uid(TURNS), [])


@pytest.mark.parametrize("form", ["turns", "tree"])
async def test_an_empty_session_has_no_turns(app: App, form: str) -> None:
    session_id = (await app.client.post("/sessions", json={})).json()["session_id"]
    response = await app.client.get(f"/sessions/{session_id}/{form}")
    assert (response.headers["content-type"], response.json()) == ("application/json", {"turns": []})


async def test_many_memories_are_exported_in_pieces(app: App) -> None:
    """Discriminates: one body, which held everybody up for half a second at 20,000 memories."""
    memories = [Memory(uid(number), "local", f"fact {number}", created_us=number) for number in range(TURNS)]
    await app.container.memories.records.put_many([(memory, None) for memory in memories])
    response, pieces = await received(app, "/memories/export")
    contents = [memory["content"] for memory in response.json()["memories"]]
    assert contents == [memory.content for memory in memories]
    assert pieces >= PIECES
