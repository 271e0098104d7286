"""Imports and exports conversations over HTTP, for tests."""

from __future__ import annotations

import uuid
from typing import Any

from tests.support.servers.app import App

IMPORT = "/sessions/import"


def uid() -> str:
    return str(uuid.uuid4())


def qa(question: str = "Why?", answer: str = "Because.", **more: Any) -> dict[str, Any]:
    return {"question": question, "answer": answer, **more}


async def import_session(app: App, **body: Any) -> dict[str, Any]:
    """Import a session; returns its id, the turns' ids and how many are being embedded."""
    response = await app.client.post(IMPORT, json=body)
    assert response.status_code == 201, response.text
    imported: dict[str, Any] = response.json()
    return imported


async def exported(app: App, session_id: str) -> dict[str, Any]:
    """Return the session's JSON export."""
    response = await app.client.get(f"/sessions/{session_id}/export", params={"format": "json"})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


async def tree(app: App, session_id: str) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = (await app.client.get(f"/sessions/{session_id}/tree")).json()["turns"]
    return nodes


async def branch(app: App, session_id: str) -> list[dict[str, Any]]:
    """Return the branch that ends in the newest turn."""
    turns: list[dict[str, Any]] = (await app.client.get(f"/sessions/{session_id}/turns")).json()["turns"]
    return turns
