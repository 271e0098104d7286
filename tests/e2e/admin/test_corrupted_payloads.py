"""Records damaged in the store: nothing answers 500, no stream and no export breaks off, the rest is read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import structlog

from tests.services.conversation.stores import SESSIONS, TURNS
from tests.support.servers.app import App, make_settings, open_app
from tests.support.wire.copies import IMPORT, branch, import_session, qa, tree, uid

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIMES = [10**18, 2**62, -5, -(10**18)]
NO_TIMES: list[dict[str, Any]] = [{"created_us": time} for time in TIMES]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    """Shared: every test works in its own sessions."""
    async with open_app(make_settings(tmp_path_factory.mktemp("shared"))) as opened:
        yield opened


async def damage(app: App, collection: str, point: str, **fields: Any) -> None:
    await app.container.store.set_payload(collection, fields, points=[point])
    app.container.conversations.turns.forget_trees()


async def three_turns(app: App) -> tuple[str, list[str]]:
    imported = await import_session(app, turns=[qa("one?", "1"), qa("two?", "2"), qa("three?", "3")])
    return imported["session_id"], imported["turns"]


async def read_everywhere(app: App, session_id: str) -> None:
    """Every way to read a session succeeds completely, and its copy can be imported."""
    for path in ("", "/turns", "/tree", "/export?format=md"):
        response = await app.client.get(f"/sessions/{session_id}{path}")
        assert response.status_code == 200, (path, response.text)
    listed = await app.client.get("/sessions?limit=200")
    assert listed.status_code == 200, listed.text
    copy = (await app.client.get(f"/sessions/{session_id}/export?format=json")).json()
    await app.client.delete(f"/sessions/{session_id}")
    response = await app.client.post(IMPORT, json=copy)
    assert response.status_code == 201, response.text


async def ask_next(app: App, session_id: str, **body: Any) -> list[dict[str, Any]]:
    """Ask the next question, which is answered to its end; returns the warnings."""
    asked = await app.ask("and four?", session_id=session_id, **body)
    assert asked.kinds[-1] == "DONE"
    assert asked.finished["status"] == "completed", asked.text("ERROR")
    return [status for status in asked.statuses if status["stage"] == "warning"]


@pytest.mark.parametrize(
    "fields",
    [
        {"created_us": "x"}, {"updated_us": "x"}, {"updated_us": 10**18}, {"updated_us": 2**63},
        {"created_us": -5, "updated_us": -5}, {"title": 5}, {"title": None}, {"hold": "yes"},
        {"session_id": 5}, {"session_id": "other"}, {"persona": "x"}, {"persona": {"text": 5}},
        {"created_us": 10**18, "title": ["a"], "hold": None},
    ],
)  # fmt: skip
async def test_a_damaged_session_is_listed_read_asked_in_and_exported(
    app: App, fields: dict[str, Any]
) -> None:
    """Discriminates: taking a session's fields as stored."""
    session_id, _ = await three_turns(app)
    await damage(app, SESSIONS, session_id, **fields)
    session = (await app.client.get(f"/sessions/{session_id}")).json()
    assert session["session_id"] == session_id
    assert isinstance(session["title"], str)
    assert session["hold"] is False
    assert (await app.client.get("/sessions")).status_code == 200
    await ask_next(app, session_id)
    await read_everywhere(app, session_id)


@pytest.mark.parametrize("time", [*TIMES, "x", None])
async def test_a_persona_keeps_its_text_when_its_time_is_damaged(app: App, time: Any) -> None:
    """Discriminates: dropping the persona, or exporting a time that an import refuses."""
    imported = await import_session(app, persona="You are a pirate.", turns=[qa()])
    session_id = imported["session_id"]
    stored = (await app.container.store.retrieve(SESSIONS, [session_id]))[0].payload or {}
    await damage(app, SESSIONS, session_id, persona={**stored["persona"], "updated_us": time})
    session = (await app.client.get(f"/sessions/{session_id}")).json()
    assert session["persona"]["text"] == "You are a pirate."
    await read_everywhere(app, session_id)


@pytest.mark.parametrize(
    "fields",
    [
        *NO_TIMES, {"turn_id": uid()}, {"turn_id": None}, {"timestamp": 5}, {"assistant_response": None},
        {"thinking": 5}, {"model_id": None}, {"token_count": "many"}, {"layout": ["x"]}, {"layout": "x"},
        {"usage": 5}, {"usage": {"prompt_tokens": "x"}}, {"timings_ms": {"total": "long"}},
        {"timings_ms": {"total": "inf"}}, {"request_hash": 5}, {"context_docs": 5}, {"summary_start": 5},
        {"summary": {"text": 5}, "summary_start": "x"}, {"schema": "x"},
    ],
)  # fmt: skip
async def test_a_turn_with_a_damaged_field_is_read_without_it(app: App, fields: dict[str, Any]) -> None:
    """Discriminates: leaving the whole turn out, trusting the payload's id, or a time without bounds."""
    session_id, turns = await three_turns(app)
    await damage(app, TURNS, turns[1], **fields)
    assert await ask_next(app, session_id, parent_turn_id=turns[2]) == []
    leaf = (await app.client.get(f"/sessions/{session_id}/turns?leaf={turns[2]}")).json()["turns"]
    assert [turn["turn_id"] for turn in leaf] == turns
    assert leaf[1]["question"] == "two?"
    assert turns[1] in [node["turn_id"] for node in await tree(app, session_id)]
    prompt = await app.client.get(f"/turns/{turns[1]}/prompt")
    assert prompt.status_code == 200
    await read_everywhere(app, session_id)


