"""A reader's feedback on an answer: stored with the turn, and deleted with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from core.conversation.turns import TurnStatus
from tests.support.servers.app import App, make_settings, open_app, scripted
from tests.support.wire.copies import exported, import_session, uid


async def rate(client: httpx.AsyncClient, turn_id: str, key: str = "", **body: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return await client.put(f"/turns/{turn_id}/feedback", json=body, headers=headers)


async def read(app: App, turn_id: str) -> dict[str, Any]:
    turn: dict[str, Any] = (await app.client.get(f"/turns/{turn_id}")).json()
    return turn


async def test_feedback_is_given_replaced_and_withdrawn_and_nothing_else_changes(app: App) -> None:
    """Discriminates: rewriting the turn without its texts or its vectors."""
    turn_id = (await app.ask("What is this?")).finished["turn_id"]
    before = await read(app, turn_id)
    assert "feedback" not in before
    fields = await rate(app.client, turn_id, rating="down", comment=" 太短\r\nreally ")
    text = {"rating": "down", "comment": "太短\nreally"}
    assert (fields.status_code, fields.json()) == (200, {"turn_id": turn_id, "feedback": text})
    assert await read(app, turn_id) == {**before, "feedback": text}
    again = {"rating": "up", "comment": ""}
    assert (await rate(app.client, turn_id, rating="up")).json()["feedback"] == again
    listed = (await app.client.get(f"/sessions/{before['session_id']}/turns")).json()["turns"]
    assert listed[0]["feedback"] == again
    commented = await rate(app.client, turn_id, rating=None, comment="only this")
    assert commented.json()["feedback"] == {"rating": None, "comment": "only this"}
    for _ in range(2):
        taken = await rate(app.client, turn_id, rating=None)
        assert (taken.status_code, taken.json()["feedback"]) == (200, None)
    assert await read(app, turn_id) == before


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_feedback_is_in_the_export_and_is_imported_with_it(app: App) -> None:
    asked = await app.ask("What is this?")
    await rate(app.client, asked.finished["turn_id"], rating="up", comment="good")
    copy = await exported(app, asked.session_id)
    assert copy["turns"][0]["feedback"] == {"rating": "up", "comment": "good"}
    assert (await app.client.delete(f"/sessions/{asked.session_id}")).status_code == 200
    assert (await rate(app.client, asked.finished["turn_id"], rating="up")).status_code == 404
    await import_session(app, **copy)
    assert await exported(app, asked.session_id) == copy


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_another_owners_turn_answers_as_unknown(tmp_path: Path) -> None:
    """Discriminates: rating without comparing the owner."""
    async with open_app(make_settings(tmp_path, server={"api_keys": ["mine", "other"]})) as app:
        asked = await app.client.post(
            "/knowledge_chat_conversation", json={"question": "Mine?", "stream": False},
            headers={"authorization": "Bearer mine"},
        )  # fmt: skip
        turn_id = asked.json()["turn_id"]
        for turn, key in ((turn_id, "other"), (uid(), "mine")):
            refused = await rate(app.client, turn, key, rating="up")
            assert (refused.status_code, refused.json()["error"]["code"]) == (404, "unknown_turn")
        stored = await app.container.conversations.turns.get(turn_id)
        assert stored is not None
        assert stored.feedback is None


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_running_answer_cannot_be_rated_and_a_regenerated_one_has_no_rating(
    tmp_path: Path,
) -> None:
    """Discriminates: feedback that the end of the turn would overwrite; an old rating beside a new answer."""
    async with open_app(make_settings(tmp_path, models={"llms": {"default": scripted("so")}})) as app:
        turn_id = (await app.ask("Why?", turn_id=uid())).finished["turn_id"]
        turns = app.container.conversations.turns
        await turns.set_payload({"status": TurnStatus.RUNNING.value}, [turn_id])
        refused = await rate(app.client, turn_id, rating="up")
        assert (refused.status_code, refused.json()["error"]["retryable"]) == (409, True)
        await turns.set_payload({"status": TurnStatus.INTERRUPTED.value}, [turn_id])
        assert (await rate(app.client, turn_id, rating="down")).status_code == 200
        assert (await app.ask("Why?", turn_id=turn_id)).finished["status"] == "completed"
        assert "feedback" not in await read(app, turn_id)


@pytest.mark.full("opens the whole application, more than once or for seconds")
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "rating"),
        ({"rating": "best"}, "rating"),
        ({"rating": 1}, "rating"),
        ({"rating": "up", "comment": None}, "comment"),
        ({"rating": "up", "comment": "a\0b"}, "comment"),
        ({"rating": "up", "comment": "x" * 2_001}, "comment"),
        ({"rating": "up", "surplus": 1}, "surplus"),
    ],
)
async def test_bad_feedback_is_refused(app: App, body: dict[str, Any], field: str) -> None:
    turn_id = (await import_session(app, turns=[{"question": "Why?"}]))["turns"][0]
    refused = await rate(app.client, turn_id, **body)
    assert refused.status_code == 422
    assert field in refused.json()["error"]["message"]
