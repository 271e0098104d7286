"""The events of a stream match the description."""

from __future__ import annotations

import json

import pytest

from api.turn.stream import (
    ContentEvent,
    DoneEvent,
    ErrorEvent,
    Event,
    SessionEvent,
    SourceEvent,
    StatusEvent,
    ThinkEvent,
)
from core.knowledge import Citation
from routes.stream import encode_json
from routes.wire.chat import StreamEvent

CITATION = Citation(1, "d", "f.md", "c", 0.5, None, "", 0, 3, "key", "the key")
EVENTS: tuple[Event, ...] = (
    SessionEvent("s"),
    StatusEvent("generating", "…", {"dropped": 0}),
    ThinkEvent("hm"),
    ContentEvent("见 [1]"),
    SourceEvent((CITATION,)),
    ErrorEvent("It failed."),
    StatusEvent("finished", "done", {"turn_id": "t", "usage": {"estimated": True}}),
    DoneEvent(),
)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_is_described(event: Event) -> None:
    """Discriminates: an event, or a field of one, that the model does not know."""
    lines = dict(line.split(": ", 1) for line in encode_json(event, "t:1").decode().strip().split("\n"))
    body = {"id": lines["id"], "event": lines["event"], "data": json.loads(lines["data"])}
    assert StreamEvent.model_validate(body).model_dump(mode="json", exclude_unset=True) == body
