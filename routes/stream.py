"""A turn over HTTP: its events as Server-Sent Events, in prefix or JSON format, or collected in one object.

The response sends pings during silence, and cuts off readers that stop reading. sse-starlette does the same
with four tasks and a scope per chunk, which takes five to ten times as long, as measured. It also leaves a
stopped reader's connection open, since what waits in its buffers is never taken.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import fields
from typing import Any, TypeVar, assert_never

import anyio
import structlog
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from api.turn.stream import (
    ContentEvent,
    DoneEvent,
    ErrorEvent,
    Event,
    SessionEvent,
    SourceEvent,
    StatusEvent,
    ThinkEvent,
    TurnNotes,
    TurnStream,
)
from config.settings import ServerSettings
from core.citing.citations import KnownDocuments
from core.conversation.turns import TurnStage, TurnWarning
from core.errors import BadRequestError
from core.knowledge import Citation
from core.text import scrub
from routes.wire import turns
from routes.wire.chat import Answer, StreamFormat

log = structlog.get_logger()

HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
PING = b": ping\n\n"
PINGS_UNTAKEN = 2  # intervals: one may be a train in a tunnel, after two the reader counts as gone
CONNECTION = "wenmai.connection"
"""An extension of the ASGI scope: `{"abort": function, "send": WeakMethod}`. The first drops the connection
with its unsent bytes; the second bypasses the middleware, which does nothing to a body's chunks. It is weak,
as it belongs to what holds the scope: otherwise every request would wait for the garbage collector."""


class EventStreamResponse(Response):
    """Sends the chunks of `body`, each made of whole frames, in order, and closes it whatever happens.

    A comment line is sent after each `ping_interval_s` of silence. A reader that takes nothing for
    `send_timeout_s` (None: two of these intervals) is cut off; one that leaves ends the stream at once.
    """

    def __init__(
        self, body: AsyncGenerator[bytes, None], ping_interval_s: float, send_timeout_s: float | None = None
    ) -> None:
        super().__init__(headers=HEADERS, media_type="text/event-stream; charset=utf-8")
        del self.headers["content-length"]
        self._chunks = body
        self._ping_interval_s = ping_interval_s
        self._send_timeout_s = PINGS_UNTAKEN * ping_interval_s if send_timeout_s is None else send_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run until the body ends, the reader leaves, or it stops reading."""
        async with aclosing(self._chunks), anyio.create_task_group() as group:
            group.start_soon(cancel_at_disconnect, receive, group.cancel_scope)
            direct: Send = scope.get("extensions", {}).get(CONNECTION, {}).get("send", lambda: send)()
            watch = _Watch(self._ping_interval_s, self._send_timeout_s, direct, group.cancel_scope)
            try:
                await self._send_all(send, direct, watch, group.cancel_scope)
            finally:
                watch.stop()
                group.cancel_scope.cancel()
        if watch.stuck:
            log.info("reader_stuck", seconds=self._send_timeout_s)
            await _abort(scope, receive)

    async def _send_all(self, send: Send, direct: Send, watch: _Watch, scope: anyio.CancelScope) -> None:
        head: Message = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await watch.sending(send, head)
        async for chunk in self._chunks:
            if (
                scope.cancel_called
            ):  # in a flood no cancellation is ever delivered: the next chunk is already available
                return
            await watch.sending(direct, _chunk(chunk))
        await watch.sending(send, {"type": "http.response.body", "body": b"", "more_body": False})


class _Watch:
    """One timer per stream: it detects a send that takes too long, and silence that calls for a ping."""

    def __init__(
        self, ping_interval_s: float, send_timeout_s: float, send: Send, scope: anyio.CancelScope
    ) -> None:
        self.stuck = False
        self._loop = asyncio.get_running_loop()
        self._ping_interval_s = ping_interval_s
        self._send_timeout_s = send_timeout_s
        self._send = send
        self._scope = scope
        self._since = self._loop.time()
        self._sends = 0
        self._ping: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(min(ping_interval_s, send_timeout_s), self._look)

    async def sending(self, send: Send, message: Message) -> None:
        """Send, recording when the send began."""
        if self._ping is not None:
            await self._ping  # its bytes go first
        self._since = self._loop.time()
        self._sends += 1
        await send(message)
        self._sends -= 1

    def stop(self) -> None:
        self._timer.cancel()
        if self._ping is not None:
            self._ping.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        limit = self._send_timeout_s if self._sends else self._ping_interval_s
        if now < self._since + limit:
            wait = min(self._since + limit - now, self._ping_interval_s, self._send_timeout_s)
        elif self._sends:
            self.stuck = True
            self._scope.cancel()
            return
        else:
            self._ping = self._loop.create_task(self._send_ping())
            wait = min(self._ping_interval_s, self._send_timeout_s)
        self._timer = self._loop.call_later(wait, self._look)

    async def _send_ping(self) -> None:
        self._since = self._loop.time()
        self._sends += 1
        await self._send(_chunk(PING))
        self._sends -= 1
        self._ping = None


