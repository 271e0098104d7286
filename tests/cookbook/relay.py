"""A relay on loopback between a reader and the server, which breaks connections on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

_REFUSED = b'{"error": {"code": "llm_unavailable", "message": "no", "retryable": false}}'
FINAL = b"HTTP/1.1 503 No\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(_REFUSED), _REFUSED)


class Relay:
    """`faults`: what happens to each connection, in order; those after the last pass unchanged. Bytes are
    sent instead of the server's answer; a text passes the server's answer up to and including that text, and
    then drops the connection."""

    def __init__(self, target_port: int, faults: list[bytes | str]) -> None:
        self._target_port = target_port
        self.faults = faults
        self.heads: list[str] = []  # the first line of each request

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            request = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(request.decode().splitlines()[0])
            fault = self.faults.pop(0) if self.faults else None
            if isinstance(fault, bytes):
                writer.write(fault)
                await writer.drain()
            else:
                await self._pass(request, reader, writer, fault)
        writer.transport.abort()

    async def _pass(
        self, request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, last: str | None
    ) -> None:
        upstream, server = await asyncio.open_connection("127.0.0.1", self._target_port)
        server.write(request)
        ways = (_copy(reader, server, None), _copy(upstream, writer, last))
        copying = [asyncio.create_task(way) for way in ways]
        try:
            await asyncio.wait(copying, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in copying:
                task.cancel()
            await asyncio.gather(*copying, return_exceptions=True)
            server.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, last: str | None) -> None:
    """Copy to the end of `last`, or everything when it is None."""
    passed = b""
    while piece := await reader.read(65_536):
        at = -1 if last is None else (passed + piece).find(last.encode())
        if last is not None and at >= 0:
            writer.write(piece[: at + len(last.encode()) - len(passed)])
            await writer.drain()
            return
        writer.write(piece)
        await writer.drain()
        passed += piece


@asynccontextmanager
async def relaying(target_port: int, *faults: bytes | str) -> AsyncIterator[tuple[str, Relay]]:
    """Yield its address and the relay itself."""
    relay = Relay(target_port, list(faults))
    server = await asyncio.start_server(relay.connected, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", relay
