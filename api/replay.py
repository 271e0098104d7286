"""A stored turn as the stream it once was, so that a retry or a late reader gets the same answer."""

from __future__ import annotations

from api.messages import say
from config.prompt_library import Language
from core.events import (
    ContentEvent,
    DoneEvent,
    ErrorEvent,
    SessionEvent,
    SourceEvent,
    StatusEvent,
    ThinkEvent,
)
from core.turns import Turn, TurnStatus
from services.turn_stream import TurnStream


def replay(turn: Turn, language: Language) -> TurnStream:
    """An ended stream with the turn's thinking, answer, sources and last status."""
    stream = TurnStream.ended_stream(turn.turn_id)
    stream.publish(SessionEvent(turn.session_id))
    if turn.thinking:
        stream.publish(ThinkEvent(turn.thinking))
    if turn.assistant_response:
        stream.publish(ContentEvent(turn.assistant_response))
    stream.publish(SourceEvent(turn.sources))
    if turn.status in (TurnStatus.FAILED, TurnStatus.INTERRUPTED, TurnStatus.RUNNING):
        stream.publish(ErrorEvent(say(f"was_{turn.status.value}", language)))
    stream.publish(StatusEvent("finished", say("finished", language), finished_fields(turn)))
    stream.publish(DoneEvent())
    return stream


def finished_fields(turn: Turn) -> dict[str, object]:
    """The fields of the last STATUS of a turn."""
    return {
        "turn_id": turn.turn_id,
        "parent_turn_id": turn.parent_turn_id,
        "status": turn.status.value,
        "usage": {
            "prompt_tokens": turn.usage.prompt_tokens,
            "completion_tokens": turn.usage.completion_tokens,
            "estimated": turn.usage.estimated,
        },
        "timings_ms": dict(turn.timings_ms),
    }
