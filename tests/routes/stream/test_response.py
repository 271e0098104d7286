from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.turn.running import StreamSlots
from api.turn.stream import ContentEvent, DoneEvent, TurnStream
from config.settings import ServerSettings
from core.errors import TooManyStreamsError
from routes.server import LimitedProtocol
from routes.stream import CONNECTION, EventStreamResponse, stream_response
from tests.support.waiting import until
from tests.support.wire.sse import frames

SCOPE: dict[str, Any] = {"type": "http", "method": "GET"}


class Client:
    """The other side of an ASGI server: accepts what is sent, disconnects when told."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.left = asyncio.Event()
        self.reads = True

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if not self.reads:
            await asyncio.Event().wait()
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


class Body:
    """Chunks with pauses before them; records that it was closed."""

    def __init__(self, *pauses_s: float) -> None:
        self._pauses_s = pauses_s
        self.closed = False

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            for number, pause_s in enumerate(self._pauses_s):
                await asyncio.sleep(pause_s)
                yield b"data: %d\n\n" % number
        finally:
            self.closed = True


async def test_silence_is_filled_with_comments_and_activity_is_not() -> None:
    """Discriminates: a ping at fixed times, whatever was just sent."""
    client = Client()
    body = Body(0, 0.1, 0.1, 0.1, 0.1, 0.1, 1)
    await EventStreamResponse(body.chunks(), 0.4, 30)(SCOPE, client.receive, client.send)
    talk, pings = client.body.split(b"data: 5\n\n")
    assert talk.count(b": ping\n\n") == 0
    assert pings.count(b": ping\n\n") == 2
    assert client.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_the_response_has_the_headers_of_an_event_stream() -> None:
    client = Client()
    await EventStreamResponse(Body().chunks(), 15, 30)(SCOPE, client.receive, client.send)
    assert dict(client.sent[0]["headers"]) == {
        b"cache-control": b"no-cache, no-transform",
        b"x-accel-buffering": b"no",
        b"content-type": b"text/event-stream; charset=utf-8",
    }


@pytest.mark.parametrize("left_after_s", [0, 0.05])
async def test_a_reader_that_leaves_closes_the_body(left_after_s: float) -> None:
    """Also before the body began. Discriminates: leaving the closing to the garbage collector."""
    client, body = Client(), Body(0, 60)
    asyncio.get_running_loop().call_later(left_after_s, client.left.set)
    if not left_after_s:
        client.left.set()
    chunks = body.chunks()
    await EventStreamResponse(chunks, 15, 30)(SCOPE, client.receive, client.send)
    with pytest.raises(StopAsyncIteration):
        await anext(chunks)
    assert body.closed or not left_after_s


async def test_a_reader_that_leaves_during_a_flood_ends_the_stream() -> None:
    """Discriminates: relying on the cancellation, which skips a task whose future is already done."""
    client, loop = Client(), asyncio.get_running_loop()
    waiters: list[asyncio.Future[None]] = []

    def tick() -> None:
        """Before the loop delivers the cancellation, what the stream waits for has arrived."""
        while waiters:
            waiters.pop().set_result(None)
        ticking = loop.call_soon(tick)
        stopping.append(ticking)

    async def flood() -> AsyncGenerator[bytes, None]:
        while True:
            waiters.append(loop.create_future())
            await waiters[-1]
            yield b"data: x\n\n"

    stopping: list[asyncio.Handle] = []
    tick()
    loop.call_later(0.05, client.left.set)
    streaming = asyncio.create_task(EventStreamResponse(flood(), 15, 30)(SCOPE, client.receive, client.send))
    try:
        await until(streaming.done, 10)
    finally:
        stopping[-1].cancel()


@pytest.mark.parametrize("ping_interval_s", [0.05, 15])
async def test_a_send_that_takes_too_long_ends_the_stream(ping_interval_s: float) -> None:
    """Also for a ping. Discriminates: looking for stuck sends only as often as a ping is due."""
    client, body = Client(), Body(0, 0 if ping_interval_s > 1 else 60)
    scope = {**SCOPE, "extensions": {CONNECTION: {"abort": client.left.set}}}
    response = EventStreamResponse(body.chunks(), ping_interval_s, 0.3)
    asyncio.get_running_loop().call_soon(setattr, client, "reads", False)
    async with asyncio.timeout(3):
        await response(scope, client.receive, client.send)
    assert client.left.is_set()
    assert body.closed


@asynccontextmanager
async def served(
    stream: TurnStream, settings: ServerSettings, middleware: Sequence[Middleware] = ()
) -> AsyncIterator[tuple[uvicorn.Server, int]]:
    """Serve the stream on a real socket; yields the server and its port."""

    async def answer(request: Request) -> Response:
        return stream_response(stream, settings, "prefix")

    app = Starlette(routes=[Route("/", answer)], middleware=middleware)
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_config=None, lifespan="off", http=LimitedProtocol)
    )
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    try:
        yield server, server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


def stuck_reader(port: int) -> socket.socket:
    """A client with 4 KB of receive buffer that asks and never reads."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    return client


