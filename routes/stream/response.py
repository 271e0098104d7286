"""A response that streams Server-Sent Events: pings while nothing is said, and cuts who stopped reading.

sse-starlette does the same with four tasks and a scope for each chunk: five to ten times the time, measured.
It also leaves the connection of a stopped reader open, since what waits in its buffers is never taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
import structlog
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

log = structlog.get_logger()

HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
PING = b": ping\n\n"
PINGS_UNTAKEN = 2  # intervals; one may be a train in a tunnel, after two nobody is thought to read
CONNECTION = "wenmai.connection"
"""An extension of the ASGI scope: `{"abort": function}` drops the connection, unsent bytes and all."""


class EventStreamResponse(Response):
    """Sends `body`'s chunks, whole frames each, one after the other, and closes it whatever happens.

    A comment line goes out after each `ping_interval_s` of silence. A reader that takes nothing for
    `send_timeout_s` (None: two of these intervals) is cut; one that leaves ends the stream at once.
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
        """Until the body ends, the reader leaves, or it stops reading."""
        async with aclosing(self._chunks), anyio.create_task_group() as group:
            group.start_soon(_cancel_at_disconnect, receive, group.cancel_scope)
            watch = _Watch(self._ping_interval_s, self._send_timeout_s, send, group.cancel_scope)
            try:
                await self._send_all(send, watch, group.cancel_scope)
            finally:
                watch.stop()
                group.cancel_scope.cancel()
        if watch.stuck:
            log.info("reader_stuck", seconds=self._send_timeout_s)
            await _abort(scope, receive)

    async def _send_all(self, send: Send, watch: _Watch, scope: anyio.CancelScope) -> None:
        head: Message = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await watch.sending(send, head)
        async for chunk in self._chunks:
            if (
                scope.cancel_called
            ):  # in a flood no cancellation is ever delivered: the next chunk is there already
                return
            await watch.sending(send, _chunk(chunk))
        await watch.sending(send, {"type": "http.response.body", "body": b"", "more_body": False})


class _Watch:
    """One timer for each stream: it finds a send that takes too long, or a silence that is due a ping."""

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
        """Send, noting when it began."""
        if self._ping is not None:
            await self._ping  # its bytes first
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


async def _cancel_at_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
    scope.cancel()


async def _abort(scope: Scope, receive: Receive) -> None:
    """Drop the connection; where the server cannot, an error makes it close."""
    abort = scope.get("extensions", {}).get(CONNECTION, {}).get("abort")
    if abort is None:
        raise TimeoutError("The reader stopped reading.")
    abort()
    with anyio.move_on_after(1):
        while (await receive())["type"] != "http.disconnect":
            continue
