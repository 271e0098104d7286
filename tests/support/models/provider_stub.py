"""A server on loopback that answers with given bytes, valid or not, in the test's own event loop."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

SSE = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Answer:
    """A scripted response: `pieces` are written one by one; a number is a pause in seconds.

    `framing`: "chunked" (each piece is a chunk), "close" (the body ends with the connection) or "raw" (the
    pieces are everything, including the status line). `end`: "clean", "abrupt" (the connection closes before
    the framing ends), "reset", or "never".
    """

    pieces: Iterable[bytes | float] = ()
    status: str = "200 OK"
    headers: tuple[tuple[str, str], ...] = (("Content-Type", SSE),)
    framing: str = "chunked"
    end: str = "clean"


@dataclass(frozen=True, slots=True)
class Received:
    """A request that was received."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class ProviderStub:
    """`connections` counts opened connections; `left` is set when a client closes one before its end."""

    answer: Answer
    requests: list[Received] = field(default_factory=list)
    connections: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; returns whether the connection stays open."""
        self.requests.append(await _request(reader))
        answer = self.answer
        closed = asyncio.create_task(reader.read(1))
        respond = asyncio.create_task(_respond(answer, writer))
        try:
            await asyncio.wait({closed, respond}, return_when=asyncio.FIRST_COMPLETED)
            if not respond.done() or isinstance(respond.exception(), ConnectionError):
                self.left.set()
        finally:
            await _cancelled(respond, closed)
        if answer.end == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
        return answer.framing == "chunked" and answer.end == "clean" and not self.left.is_set()


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[ProviderStub]:
    """Serve the answer; the stub's `url` is the base URL without a path."""
    stub = ProviderStub(answer)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(stub.connected(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    stub.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield stub
    finally:
        server.close()
        await _cancelled(*tasks)
        await asyncio.sleep(0)  # lets the transports close


async def _request(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Received(
        first.split()[1], headers, await reader.readexactly(int(headers.get("content-length", 0)))
    )


async def _respond(answer: Answer, writer: asyncio.StreamWriter) -> None:
    if answer.framing != "raw":
        headers = [
            *answer.headers,
            *([("Transfer-Encoding", "chunked")] if answer.framing == "chunked" else []),
        ]
        lines = [f"HTTP/1.1 {answer.status}", *(f"{name}: {value}" for name, value in headers)]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
    for piece in answer.pieces:
        if isinstance(piece, bytes):
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if answer.framing == "chunked" else piece)
            await writer.drain()
        else:
            await asyncio.sleep(piece)
    if answer.framing == "chunked" and answer.end == "clean":
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    if answer.end == "never":
        await asyncio.Event().wait()


async def _cancelled(*tasks: asyncio.Task[None] | asyncio.Task[bytes]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError, ConnectionError):
            await task
