"""The endpoint of the earlier chat system: its events, from the same turns as everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.servers.app import App, make_settings, open_app, scripted
from tests.support.wire.sse import parse_sse

DOOR = "/api/v1/chat"


async def chat(app: App, **body: Any) -> list[dict[str, Any]]:
    response = await app.client.post(DOOR, json=body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return [json.loads(data) for _, _, data in parse_sse(response.text)]


async def test_a_turn_is_sent_in_the_earlier_events_and_stored(tmp_path: Path) -> None:
    """Discriminates: a line break or a separator in the answer that breaks an event; progress among the
    events."""
    model = scripted("<think>hm</think>", "one\n\ndata: ", "two\u2028three")
    async with open_app(make_settings(tmp_path, models={"llms": {"default": model}})) as app:
        first = await chat(app, message="What is it?")
        assert [event["type"] for event in first if event["type"] != "text"] == [
            "session_created", "thinking", "done",
        ]  # fmt: skip
        session_id = first[0]["data"]["session_id"]
        done = first[-1]["data"]
        text = "".join(event["data"] for event in first if event["type"] == "text")
        assert done["final_message"] == text == "one\n\ndata: two\nthree"
        assert done["session_id"] == session_id
        stored = (await app.client.get(f"/turns/{done['turn_id']}")).json()
        assert (stored["question"], stored["answer"]) == ("What is it?", text)
        second = await chat(app, message="And then?", session_id=session_id)
        assert second[0]["type"] != "session_created"
        follow_up = (await app.client.get(f"/turns/{second[-1]['data']['turn_id']}")).json()
        assert follow_up["parent_turn_id"] == done["turn_id"]


async def test_refusals_precede_the_first_byte_and_a_failure_is_reported(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path, models={"llms": {"default": scripted("!")}})) as app:
        for body, status in (({"message": ""}, 422), ({}, 422), ({"message": "x", "thinking": True}, 422)):
            assert (await app.client.post(DOOR, json=body)).status_code == status
        events = await chat(app, message="What is it?")
        assert events[-1]["type"] == "done"
        assert events[-1]["data"]["error"]
        assert events[-1]["data"]["final_message"] == ""