async def test_a_reader_that_stopped_reading_is_disconnected_and_another_gets_everything() -> None:
    """Discriminates: closing the stuck connection gracefully, which waits for its buffers forever."""
    stream = TurnStream("t", 60, lambda: None)
    loop = asyncio.get_running_loop()
    async with served(stream, ServerSettings(ping_interval_s=0.5)) as (server, port):
        with stuck_reader(port):
            await until(lambda: bool(server.server_state.connections))
            text = "x" * 20_000
            for _ in range(500):
                stream.publish(ContentEvent(text))
                await asyncio.sleep(0)
            began = loop.time()
            await until(lambda: not server.server_state.connections)
            assert 0.5 < loop.time() - began < 4
        stream.publish(DoneEvent())
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        wire = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert wire.count(b"data: CONTENT:") == 500
    assert wire.rstrip().endswith(b"0")


class Passed:
    """A middleware that adds a header, and records what passes it."""

    def __init__(self, app: ASGIApp, messages: list[Message]) -> None:
        self._app = app
        self._messages = messages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            self._messages.append(message)
            if message["type"] == "http.response.start":
                message["headers"].append((b"x-passed", b"yes"))
            await send(message)

        await self._app(scope, receive, sending)


async def test_the_chunks_of_a_stream_bypass_the_middleware_and_its_head_does_not() -> None:
    """Discriminates: every token through each layer; a head without the headers of the layers; another
    answer's connection, when a connection is reused."""
    stream = TurnStream("t", 60, lambda: None)
    stream.publish(ContentEvent("a"), DoneEvent())
    messages: list[Message] = []
    async with served(stream, ServerSettings(), [Middleware(Passed, messages=messages)]) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        ask = b"GET / HTTP/1.1\r\nHost: x\r\n"
        writer.write(ask + b"\r\n" + ask + b"Connection: close\r\n\r\n")
        heads, bodies = zip(*((part.partition(b"\r\n\r\n")[::2]) for part in
                              (await reader.read()).split(b"HTTP/1.1 200 OK")[1:]), strict=True)  # fmt: skip
        writer.close()
        await writer.wait_closed()
    assert [b"x-passed: yes" in head for head in heads] == [True, True]
    assert [body.count(b"data: CONTENT:a") for body in bodies] == [1, 1]
    assert [message.get("body", b"") for message in messages] == [b""] * 4


async def test_the_frames_of_a_stream_arrive_unchanged() -> None:
    stream = TurnStream("t", 60, lambda: None)
    stream.publish(ContentEvent("a\nDONE:"), DoneEvent())
    client = Client()
    await stream_response(stream, ServerSettings(), "prefix")(SCOPE, client.receive, client.send)
    assert [frame.kind for frame in frames(client.body.decode())] == ["CONTENT", "CONTENT", "DONE"]


async def test_a_reader_occupies_a_slot_as_long_as_it_reads() -> None:
    """Discriminates: a stream that is read without a slot, of which a key could then open any number."""
    slots, client = StreamSlots(1), Client()
    stream = TurnStream("t", 30, lambda: None)
    stream.publish(ContentEvent("one"))
    response = stream_response(stream, ServerSettings(), "prefix", slot=slots.slot("me"))
    reading = asyncio.create_task(response(SCOPE, client.receive, client.send))
    await until(lambda: b"one" in client.body)
    with pytest.raises(TooManyStreamsError):
        slots.check("me")
    client.left.set()
    await reading
    slots.check("me")
