"""Frames: typed events to Server-Sent Events, in the prefix and the JSON format."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import Any, Literal, assert_never

from sse_starlette import EventSourceResponse, ServerSentEvent

from config.settings import ServerSettings
from core.events import (
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
from services.turn_stream import TurnStream

StreamFormat = Literal["prefix", "json"]
SEND_TIMEOUT_S = 30
HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}


def encode_prefix(event: Event, event_id: str, progress_prefix: str = "STATUS") -> bytes:
    """One frame. Texts must already be line safe (core.frames); JSON is one ASCII line."""
    match event:
        case SessionEvent(session_id):
            text = f"SESSION:{session_id}"
        case StatusEvent(stage, message, _) if stage == "retrieving" and progress_prefix == "CONTENT":
            text = f"CONTENT:{message}"
        case StatusEvent():
            text = f"STATUS:{json.dumps(status_object(event))}"
        case ThinkEvent(piece):
            text = f"THINK:{piece}"
        case ContentEvent(piece):
            text = f"CONTENT:{piece}"
        case SourceEvent(citations):
            text = f"SOURCE:{json.dumps([citation_object(citation) for citation in citations])}"
        case ErrorEvent(message):
            text = f"ERROR:{' '.join(message.split())}"
        case DoneEvent():
            text = "DONE:"
        case _:
            assert_never(event)
    first, *rest = text.split("\n")
    lines = [f"id: {event_id}", f"data: {first}", *(f"data: {line}" if line else "data:" for line in rest)]
    return ("\n".join(lines) + "\n\n").encode("utf-8", "replace")


def encode_json(event: Event, event_id: str) -> bytes:
    """One frame with an event name and a one-line JSON object."""
    name, body = _named(event)
    return f"event: {name}\nid: {event_id}\ndata: {json.dumps(body)}\n\n".encode()


def _named(event: Event) -> tuple[str, dict[str, Any]]:
    match event:
        case SessionEvent(session_id):
            return "session", {"session_id": session_id}
        case StatusEvent():
            return "status", status_object(event)
        case ThinkEvent(text):
            return "think", {"text": text}
        case ContentEvent(text):
            return "content", {"text": text}
        case SourceEvent(citations):
            return "source", {"citations": [citation_object(citation) for citation in citations]}
        case ErrorEvent(message):
            return "error", {"message": message}
        case DoneEvent():
            return "done", {}
        case _:
            assert_never(event)


def status_object(event: StatusEvent) -> dict[str, Any]:
    return {"stage": event.stage, "message": event.message, **event.fields}


def citation_object(citation: Citation) -> dict[str, Any]:
    """PROTOCOL section 5; `cited` is there only when it is true."""
    body = asdict(citation)
    if not citation.cited:
        del body["cited"]
    return body


def stream_response(
    stream: TurnStream, settings: ServerSettings, stream_format: StreamFormat, after: int = 0
) -> EventSourceResponse:
    """The stream from n = after + 1; pings keep proxies awake, a reader that stopped reading is cut."""
    return EventSourceResponse(
        _frames(stream, settings, stream_format, after),
        headers=HEADERS,
        media_type="text/event-stream; charset=utf-8",
        ping=settings.ping_interval_s,
        ping_message_factory=lambda: ServerSentEvent(comment="ping"),
        sep="\n",
        send_timeout=SEND_TIMEOUT_S,
    )


async def _frames(
    stream: TurnStream, settings: ServerSettings, stream_format: StreamFormat, after: int
) -> AsyncGenerator[bytes, None]:
    async with aclosing(stream.follow(after)) as batches:
        async for batch in batches:
            yield _encode(batch, stream.turn_id, settings.progress_prefix, stream_format)


def _encode(
    batch: Sequence[tuple[int, Event]], turn_id: str, progress_prefix: str, stream_format: StreamFormat
) -> bytes:
    if stream_format == "json":
        return b"".join(encode_json(event, f"{turn_id}:{n}") for n, event in batch)
    return b"".join(encode_prefix(event, f"{turn_id}:{n}", progress_prefix) for n, event in batch)
