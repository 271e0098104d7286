"""Imported conversations: every accepted form, and each mistake refused by its position."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from core.conversation.sessions import MAX_PERSONA_CHARS
from routes.errors import MAX_BODY_BYTES
from tests.services.conversation.stores import SESSIONS, TURNS
from tests.support.models.scripted_llm import RECORDED
from tests.support.servers.app import App, make_settings, open_app, scripted
from tests.support.wire.copies import IMPORT, branch, import_session, qa, tree, uid

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    """Shared: every test works in its own sessions."""
    async with open_app(make_settings(tmp_path_factory.mktemp("shared"))) as opened:
        yield opened


async def refused(app: App, status: int, **body: Any) -> str:
    """Send it; nothing may be stored. Returns the message."""
    before = [(await app.container.store.count(name)).count for name in (TURNS, SESSIONS)]
    response = await app.client.post(IMPORT, json=body)
    assert response.status_code == status, response.text
    assert [(await app.container.store.count(name)).count for name in (TURNS, SESSIONS)] == before
    message: str = response.json()["error"]["message"]
    return message


async def test_turns_follow_each_other_unless_they_name_a_parent(app: App) -> None:
    first, other = uid(), uid()
    turns = [
        qa("one", turn_id=first),
        qa("two"),
        qa("root", parent_turn_id=None),
        qa("four", parent_turn_id=other),
        qa("late parent", parent_turn_id=first, turn_id=other),
    ]
    imported = await import_session(app, turns=turns)
    ids = imported["turns"]
    nodes = await tree(app, imported["session_id"])
    assert [node["turn_id"] for node in nodes] == ids
    assert [node["parent_turn_id"] for node in nodes] == [None, first, None, other, first]
    assert [node["seq"] for node in nodes] == [0, 1, 2, 3, 4]
    assert imported["indexing"] == 5


async def test_times_of_any_zone_are_kept_and_missing_ones_are_a_second_apart_in_order(app: App) -> None:
    """Discriminates: giving every turn without a time the time of the import."""
    timed = await import_session(app, turns=[qa(timestamp="2024-02-29T23:59:59.123456+08:00"), qa()])
    turns = await branch(app, timed["session_id"])
    assert [turn["timestamp"] for turn in turns] == [
        "2024-02-29T15:59:59.123456Z",
        "2024-02-29T16:00:00.123456Z",
    ]
    untimed = await import_session(app, turns=[qa("a"), qa("b"), qa("c")])
    turns = await branch(app, untimed["session_id"])
    assert [turn["question"] for turn in turns] == ["a", "b", "c"]
    assert len({turn["timestamp"] for turn in turns}) == 3


async def test_messages_in_openais_form_become_turns_and_the_system_message_the_persona(app: App) -> None:
    messages = [
        {"role": "system", "content": "You are a pirate."},
        {"role": "user", "content": "Hello?"},
        {"role": "user", "content": "Anybody?"},
        {"role": "assistant", "content": "Arr."},
    ]
    imported = await import_session(app, messages=messages)
    session = (await app.client.get(f"/sessions/{imported['session_id']}")).json()
    turns = await branch(app, imported["session_id"])
    assert session["persona"]["text"] == "You are a pirate."
    assert session["title"] == "Hello?"
    assert [(turn["question"], turn["answer"], turn["status"]) for turn in turns] == [
        ("Hello?", "", "interrupted"), ("Anybody?", "Arr.", "completed"),
    ]  # fmt: skip


async def test_messages_copied_from_a_reply_are_accepted_unchanged(app: App) -> None:
    """Discriminates: refusing a message's other fields, its text in parts, or the role developer."""
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo?"}]
    unset = dict.fromkeys(("refusal", "audio", "tool_calls", "function_call"))
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "You are a pirate."}]},
        {"role": "user", "name": "eve", "content": parts},
        {"role": "assistant", "content": "Arr.", "annotations": [], **unset},
    ]
    imported = await import_session(app, messages=messages)
    session = (await app.client.get(f"/sessions/{imported['session_id']}")).json()
    turns = await branch(app, imported["session_id"])
    assert session["persona"]["text"] == "You are a pirate."
    assert [(turn["question"], turn["answer"]) for turn in turns] == [("Hello?", "Arr.")]