def _chunk(body: bytes) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": True}


async def cancel_at_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
    scope.cancel()


T = TypeVar("T")


async def unless_left(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`; cancel it when the client leaves. The request's body must be read before.

    Raises BadRequestError when the client leaves, which nobody reads.
    """
    working = asyncio.create_task(work)

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        working.cancel()

    watching = asyncio.create_task(watch())
    try:
        return await working
    except asyncio.CancelledError:
        if not watching.done() or watching.cancelled():
            raise
        raise BadRequestError("The client left before its file was read.") from None
    finally:
        watching.cancel()


async def _abort(scope: Scope, receive: Receive) -> None:
    """Drop the connection; if the server cannot, raise an error that closes it."""
    abort = scope.get("extensions", {}).get(CONNECTION, {}).get("abort")
    if abort is None:
        raise TimeoutError("The reader stopped reading.")
    abort()
    with anyio.move_on_after(1):
        while (await receive())["type"] != "http.disconnect":
            continue


_CITED = tuple(field.name for field in fields(Citation))  # asdict copies values and takes twice the time


def status_object(event: StatusEvent) -> dict[str, Any]:
    return {"stage": event.stage, "message": event.message, **event.fields}


def citation_objects(event: SourceEvent) -> list[dict[str, Any]]:
    """Return JSON objects for a frame."""
    return [
        citation_reply(citation, event.documents).model_dump(exclude_unset=True)
        for citation in event.citations
    ]


def citation_reply(citation: Citation, documents: KnownDocuments | None = None) -> turns.Citation:
    """Set `cited`, `removed` and `outdated` only when true.

    The last two need the `documents` that are stored.
    """
    body: dict[str, Any] = {name: getattr(citation, name) for name in _CITED}
    if not citation.cited:
        del body["cited"]
    if documents is not None and documents.lack(citation):
        body["removed"] = True
    if documents is not None and documents.changed(citation):
        body["outdated"] = True
    return turns.Citation(**body)


def warning_reply(warning: TurnWarning) -> turns.TurnWarning:
    """As in the STATUS event, without its stage."""
    return turns.TurnWarning(code=warning.code, message=warning.message, **warning.counts)


WRITE_BYTES = 16_384
_JSON = json.JSONEncoder(ensure_ascii=False)
_INVISIBLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # left as they are by the encoder


def encode_prefix(event: Event, event_id: str, progress_prefix: str = "STATUS") -> bytes:
    """Return one frame. Texts have newlines only at their end (api.turn.stream); JSON is one line.

    No content can forge a frame: texts are scrubbed again, and any other newline becomes a space.
    """
    if type(event) is ContentEvent and event.text.isprintable():
        return f"id: {event_id}\ndata: CONTENT:{event.text}\n\n".encode()
    text = scrub(_prefixed(event, progress_prefix))
    line = text.rstrip("\n")
    breaks = "data:\n" * (len(text) - len(line))
    line = line.replace("\n", " ")
    return f"id: {event_id}\ndata: {line}\n{breaks}\n".encode()


def _prefixed(event: Event, progress_prefix: str) -> str:
    match event:
        case ContentEvent(piece):
            return f"CONTENT:{piece}"
        case ThinkEvent(piece):
            return f"THINK:{piece}"
        case SessionEvent(session_id):
            return f"SESSION:{session_id}"
        case StatusEvent(stage, message, _) if stage == TurnStage.RETRIEVING and progress_prefix == "CONTENT":
            return f"CONTENT:{_one_line(message)}"
        case StatusEvent():
            return f"STATUS:{json_line(status_object(event))}"
        case SourceEvent():
            return f"SOURCE:{json_line(citation_objects(event))}"
        case ErrorEvent(message):
            return f"ERROR:{_one_line(message)}"
        case DoneEvent():
            return "DONE:"
        case _:
            assert_never(event)


def encode_json(event: Event, event_id: str) -> bytes:
    """Return one frame with an event name and a one-line JSON object."""
    name, body = _named(event)
    return f"event: {name}\nid: {event_id}\ndata: {body}\n\n".encode()


def _named(event: Event) -> tuple[str, str]:
    match event:
        case ContentEvent(text):
            return "content", f'{{"text": {json_line(scrub(text))}}}'
        case ThinkEvent(text):
            return "think", f'{{"text": {json_line(scrub(text))}}}'
        case SessionEvent(session_id):
            return "session", json_line({"session_id": session_id})
        case StatusEvent():
            return "status", json_line(status_object(event))
        case SourceEvent():
            return "source", json_line({"citations": citation_objects(event)})
        case ErrorEvent(message):
            return "error", json_line({"message": _one_line(message)})
        case DoneEvent():
            return "done", "{}"
        case _:
            assert_never(event)


def json_line(value: object) -> str:
    """Encode on one line, readable as it is; escapes all kinds of line breaks, control characters and lone
    surrogates."""
    text = _JSON.encode(value)
    return text if text.isprintable() else _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _one_line(text: str) -> str:
    return " ".join(scrub(text).split())


def stream_response(
    stream: TurnStream,
    settings: ServerSettings,
    stream_format: StreamFormat,
    after: int = 0,
    slot: AbstractContextManager[None] | None = None,
) -> EventStreamResponse:
    """Return the stream from n = after + 1; pings keep proxies from closing it, a stalled reader is cut off.

    `slot` is held while it is read.
    """
    frames = _frames(stream, settings, stream_format, after, slot or nullcontext())
    return EventStreamResponse(frames, settings.ping_interval_s)


async def events_of(stream: TurnStream) -> AsyncGenerator[Sequence[Event], None]:
    """Yield a turn's events from the first, without their numbers."""
    async with aclosing(stream.follow()) as batches:
        async for batch in batches:
            yield [event for _, event in batch]


async def read_whole(
    events: AsyncGenerator[Sequence[Event], None], receive: Receive, on_event: Callable[[Event], object]
) -> None:
    """Pass every event to `on_event`, to the end. A client that leaves counts as a reader that leaves."""
    async with anyio.create_task_group() as group:
        group.start_soon(cancel_at_disconnect, receive, group.cancel_scope)
        async with aclosing(events):
            async for batch in events:
                if group.cancel_scope.cancel_called:  # in a flood no cancellation is ever delivered
                    break
                for event in batch:
                    on_event(event)
        group.cancel_scope.cancel()


async def _frames(
    stream: TurnStream,
    settings: ServerSettings,
    stream_format: StreamFormat,
    after: int,
    slot: AbstractContextManager[None],
) -> AsyncGenerator[bytes, None]:
    with slot:
        async with aclosing(stream.follow(after)) as batches:
            async for batch in batches:
                for piece in _writes(batch, stream.turn_id, settings.progress_prefix, stream_format):
                    yield piece


def _writes(
    batch: Sequence[tuple[int, Event]], turn_id: str, progress_prefix: str, stream_format: StreamFormat
) -> Iterator[bytes]:
    """Yield the batch in as few writes as it takes, none much longer than WRITE_BYTES but for a longer frame.

    At most one write waits in the buffers of a reader that takes nothing.
    """
    frames, size = [], 0
    for n, event in batch:
        event_id = f"{turn_id}:{n}"
        json_format = stream_format == "json"
        frame = (
            encode_json(event, event_id) if json_format else encode_prefix(event, event_id, progress_prefix)
        )
        frames.append(frame)
        size += len(frame)
        if size >= WRITE_BYTES:
            yield b"".join(frames)
            frames, size = [], 0
    if frames:
        yield b"".join(frames)


class WholeTurn:
    """Collects the events of one turn."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {"thinking": [], "answer": []}
        self._read = 0
        self._body: dict[str, Any] = {"sources": []}
        self._notes = TurnNotes()

    def add(self, event: Event) -> None:
        match event:
            case SessionEvent(session_id):
                self._body["session_id"] = session_id
            case ThinkEvent(text):
                self._texts["thinking"].append(text)
            case ContentEvent(text):
                self._texts["answer"].append(text)
            case SourceEvent(citations, documents):
                self._body["sources"] = [citation_reply(each, documents) for each in citations]
            case StatusEvent(TurnStage.ERROR, message, fields):
                self._body["error"] = {"message": message, **fields}
            case StatusEvent(TurnStage.FINISHED):
                status = status_object(event)
                self._body.update({key: status[key] for key in status if key not in ("stage", "message")})
            case StatusEvent():
                self._notes.record(event, at=0)

    @property
    def ended(self) -> bool:
        return "status" in self._body

    @property
    def length(self) -> int:
        """Length of the answer in characters."""
        return sum(map(len, self._texts["answer"]))

    def newest_text(self) -> str:
        """Return the answer's text since the last call."""
        piece = "".join(self._texts["answer"][self._read :])
        self._read = len(self._texts["answer"])
        return piece

    def answer(self) -> Answer:
        """Return everything so far; a failed turn has an `error` beside the text written until then.
        `warnings` and `rewritten_question` are set only if there are any, as in `GET /turns/{turn_id}`."""
        notes: dict[str, Any] = {}
        if self._notes.warnings:
            notes["warnings"] = [warning_reply(warning) for warning in self._notes.warnings]
        if rewritten := self._notes.rewritten(()):
            notes["rewritten_question"] = rewritten.text
        texts = {name: "".join(pieces) for name, pieces in self._texts.items()}
        return Answer.model_validate({**texts, **self._body, **notes})
