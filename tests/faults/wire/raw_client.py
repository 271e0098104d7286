"""A client on a bare socket: it can leave in any way, read slowly or not at all, and sees every byte."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from tests.faults.wire.tcp_proxy import RESET
from tests.support.servers.app import CHAT
from tests.support.wire.sse import Streamed, frames

HOST = "127.0.0.1"
_EVENT_ID = re.compile(rb"^id: [^:]+:(\d+)$", re.M)


@dataclass(slots=True)
class RawReply:
    """All data of one connection, without HTTP's own bytes; times count from the request."""

    turn_id: str
    status: int = 0
    wire: bytes = b""
    head_s: float = 0.0
    content_s: float | None = None
    ended_s: float = 0.0
    whole: bool = False  # HTTP's own end arrived
    pings: int = 0
    streamed: Streamed = field(default_factory=lambda: Streamed([]))


class RawClient:
    """One request on one connection."""

    def __init__(self, port: int, receive_bytes: int | None = None) -> None:
        self.sock = socket.socket()
        self.sock.setblocking(False)
        self.turn_id = ""
        self.asked_at = 0.0
        self._port = port
        if receive_bytes is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)

    async def connect(self) -> None:
        await asyncio.get_running_loop().sock_connect(self.sock, (HOST, self._port))

    async def send(self, payload: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, payload)

    async def ask(self, question: str, **body: Any) -> None:
        """Connect and send the question; the reply is not read."""
        self.turn_id = body.setdefault("turn_id", str(uuid.uuid4()))
        await self.connect()
        self.asked_at = time.monotonic()
        await self.send(request("POST", CHAT, {"question": question, **body}))

    async def resume(self, turn_id: str, after: int = 0, *, by_header: bool = False) -> None:
        self.turn_id = turn_id
        await self.connect()
        self.asked_at = time.monotonic()
        if by_header:
            last = f"Last-Event-ID: {turn_id}:{after}\r\n"
            await self.send(request("GET", f"/turns/{turn_id}/stream", headers=last))
        else:
            await self.send(request("GET", f"/turns/{turn_id}/stream?after={after}"))

    async def wait_for(self, mark: bytes, times: int = 1, limit_s: float = 20) -> bytes:
        """Read until `mark` has come so often, or the end. Raises TimeoutError."""
        got = b""
        async with asyncio.timeout(limit_s):
            while got.count(mark) < times:
                data = await asyncio.get_running_loop().sock_recv(self.sock, 65_536)
                got += data
                if not data:
                    break
        return got

    async def read(self, limit_s: float = 60) -> RawReply:
        """Read to the end, whatever the end is, and close."""
        reply = RawReply(self.turn_id)
        got = bytearray()
        try:
            async with asyncio.timeout(limit_s):
                await self._read_on(got, reply)
        except (OSError, TimeoutError):
            reply.whole = False
        reply.ended_s = self._since()
        self.leave()
        _parse(bytes(got), reply)
        return reply

    async def _read_on(self, got: bytearray, reply: RawReply) -> None:
        while data := await asyncio.get_running_loop().sock_recv(self.sock, 262_144):
            reply.head_s = reply.head_s or self._since()
            got += data
            if reply.content_s is None and (b"data: CONTENT:" in got[-300_000:]):
                reply.content_s = self._since()

    def leave(self, *, rst: bool = False) -> None:
        """Close with RST; or with FIN, for which the received data must have been read."""
        if self.sock.fileno() < 0:
            return
        if rst:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        else:
            self._drain()
        self.sock.close()

    def _drain(self) -> None:
        try:
            while self.sock.recv(262_144):
                pass
        except OSError:
            pass

    def _since(self) -> float:
        return time.monotonic() - self.asked_at


def request(method: str, path: str, body: Any = None, *, headers: str = "") -> bytes:
    payload = json.dumps(body).encode() if body is not None else b""
    head = f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n{headers}"
    if payload:
        head += f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n"
    return head.encode() + b"\r\n" + payload


def _parse(got: bytes, reply: RawReply) -> None:
    head, _, body = got.partition(b"\r\n\r\n")
    reply.status = int(head.split(b" ", 2)[1]) if head.startswith(b"HTTP/") else 0
    if b"transfer-encoding: chunked" in head.lower():
        reply.wire, reply.whole = _unchunked(body)
    else:
        reply.wire, reply.whole = body, True
    text = reply.wire.decode("utf-8", "replace")
    reply.pings = text.count(": ping")
    reply.streamed = Streamed(frames(text))


def complete_events(got: bytes) -> tuple[bytes, int]:
    """The events that arrived completely before the client left, and the last one's number."""
    body, _ = _unchunked(got.partition(b"\r\n\r\n")[2])
    wire = body[: body.rfind(b"\n\n") + 2]
    numbers = _EVENT_ID.findall(wire)
    return wire, int(numbers[-1]) if numbers else 0


def _unchunked(body: bytes) -> tuple[bytes, bool]:
    """The bytes, and whether the last chunk arrived."""
    parts: list[bytes] = []
    at = 0
    while True:
        line_end = body.find(b"\r\n", at)
        if line_end < 0:
            return b"".join(parts), False
        size = int(body[at:line_end], 16)
        if not size:
            return b"".join(parts), True
        parts.append(body[line_end + 2 : line_end + 2 + size])
        at = line_end + 2 + size + 2


async def ask(port: int, question: str, *, limit_s: float = 60, **body: Any) -> RawReply:
    """Ask and read to the end."""
    client = RawClient(port)
    await client.ask(question, **body)
    return await client.read(limit_s)
