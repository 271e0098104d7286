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
from routes.stream.parts import citation_reply, status_object, warning_reply
from routes.wire.chat import Answer


class WholeTurn:
    """Gathers the events of one turn."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {"thinking": [], "content": []}
        self._body: dict[str, Any] = {"sources": []}
        self._notes = TurnNotes()

    def add(self, event: Event) -> None:
        match event:
            case SessionEvent(session_id):
                self._body["session_id"] = session_id
            case ThinkEvent(text):
                self._texts["thinking"].append(text)
            case ContentEvent(text):
                self._texts["content"].append(text)
            case SourceEvent(citations, documents):
                self._body["sources"] = [citation_reply(each, documents) for each in citations]
            case StatusEvent("error", message, fields):
                self._body["error"] = {"message": message, **fields}
            case StatusEvent("finished"):
                status = status_object(event)
                self._body.update({key: status[key] for key in status if key not in ("stage", "message")})
            case StatusEvent():
                self._notes.hear(event, at=0)
            case ErrorEvent(message):
                error = {"code": "turn_failed", "message": message, "retryable": True}
                self._body.setdefault("error", error)

    def answer(self) -> Answer:
        """Of all events so far; it has an `error` when the turn failed, beside all that was written until
        then. `warnings` and `rewritten_question` are set, as in `GET /turns/{turn_id}`, only when there are
        any."""
        notes: dict[str, Any] = {}
        if self._notes.warnings:
            notes["warnings"] = [warning_reply(warning) for warning in self._notes.warnings]
        if rewritten := self._notes.rewritten(()):
            notes["rewritten_question"] = rewritten.text
        texts = {name: "".join(pieces) for name, pieces in self._texts.items()}
        return Answer.model_validate({**texts, **self._body, **notes})
