"""A turn that did not complete can be asked again using only what GET /turns/{id} returns."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models

from core.conversation.turns import AskedWith, TurnStatus
from services.store.points import equals
from tests.services.conversation.stores import TURNS
from tests.support.servers.app import CHAT, App, make_settings, open_app, scripted
from tests.support.wire.copies import exported, import_session, qa
from tests.support.wire.sse import Streamed, frames

OPTIONS = {
    "thinking": True, "rerank_top_n": 3, "use_insert_block": True, "insert_block_llm_id": "judge",
    "knowledge": "always", "date": "2020-05", "memory": False,
}  # fmt: skip
DEFAULTS: dict[str, Any] = {
    "thinking": False, "rerank_top_n": 10, "use_insert_block": False, "insert_block_llm_id": None,
    "knowledge": "auto", "date": "", "memory": True, "tools": [], "temperature": None, "max_tokens": None,
}  # fmt: skip


def settings(folder: Path, *script: str, **sections: Any) -> Any:
    llms = {"default": scripted(*script), "judge": scripted('{"can_answer": false}')}
    return make_settings(folder, models={"llms": llms}, **sections)


async def read(app: App, turn_id: str) -> dict[str, Any]:
    response = await app.client.get(f"/turns/{turn_id}")
    assert response.status_code == 200, response.text
    turn: dict[str, Any] = response.json()
    return turn


def again(turn: dict[str, Any]) -> dict[str, Any]:
    """The request that asks a turn again, as a client builds it."""
    remaining = ("turn_id", "session_id", "parent_turn_id", "model_id")
    limits = {"filters": turn["filters"]} if "filters" in turn else {}
    return {
        "question": turn["question"],
        **{name: turn[name] for name in remaining},
        **turn["request"],
        **limits,
    }


async def retry(app: App, turn: dict[str, Any]) -> Streamed:
    """Asked again, the turn must complete as a single stored point."""
    response = await app.client.post(CHAT, json=again(turn))
    assert response.status_code == 200, response.text
    streamed = Streamed(frames(response.text))
    stored = await read(app, turn["turn_id"])
    assert (streamed.finished["status"], stored["status"]) == ("completed", "completed")
    assert stored["answer"] == streamed.answer
    session = equals("session_id", turn["session_id"])
    records, _ = await app.container.store.scroll(TURNS, models.Filter(must=[session]), 100)
    assert [(record.payload or {})["turn_id"] for record in records].count(turn["turn_id"]) == 1
    return streamed


async def mark(app: App, turn_id: str, status: TurnStatus) -> None:
    """Mark the turn as left by a stop, or by a start after a crash."""
    await app.container.conversations.turns.set_payload({"status": status.value}, [turn_id])


async def test_a_failed_turn_completes_from_its_returned_fields(tmp_path: Path) -> None:
    """Discriminates: a turn stored without its request; filters compared in another order."""
    filters = {"tags": ["b", "a"], "since": "2024"}
    failed: list[tuple[dict[str, Any], dict[str, Any]]] = []
    async with open_app(settings(tmp_path, "!")) as app:
        for asked in ({}, OPTIONS, {"filters": filters}, {**OPTIONS, "filters": {}}):
            streamed = await app.ask(" Try\n\n\n\nit. ", **asked)
            turn = await read(app, streamed.finished["turn_id"])
            expected = {name: asked.get(name, value) for name, value in DEFAULTS.items()}
            assert (turn["status"], turn["request"]) == ("failed", expected)
            failed.append((turn, expected))
    async with open_app(settings(tmp_path, "done")) as app:
        for turn, expected in failed:
            assert (await retry(app, turn)).answer == "done"
            assert (await read(app, turn["turn_id"]))["request"] == expected
            assert (await retry(app, turn)).answer == "done"  # a replay


@pytest.mark.full("opens the whole application, more than once or for seconds")
@pytest.mark.parametrize("status", [TurnStatus.CANCELLED, TurnStatus.INTERRUPTED])
async def test_a_slash_command_is_repeated_whatever_its_filters_were(app: App, status: TurnStatus) -> None:
    """Discriminates: a command's filters in its fingerprint, which nobody can read back."""
    first = await app.ask("What is this?")
    fields = await app.ask("/help", session_id=first.session_id, filters={"tags": ["a"]}, rerank_top_n=2)
    await mark(app, fields.finished["turn_id"], status)
    turn = await read(app, fields.finished["turn_id"])
    assert "filters" not in turn
    assert (await retry(app, turn)).answer == fields.answer


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_turn_whose_parent_has_expired_is_asked_again_as_a_root(app: App) -> None:
    """Discriminates: comparing the requested parent with the stored one, which no longer exists."""
    first = await app.ask("One?")
    second = await app.ask("Two?", session_id=first.session_id)
    turn_id = second.finished["turn_id"]
    await mark(app, turn_id, TurnStatus.INTERRUPTED)
    remaining = await read(app, turn_id)
    await app.container.conversations.turns.delete([first.finished["turn_id"]])
    turn = await read(app, turn_id)
    assert (remaining["parent_turn_id"], turn["parent_turn_id"]) == (first.finished["turn_id"], None)
    elsewhere = await app.client.post(CHAT, json={**again(turn), "parent_turn_id": str(uuid.uuid4())})
    assert elsewhere.status_code == 409
    assert (await retry(app, turn)).finished["parent_turn_id"] is None


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_turn_limited_to_an_erased_document_is_asked_again(app: App) -> None:
    """Discriminates: comparing only with the hash of the first request."""
    ids = [await app.add_text(f"{name}.md", f"The {name} pass costs ten.") for name in ("owl", "elk")]
    asked = await app.ask("What does it cost?", filters={"document_ids": ids})
    await mark(app, asked.finished["turn_id"], TurnStatus.CANCELLED)
    for document_id in ids:
        assert (await app.client.delete(f"/documents/{document_id}")).status_code == 200
    turn = await read(app, asked.finished["turn_id"])
    assert (await retry(app, turn)).sources == []


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_filtered_question_is_asked_again_by_its_sender_and_by_a_reader(
    tmp_path: Path,
) -> None:
    """A filter of the deployment may change its own output once more.

    Discriminates: comparing only the filter's output; a first request that is forgotten.
    """
    filters = {"question_filters": ["tests.support.models.text_filters:signed"]}
    turn_id = str(uuid.uuid4())
    async with open_app(settings(tmp_path, "!", conversation=filters)) as app:
        await app.ask("Try.", turn_id=turn_id)
        turn = await read(app, turn_id)
        assert turn["question"] == "Try.\n\nsigned"
        assert (await app.client.post(CHAT, json=again(turn))).status_code == 200
        assert (await app.ask("Try.", turn_id=turn_id)).finished["status"] == "failed"
    async with open_app(settings(tmp_path, "done", conversation=filters)) as app:
        assert (await retry(app, await read(app, turn_id))).answer == "done"


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_another_request_under_the_id_is_still_refused(tmp_path: Path) -> None:
    """Discriminates: a comparison that leaves one of the fields out."""
    async with open_app(settings(tmp_path, "!")) as app:
        failed = await app.ask("Try.", **OPTIONS, filters={"tags": ["a"]})
        turn = await read(app, failed.finished["turn_id"])
        others = (
            {"question": "Else."}, {"thinking": False}, {"rerank_top_n": 4}, {"use_insert_block": False},
            {"insert_block_llm_id": None}, {"knowledge": "auto"}, {"date": ""}, {"memory": True},
            {"model_id": "judge"},
            {"filters": {"tags": ["b"]}},
            {"session_id": str(uuid.uuid4())},
        )  # fmt: skip
        for other in others:
            response = await app.client.post(CHAT, json={**again(turn), **other})
            assert (response.status_code, response.json()["error"]["code"]) == (409, "turn_conflict"), other


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_turn_imported_elsewhere_is_asked_again_there(app: App) -> None:
    how = {**DEFAULTS, "rerank_top_n": 4}
    fields = qa("What is this?", "", status="failed", model_id="default", request=how)
    imported = await import_session(app, turns=[fields, qa(), qa(model_id="default", status="failed")])
    turn = await read(app, imported["turns"][0])
    assert turn["request"] == how
    copied = (await exported(app, imported["session_id"]))["turns"]
    assert [one["request"] for one in copied] == [turn["request"], None, None]
    assert (await retry(app, turn)).finished["turn_id"] == turn["turn_id"]
    unknown = await read(app, imported["turns"][2])
    assert "request" not in unknown
    assert (await app.client.post(CHAT, json=again({**unknown, "request": DEFAULTS}))).status_code == 409


@pytest.mark.full("opens the whole application, more than once or for seconds")
@pytest.mark.parametrize(
    "bad", [{"rerank_top_n": 0}, {"rerank_top_n": 51}, {"thinking": 1}, {"date": "now"}, {"surplus": 1}]
)
async def test_a_request_that_nobody_could_send_is_not_imported(app: App, bad: dict[str, Any]) -> None:
    response = await app.client.post("/sessions/import", json={"turns": [qa(request={**DEFAULTS, **bad})]})
    assert response.status_code == 422
    assert f"request.{next(iter(bad))}" in response.json()["error"]["message"]


async def test_a_damaged_request_does_not_lose_the_turn(app: App) -> None:
    asked = await app.ask("What is this?")
    turns, turn_id = app.container.conversations.turns, asked.finished["turn_id"]
    for damaged in ("x", {"rerank_top_n": "many"}, [1]):
        await turns.set_payload({"request": damaged}, [turn_id])
        assert "request" not in await read(app, turn_id)
    await turns.set_payload({"request": {"thinking": True}}, [turn_id])
    stored = await turns.get(turn_id)
    assert stored is not None
    assert stored.request == AskedWith(thinking=True)
