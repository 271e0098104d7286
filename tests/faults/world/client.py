"""A simple client that knows whether a turn was acknowledged: DONE seen, and no ERROR before it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.support.servers.app import CHAT
from tests.support.wire.sse import Streamed, frames

LIMIT_S = 90.0


@dataclass(frozen=True)
class Reply:
    """The response. `status` 0: no response at all; `cut`: the connection broke before its end."""

    status: int
    text: str
    cut: bool
    took_s: float
    retry_after: str = ""

    @property
    def streamed(self) -> Streamed:
        return Streamed(frames(self.text))

    @property
    def done(self) -> bool:
        kinds = [frame.kind for frame in self.streamed.frames]
        return self.status == 200 and bool(kinds) and kinds[-1] == "DONE"

    @property
    def acknowledged(self) -> bool:
        return self.done and "ERROR" not in self.streamed.kinds

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def code(self) -> str:
        """The code of an error, before the first byte or in the stream; "" when there is none."""
        if self.status == 200:
            statuses = [status for status in self.streamed.statuses if status["stage"] == "error"]
            return str(statuses[0]["code"]) if statuses else ""
        try:
            return str(self.json["error"]["code"])
        except (ValueError, KeyError, TypeError):
            return "" if self.status == 0 else f"unreadable {self.text[:80]!r}"


class Client:
    """Every request has its own connection, so that none is sent on a dead one."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url

    async def ask(
        self,
        question: str,
        *,
        speaking: asyncio.Event | None = None,
        leave_after_s: float | None = None,
        **body: Any,
    ) -> Reply:
        """Read to the end, or leave. `speaking` is set at the first piece of the answer."""
        sent = {"question": question, **body}
        return await self._request("POST", CHAT, sent, speaking, leave_after_s)

    async def get(self, path: str) -> Reply:
        return await self._request("GET", path)

    async def post(self, path: str, body: Any = None) -> Reply:
        return await self._request("POST", path, body)

    async def delete(self, path: str) -> Reply:
        return await self._request("DELETE", path)

    async def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        speaking: asyncio.Event | None = None,
        leave_after_s: float | None = None,
    ) -> Reply:
        begun = time.monotonic()
        received = _Received()
        try:
            async with asyncio.timeout(leave_after_s if leave_after_s is not None else LIMIT_S):
                await self._read(method, path, body, received, speaking)
        except (aiohttp.ClientError, OSError, TimeoutError):
            received.cut = True
        text = received.body.decode(errors="replace")
        return Reply(received.status, text, received.cut, time.monotonic() - begun, received.retry_after)

    async def _read(
        self, method: str, path: str, body: Any, received: _Received, speaking: asyncio.Event | None
    ) -> None:
        async with self._http.request(method, self._url + path, json=body) as response:
            received.status = response.status
            received.retry_after = response.headers.get("Retry-After", "")
            async for chunk in response.content.iter_any():
                received.body += chunk
                if speaking is not None and b"data: CONTENT:" in received.body:
                    speaking.set()

    async def add_document(self, name: str, text: str) -> None:
        """Return when it can be found."""
        form = aiohttp.FormData()
        form.add_field("file", text.encode(), filename=name)
        async with self._http.post(f"{self._url}/documents", data=form) as response:
            job_id = (await response.json())["job_id"]
        await self.get(f"/jobs/{job_id}/stream")


@dataclass
class _Received:
    status: int = 0
    body: bytes = b""
    cut: bool = False
    retry_after: str = ""


@asynccontextmanager
async def open_client(url: str) -> AsyncIterator[Client]:
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        yield Client(http, url)
