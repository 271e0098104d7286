"""A model server that misbehaves by script: OpenAI-compatible and Anthropic, in a separate process.

The request's `model` names the script. A tag `[q-…]` in the question ties a call to the turn that made it.
`GET /_calls/<tag|all>` returns the calls and when the peer left; `POST /_switch/<model>/<on|off>` repairs and
breaks the scripts that have a switch.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import httptools
import httpx

from tests.faults.models.all_scripts import SCRIPTS
from tests.faults.models.script import Act, Repeat, Steps
from tests.faults.wire.tcp_proxy import RESET
from tests.support.environment import ROOT, clean_environment

_TAG = re.compile(rb"\[q-([\w.-]+)\]")


@dataclass(slots=True)
class Call:
    """Times are of the monotonic clock, which all processes share. `number` counts the calls of a tag from 1;
    `left` is when the peer closed, `ended` when the script ended or its connection was lost."""

    tag: str
    model: str
    number: int
    began: float
    ended: float | None = None
    left: float | None = None
    sent: int = 0


class Journal:
    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.numbers: Counter[str] = Counter()
        self.switched_on: set[str] = set()
        self.open = 0

    def begin(self, model: str, body: bytes) -> Call:
        tags = _TAG.findall(body)
        tag = tags[-1].decode() if tags else ""
        self.numbers[tag] += 1
        call = Call(tag, model, self.numbers[tag], time.monotonic())
        self.calls.append(call)
        return call

    def of(self, tag: str) -> list[dict[str, Any]]:
        """The calls of one tag, or all, in order of arrival."""
        return [asdict(call) for call in self.calls if tag in (call.tag, "all")]


class Connection(asyncio.Protocol):
    """One request after the other; each is answered by its script."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._call: Call | None = None
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._calls_here = 0
        self._new_request()

    def _new_request(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._path, self._body = b"", b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._writable.set()
        self._journal.open += 1

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def eof_received(self) -> None:
        self._note_left()

    def connection_lost(self, exc: Exception | None) -> None:
        self._note_left()
        self._journal.open -= 1
        self._writable.set()
        if self._task is not None:
            self._task.cancel()

    def _note_left(self) -> None:
        if self._call is not None:
            self._call.left = self._call.left or time.monotonic()
            self._call.ended = self._call.ended or self._call.left

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        path, body = self._path.decode(), self._body
        self._parser, self._path, self._body = httptools.HttpRequestParser(self), b"", b""
        if path.startswith("/_"):
            self._control(path)
            return
        self._calls_here += 1
        script = SCRIPTS[json.loads(body)["model"]]
        self._call = self._journal.begin(script.name, body)
        number = self._calls_here if script.by_connection else self._call.number
        steps = script.steps_of(number, script.name in self._journal.switched_on)
        self._task = asyncio.get_running_loop().create_task(self._play(self._call, steps))

    async def _play(self, call: Call, steps: Steps) -> None:
        for step in steps:
            match step:
                case bytes():
                    await self._send(call, step)
                case Repeat():
                    await self._repeat(call, step)
                case Act.STALL:
                    await asyncio.sleep(3600)  # the fault itself: silence
                case Act.RESET:
                    self._reset()
                case Act.CLOSE:
                    self._transport.close()
                case float():
                    await asyncio.sleep(step)
        call.ended = time.monotonic()
        if Act.KEEP in steps:
            self._call = None

    async def _repeat(self, call: Call, step: Repeat) -> None:
        done = 0
        while step.times is None or done < step.times:
            await self._send(call, step.data)
            await asyncio.sleep(step.pause_s)
            done += 1

    async def _send(self, call: Call, data: bytes) -> None:
        await self._writable.wait()
        if not self._transport.is_closing():
            self._transport.write(data)
            call.sent += len(data)

    def _reset(self) -> None:
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._transport.abort()

    def _control(self, path: str) -> None:
        _, command, *rest = path.split("/")
        if command == "_switch":
            name, state = rest
            (self._journal.switched_on.add if state == "on" else self._journal.switched_on.discard)(name)
        calls = self._journal.of(rest[0]) if command == "_calls" and rest else []
        body = json.dumps({"calls": calls, "open": self._journal.open - 1}).encode()
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


async def serve() -> None:
    journal = Journal()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(journal), "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


@dataclass(frozen=True, slots=True)
class FaultStub:
    """The running stub as a test sees it."""

    port: int
    process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def calls(self, tag: str | None = None) -> list[Call]:
        """In order of arrival; of one tag, or all."""
        body = httpx.get(f"{self.url}/_calls/{tag or 'all'}", timeout=30).json()
        return [Call(**call) for call in body["calls"]]

    def open(self) -> int:
        """The number of open connections, excluding the one that asks."""
        return int(httpx.get(f"{self.url}/_open", timeout=30).json()["open"])

    def switch(self, name: str, *, on: bool) -> None:
        httpx.post(f"{self.url}/_switch/{name}/{'on' if on else 'off'}").raise_for_status()


@contextmanager
def running_fault_stub() -> Iterator[FaultStub]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.models.fault_stub"],
        cwd=ROOT,
        env=clean_environment({}),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield FaultStub(int(process.stdout.readline()), process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    asyncio.run(serve())
