"""`stream: false`: the parts of a stream gathered into one JSON object."""

from __future__ import annotations

from typing import Any

from api.turn.notes import TurnNotes
from core.conversation.events import (
    ContentEvent,
    ErrorEvent,
    Event,
    SessionEvent,
    SourceEvent,
    StatusEvent,
    ThinkEvent,
)
from routes.sse import citation_objects, status_object
from routes.wire import warning_object


class WholeTurn:
    """`body` has an `error` when the turn failed, beside all that was said until then.

    `warnings` and `rewritten_question` are there, as in `GET /turns/{turn_id}`, only when they were told.
    """

    def __init__(self) -> None:
        self.body: dict[str, Any] = {"thinking": "", "content": "", "sources": []}
        self._notes = TurnNotes()

    def add(self, event: Event) -> None:
        match event:
            case SessionEvent(session_id):
                self.body["session_id"] = session_id
            case ThinkEvent(text):
                self.body["thinking"] += text
            case ContentEvent(text):
                self.body["content"] += text
            case SourceEvent():
                self.body["sources"] = citation_objects(event)
            case StatusEvent("error", message, fields):
                self.body["error"] = {"message": message, **fields}
            case StatusEvent("finished"):
                told = status_object(event)
                self.body.update({key: told[key] for key in told if key not in ("stage", "message")})
            case StatusEvent():
                self._note(event)
            case ErrorEvent(message):
                self.body.setdefault("error", {"code": "turn_failed", "message": message, "retryable": True})

    def _note(self, event: StatusEvent) -> None:
        self._notes.hear(event, at=0)
        if self._notes.warnings:
            self.body["warnings"] = [warning_object(warning) for warning in self._notes.warnings]
        if rewritten := self._notes.rewritten(()):
            self.body["rewritten_question"] = rewritten.text