async def test_refusals_count_in_characters_and_have_no_library_prefix(app: App) -> None:
    """Discriminates: pydantic's own words for a limit behind a validator, and for a ValueError."""
    assert await refused(app, 422, turns=[qa()], title="x" * 201) == (
        "title: 201 characters, at most 200 are allowed"
    )
    long = "x" * 10_000_001
    assert await refused(app, 422, turns=[qa(answer=long)]) == (
        "turns.0.answer: 10000001 characters, at most 10000000 are allowed"
    )
    assert await refused(app, 422) == "body: give either turns or messages, not both"
    assert await refused(app, 422, turns=[qa("a\0")]) == (
        "turns.0.question: must not contain the NUL character"
    )


async def test_lone_surrogates_become_replacement_characters_wherever_they_are(app: App) -> None:
    """Discriminates: any single text that is stored unchanged."""
    bad = "a\\ud800"
    body = {
        "title": bad,
        "persona": {"text": bad, "name": bad, "document_id": bad},
        "turns": [
            qa(bad, bad, thinking=bad, model_id=bad, sources=[{"index": 1, "file_name": bad, "text": bad}],
               timings_ms={bad: 1})
        ],
    }  # fmt: skip
    content = json.dumps(body).replace("\\\\ud800", "\\ud800")
    response = await app.client.post(IMPORT, content=content, headers={"content-type": "application/json"})
    assert response.status_code == 201, response.text
    for form in ("md", "json"):
        copy = await app.client.get(f"/sessions/{response.json()['session_id']}/export?format={form}")
        assert copy.text.count("a\ufffd") == {"md": 7, "json": 11}[form]


async def test_an_imported_conversation_continues_and_is_sent_to_the_model(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, models={"llms": {"default": scripted("ok", record_as="imported")}})
    async with open_app(settings) as app:
        imported = await import_session(app, turns=[qa("The parrot is called Otto.", "Noted.")])
        turn = await app.ask("What is its name?", session_id=imported["session_id"])
    assert turn.finished["parent_turn_id"] == imported["turns"][0]
    assert "The parrot is called Otto." in [content for _, content in RECORDED["imported"][-1]]


async def test_an_unanswered_line_is_kept_and_searchable(tmp_path: Path) -> None:
    """One voice of a chat, line by line. Discriminates: words indexed only for turns that have an answer."""
    settings = make_settings(
        tmp_path,
        models={"llms": {"default": scripted("noted", record_as="lines")}},
        conversation={"max_recent_turns": 1},
    )
    async with open_app(settings) as app:
        lines = [qa("The parrot is called Otto.", ""), *(qa(f"Line {n} of the day.", "") for n in range(4))]
        imported = await import_session(app, turns=lines)
        await app.ask("What is the parrot called?", session_id=imported["session_id"])
    assert "The parrot is called Otto." in [content for _, content in RECORDED["lines"][-1]][1]


@pytest.mark.parametrize(
    ("turn", "field"),
    [
        ({"question": ""}, "question"),
        ({"question": " \u200b"}, "question"),
        ({"question": "a\0b"}, "question"),
        ({"answer": 5}, "answer"),
        ({"timestamp": "2024-01-01T00:00:00"}, "timestamp"),
        ({"timestamp": "2024-01-01"}, "timestamp"),
        ({"timestamp": "yesterday"}, "timestamp"),
        ({"timestamp": 1704067200}, "timestamp"),
        ({"timestamp": "2024-13-01T00:00:00Z"}, "timestamp"),
        ({"status": "running"}, "status"),
        ({"command": "format"}, "command"),
        ({"turn_id": "nope"}, "turn_id"),
        ({"parent_turn_id": "00000000-0000-4000-8000-000000000000"}, "parent_turn_id"),
        ({"parent_turn_id": "' OR 1=1"}, "parent_turn_id"),
        ({"sources": [{"index": 1}]}, "sources.0.file_name"),
        ({"sources": [{"index": 1, "file_name": "a", "surplus": 1}]}, "sources.0.surplus"),
        ({"surplus": 1}, "surplus"),
        ({"summary": {"text": "s", "start": "00000000-0000-4000-8000-000000000000", "covers": [],
                      "created_at": "2024-01-01T00:00:00Z"}}, "summary"),
    ],
)  # fmt: skip
async def test_a_bad_turn_is_refused_by_its_position(app: App, turn: dict[str, Any], field: str) -> None:
    message = await refused(app, 422, turns=[qa(), {**qa(), **turn}])
    assert f"turns.1.{field}" in message
    assert len(message) < 500


