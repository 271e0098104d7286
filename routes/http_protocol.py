"""uvicorn's HTTP protocol with the limits it lacks: the size of a head, the time a request may take."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from routes.stream.response import CONNECTION

MAX_HEAD_BYTES = 65_536
SEPARATORS = 4  # bytes around name and value of each field
HEAD_DEADLINE_S = 20.0  # from the first byte of a request, or from connecting, to the end of its head
BODY_DEADLINE_S = 300.0  # to the end of its body; an upload of 50 MB at 170 kB/s


class LimitedProtocol(HttpToolsProtocol):
    """A head that is too large answers 400; a request that does not come in time loses its connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        self._head_bytes: int | None = 0  # None: the head is complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect(HEAD_DEADLINE_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_bytes is not None:
            if not self._head_bytes:
                self._expect(HEAD_DEADLINE_S)
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes is not None and self._head_bytes > MAX_HEAD_BYTES:
            self.send_400_response("Request header fields are too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {CONNECTION: {"abort": self.transport.abort}}
        self._head_bytes = self._head_bytes or 0

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        if sum(len(name) + len(value) + SEPARATORS for name, value in self.headers) > MAX_HEAD_BYTES:
            raise ValueError("request header fields are too large")  # uvicorn answers 400
        super().on_headers_complete()
        self._expect(BODY_DEADLINE_S)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        self._expect(None)
        super().on_message_complete()

    def _expect(self, within_s: float | None) -> None:
        """Arm the deadline anew; None: nothing is awaited from the client (uvicorn bounds keep-alive)."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if within_s is not None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(within_s, self.transport.close)
