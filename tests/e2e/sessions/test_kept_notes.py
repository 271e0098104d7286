"""The notes that a turn's stream carried beside the answer are stored with the turn: warnings, and the
rewritten question."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from core.conversation.turns import TurnStatus
from tests.e2e.conversation.test_rewriting import REWRITTEN
from tests.e2e.sessions.kept_notes import (
    WARNED,
    notes,
    number,
    read,
    replayed,
    settings,
    talk,
    wait_until_speaking,
)
from tests.support.servers.app import App, open_app
from tests.support.wire.copies import IMPORT, branch, exported, import_session, qa, uid

NOTES = ("warnings", "rewritten_question")


@pytest.mark.slow("waits for the process that reads documents to start")
async def test_a_stored_turn_has_the_notes_of_its_stream(tmp_path: Path) -> None:
    """Discriminates: a turn stored without one of them; the question of another turn."""
    async with open_app(settings(tmp_path)) as app:
        streamed = await talk(app)
        stored = await read(app, streamed.second)
        assert [stored[name] for name in NOTES] == [[WARNED], REWRITTEN]
        assert [status for _, status in notes(streamed.live)] == [
            {"stage": "warning", **WARNED},
            {"stage": "rewriting", "message": streamed.live.statuses[4]["message"], "question": REWRITTEN},
        ]
        first, second = await branch(app, streamed.session_id)
        assert (first["warnings"], "rewritten_question" in first) == ([WARNED], False)
        assert second == stored
    async with open_app(settings(tmp_path)) as app:
        assert await read(app, streamed.second) == stored


async def test_an_answer_as_one_object_has_the_notes_too(tmp_path: Path) -> None:
    """Discriminates: leaving out what is not part of the answer."""
    async with open_app(settings(tmp_path)) as app:
        streamed = await talk(app)
        asked = {"session_id": streamed.session_id, "parent_turn_id": streamed.first, "stream": False}
        reply = await app.client.post("/knowledge_chat_conversation", json={**asked, "question": "Hm?"})
        whole = reply.json()
        stored = await read(app, whole["turn_id"])
    assert [whole[name] for name in NOTES] == [stored[name] for name in NOTES] == [[WARNED], REWRITTEN]


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_the_count_in_a_warning_is_stored_with_it(tmp_path: Path) -> None:
    """Discriminates: storing only the code and the message."""
    async with open_app(settings(tmp_path)) as app:
        streamed = await talk(app)
        await app.container.conversations.turns.set_payload({"user_query": None}, [streamed.first])
        asked = await app.ask("And then?", session_id=streamed.session_id, parent_turn_id=streamed.second)
        stored = await read(app, asked.finished["turn_id"])
    words = [{name: value for name, value in each.items() if name != "stage"} for _, each in notes(asked)]
    assert [each for each in words if "code" in each] == stored["warnings"]
    assert {each["code"]: each.get("turns") for each in stored["warnings"]}["turns_unreadable"] == 1


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_replay_sends_the_notes_under_their_numbers(tmp_path: Path) -> None:
    """Discriminates: a replay without them; a replay that sends them to a reader who has seen them."""
    async with open_app(settings(tmp_path, "<think>hm</think>", "One\n\ntwo")) as app:
        streamed = await talk(app)
        assert len(notes(streamed.live)) == 2
        for after in range(len(streamed.live.frames)):
            again = await replayed(app, streamed.second, after)
            assert notes(again) == notes(streamed.live, after)
            numbers = [number(frame) for frame in again.frames]
            assert numbers == sorted(set(numbers))
            assert numbers[-1] == number(streamed.live.frames[-1])
        assert (await replayed(app, streamed.second)).answer == streamed.live.answer


async def test_a_turn_without_notes_has_neither_field(app: App) -> None:
    asked = await app.ask("What is this?")
    turn_id = asked.finished["turn_id"]
    assert not {*NOTES} & (await read(app, turn_id)).keys()
    assert notes(await replayed(app, turn_id)) == []


@pytest.mark.full("opens the whole application, more than once or for seconds")
@pytest.mark.parametrize(
    ("script", "status"),
    [(("half", 30.0), "cancelled"), (("half", 30.0), "interrupted"), (("half", "!"), "failed")],
)
async def test_a_turn_that_was_cut_keeps_the_notes_up_to_then(
    tmp_path: Path, script: tuple[str | float, ...], status: str
) -> None:
    """Discriminates: storing them only at the end of a complete answer."""
    async with open_app(settings(tmp_path)) as app:
        streamed = await talk(app)
    turn_id = uid()
    async with open_app(settings(tmp_path, *script)) as app:
        asking = asyncio.create_task(app.ask("Hm?", session_id=streamed.session_id, turn_id=turn_id))
        if status != "failed":
            (await wait_until_speaking(app, turn_id)).cut(TurnStatus(status))
        live = await asking
        stored = await read(app, turn_id)
        assert stored["status"] == live.finished["status"] == status
        assert [stored[name] for name in NOTES] == [[WARNED], REWRITTEN]
        assert notes(await replayed(app, turn_id)) == notes(live)
    async with open_app(settings(tmp_path, "whole")) as app:
        await app.container.conversations.turns.set_payload({"warnings": [WARNED] * 3}, [turn_id])
        again = await app.ask("Hm?", session_id=streamed.session_id, turn_id=turn_id)
        assert again.answer == "whole"
        assert (await read(app, turn_id))["warnings"] == [WARNED]  # the notes of the second run


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_the_notes_are_exported_and_imported(tmp_path: Path) -> None:
    """Discriminates: leaving one out of the export, the import, or the replay of the imported turn."""
    async with open_app(settings(tmp_path)) as app:
        streamed = await talk(app)
        turns = [await read(app, turn_id) for turn_id in (streamed.first, streamed.second)]
        copy = await exported(app, streamed.session_id)
        assert copy["turns"][1]["rewritten_question"] == {"text": REWRITTEN, "turn_ids": [streamed.first]}
        await app.client.delete(f"/sessions/{streamed.session_id}")
        await import_session(app, **copy)
        assert await exported(app, streamed.session_id) == copy
        assert [await read(app, turn_id) for turn_id in (streamed.first, streamed.second)] == turns
        again = await replayed(app, streamed.second)
        assert [status for _, status in notes(again)] == [status for _, status in notes(streamed.live)][::-1]
        assert again.kinds == ["SESSION", "STATUS", "CONTENT", "SOURCE", "STATUS", "DONE"]


@pytest.mark.full("opens the whole application, more than once or for seconds")
@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"warnings": [{}]}, "warnings.0.code"),
        ({"warnings": [{"code": "a", "message": "x" * 501}]}, "warnings.0.message"),
        ({"warnings": [{"code": "a", "turns": "many"}]}, "warnings.0.turns"),
        ({"warnings": [{"code": "a", "stage": 1}]}, "warnings.0"),
        ({"warnings": [{"code": "a", "Not a name": 1}]}, "warnings.0"),
        ({"warnings": [{"code": "a"}] * 21}, "warnings"),
        ({"rewritten_question": {"text": "How?", "turn_ids": []}}, "rewritten_question.turn_ids"),
        ({"rewritten_question": {"text": "x" * 501, "turn_ids": [uid()]}}, "rewritten_question.text"),
        ({"rewritten_question": "How?"}, "rewritten_question"),
    ],
)
async def test_notes_that_no_stream_sends_are_not_imported(app: App, bad: Any, field: str) -> None:
    response = await app.client.post(IMPORT, json={"turns": [qa(**bad)]})
    assert (response.status_code, field in response.json()["error"]["message"]) == (422, True), response.text


async def test_a_question_rewritten_with_turns_that_are_not_imported_with_it_is_refused(app: App) -> None:
    """Discriminates: words of a turn that nobody could trace to it."""
    fields = {"text": "How?", "turn_ids": [uid()]}
    response = await app.client.post(IMPORT, json={"turns": [qa(rewritten_question=fields)]})
    assert response.status_code == 422
    assert response.json()["error"]["message"] == (
        "turns.0.rewritten_question: names a turn that is not in this import."
    )


async def test_damaged_notes_do_not_lose_the_turn(app: App) -> None:
    asked = await app.ask("What is this?")
    turns, turn_id = app.container.conversations.turns, asked.finished["turn_id"]
    for damaged in ("x", [1, "x"], [{"message": "no code"}], [{"code": "a", "counts": {"turns": "many"}}]):
        await turns.set_payload({"warnings": damaged, "rewritten_question": damaged}, [turn_id])
        assert not {*NOTES} & (await read(app, turn_id)).keys()
        assert (await replayed(app, turn_id)).answer == asked.answer
    await turns.set_payload({"warnings": [5, WARNED]}, [turn_id])
    assert (await read(app, turn_id))["warnings"] == [WARNED]