async def test_parents_that_form_a_cycle_are_refused(app: App) -> None:
    one, two, three = uid(), uid(), uid()
    assert "turns.1.parent_turn_id" in await refused(
        app, 422, turns=[qa(), qa(turn_id=one, parent_turn_id=one)]
    )
    turns = [qa(turn_id=three), qa(turn_id=one, parent_turn_id=two), qa(turn_id=two, parent_turn_id=one)]
    assert "turns.1.parent_turn_id" in await refused(app, 422, turns=turns)


async def test_ids_that_already_exist_are_refused(app: App) -> None:
    session_id, turn_id = uid(), uid()
    await import_session(app, session_id=session_id, turns=[qa(turn_id=turn_id)])
    assert "session_id" in await refused(app, 409, session_id=session_id, turns=[qa()])
    assert "turns.1.turn_id" in await refused(app, 409, turns=[qa(), qa(turn_id=turn_id)])
    assert "turns.1.turn_id" in await refused(
        app, 422, turns=[qa(turn_id=(other := uid())), qa(turn_id=other)]
    )


def entry(role: str) -> dict[str, Any]:
    return {"role": role, "content": "x"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "turns"),
        ({"turns": []}, "turns"),
        ({"turns": [qa()], "messages": [{"role": "user", "content": "x"}]}, "messages"),
        ({"turns": [qa()], "surplus": 1}, "surplus"),
        ({"turns": [qa()], "title": "x" * 201}, "title"),
        ({"turns": [qa()], "session_id": "../x"}, "session_id"),
        ({"turns": [qa()], "persona": ""}, "persona.text"),
        ({"turns": [qa()], "persona": "x" * (MAX_PERSONA_CHARS + 1)}, "persona.text"),
        ({"turns": [qa()], "persona": {"text": "x", "surplus": 1}}, "persona.surplus"),
        ({"turns": [qa()], "created_at": "2024-01-01T00:00:00"}, "created_at"),
        ({"messages": []}, "messages"),
        ({"messages": [entry("user"), {"role": "assistant", "content": " "}]}, "messages.1.content"),
        ({"messages": [entry("assistant")]}, "messages.0.role"),
        ({"messages": [entry("user"), entry("system")]}, "messages.1.role"),
        ({"messages": [{**entry("tool"), "tool_call_id": "1"}]}, "messages.0.role"),
        ({"messages": [entry("user"), entry("assistant"), entry("tool")]}, "messages.2.role"),
        ({"messages": [entry("user"), {**entry("assistant"), "tool_calls": [{}]}]}, "tool_calls.0.id"),
        ({"messages": [entry("wizard")]}, "messages.0.role"),
        ({"messages": [entry("system")]}, "messages: there is no user"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": []}]}, "messages.0.content"),
        ({"messages": [entry("user"), {**entry("assistant"), "content": None}]}, "messages.1.content"),
        ({"messages": [entry("user"), {"role": "assistant", "function_call": {"name": "f"}}]}, "messages.1"),
        ({"messages": [entry("user"), entry("developer")]}, "messages.1.role"),
    ],
)  # fmt: skip
async def test_a_bad_body_is_refused(app: App, body: dict[str, Any], field: str) -> None:
    assert field in await refused(app, 422, **body)


async def test_too_many_turns_and_bodies_that_are_not_json_are_refused(app: App) -> None:
    await refused(app, 422, turns=[qa("q", "a")] * 20_001)
    json_type = {"content-type": "application/json"}
    for content, status in ((b"[]", 400), (b'{"turns": [', 400), (b'{"turns": [NaN]}', 400), (b"\xff", 400)):
        response = await app.client.post(IMPORT, content=content, headers=json_type)
        assert response.status_code == status
    response = await app.client.post(IMPORT, content=b"{}", headers={"content-type": "text/plain"})
    assert response.status_code == 415


async def test_a_body_may_be_as_long_as_an_upload_and_no_longer(tmp_path: Path) -> None:
    """Discriminates: the limit of a question's body."""
    settings = make_settings(tmp_path, server={"max_upload_bytes": 2 * MAX_BODY_BYTES})
    long = [qa("x" * 10_000) for _ in range(MAX_BODY_BYTES // 10_000)]
    async with open_app(settings) as app:
        await import_session(app, turns=long)
        refused = await app.client.post(IMPORT, json={"turns": long * 2})
        assert (refused.status_code, "(MAX_UPLOAD_BYTES)" in refused.text) == (413, True)