SOURCE = {"index": 1, "document_id": "d", "file_name": "a.md", "chunk_id": "c", "score": 0.5, "page": None,
          "heading": "", "char_start": 0, "char_end": 1, "key_passage": "", "text": "t"}  # fmt: skip


@pytest.mark.parametrize(
    "bad", [{**SOURCE, "file_name": None}, {**SOURCE, "score": "nan"}, {**SOURCE, "page": "x"}, {"x": 1}, 5]
)
async def test_unreadable_sources_are_dropped_and_the_others_stay(app: App, bad: Any) -> None:
    """Discriminates: turning whatever is stored into a citation."""
    session_id, turns = await three_turns(app)
    await damage(app, TURNS, turns[2], sources=[bad, {**SOURCE, "index": 2}])
    shown = (await branch(app, session_id))[-1]
    assert [(source["index"], source["file_name"]) for source in shown["sources"]] == [(2, "a.md")]
    await read_everywhere(app, session_id)


@pytest.mark.parametrize("time", TIMES)
async def test_a_summary_with_an_impossible_time_is_exported_and_imported(app: App, time: int) -> None:
    """Discriminates: a summary's time written as stored."""
    session_id, turns = await three_turns(app)
    summary = {"text": "s", "start": turns[0], "covers": turns[:2], "previous": None, "model_id": "m",
               "created_us": time, "tokens": 1}  # fmt: skip
    await damage(app, TURNS, turns[1], summary=summary, summary_start=turns[0])
    await ask_next(app, session_id)
    await read_everywhere(app, session_id)


@pytest.mark.parametrize(
    "fields",
    [
        {"layout": "zzz"}, {"params": "{not json"}, {"params": "[1]"}, {"params": "[" * 99_999},
        {"params": '{"a":NaN}'}, {"layout": "flat", "parts": []}, {"parts": []},
        {"parts": [{"part": "zzz", "role": "user", "tokens": 1}]},
        {"parts": [{"part": "zzz", "role": "user", "tokens": 1, "text": "seen"}]},
        {"parts": [{"part": "system", "role": "zzz", "tokens": 1, "text": "seen"}]},
        {"parts": [{"part": "recent_history", "role": "user", "tokens": 1, "turn_id": "not-a-uuid"}]},
    ],
)  # fmt: skip
async def test_a_damaged_prompt_is_shown_as_far_as_possible(app: App, fields: dict[str, Any]) -> None:
    """Discriminates: reading a stored prompt as if this version had written it."""
    asked = await app.ask("What is this?")
    turn_id = asked.finished["turn_id"]
    stored = (await app.container.store.retrieve(TURNS, [turn_id]))[0].payload or {}
    await damage(app, TURNS, turn_id, prompt={**stored["prompt"], **fields})
    response = await app.client.get(f"/turns/{turn_id}/prompt")
    assert response.status_code == 200, response.text
    shown = response.json()
    assert (shown["request"]["body"], shown["request"]["exact"]) == (None, False)
    assert len(shown["parts"]) == len(fields.get("parts", stored["prompt"]["parts"]))
    assert [part["text"] for part in shown["parts"] if part["text"] == "seen"] == [
        part["text"] for part in fields.get("parts", []) if "text" in part
    ]


@pytest.mark.parametrize("question", [None, 5, ["a"]])
async def test_a_recent_turn_with_unreadable_text_causes_one_warning(app: App, question: Any) -> None:
    """Discriminates: warning only of turns whose position cannot be read."""
    session_id, turns = await three_turns(app)
    await damage(app, TURNS, turns[1], user_query=question)
    with structlog.testing.capture_logs() as logs:
        warnings = await ask_next(app, session_id)
    assert [(each["code"], each["turns"]) for each in warnings] == [("turns_unreadable", 1)]
    assert [each["number"] for each in logs if each["event"] == "unreadable_turns_skipped"][:1] == [1]
    assert [turn["question"] for turn in await branch(app, session_id)] == ["one?", "three?", "and four?"]
    await read_everywhere(app, session_id)


async def test_a_turn_with_an_unreadable_position_is_not_counted_twice(app: App) -> None:
    """Discriminates: warning of it where its text is missed, too."""
    session_id, turns = await three_turns(app)
    await damage(app, TURNS, turns[1], seq=["x"])
    warnings = await ask_next(app, session_id)
    assert [(each["code"], each["turns"]) for each in warnings] == [("turns_unreadable", 1)]


async def test_a_long_answer_is_exported_and_imported_completely(app: App) -> None:
    """Discriminates: a limit for imported texts that stored ones do not have."""
    answer = "很长的回答。 " * 30_000
    source = {**SOURCE, "text": "x" * 150_000}
    turn = qa("q" * 150_000, answer, thinking=answer, sources=[source])
    imported = await import_session(app, turns=[turn])
    path = f"/sessions/{imported['session_id']}/export?format=json"
    first = (await app.client.get(path)).text
    await app.client.delete(f"/sessions/{imported['session_id']}")
    response = await app.client.post(IMPORT, content=first, headers={"content-type": "application/json"})
    assert response.status_code == 201, response.text
    again = json.loads((await app.client.get(path)).text)
    assert again == json.loads(first)
    assert again["turns"][0]["answer"] == answer
