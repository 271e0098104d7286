"""An OpenAI-compatible server on loopback that says numbered words at a steady pace and notes what it got."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


@dataclass
class StubLLM:
    """`words` are sent `pause_s` apart. `status` refuses instead; `cut` ends without a finish reason;
    `raw` is sent instead of an answer."""

    words: tuple[str, ...] = ("one ", "two ", "three")
    pause_s: float = 0.0
    status: int = 200
    cut: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list)
    raw: str = ""
    left: int = 0
    url: str = ""

    async def complete(self, request: Request) -> Response:
        self.bodies.append(await request.json())
        if self.status != 200:
            return JSONResponse({"error": {"message": "secret upstream text"}}, self.status)
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def _stream(self) -> AsyncIterator[str]:
        try:
            if self.raw:
                yield self.raw
                return
            for word in self.words:
                await asyncio.sleep(self.pause_s)
                yield _chunk({"content": word}, None)
            if not self.cut:
                yield _chunk({}, "stop")
                yield "data: [DONE]\n\n"
        except asyncio.CancelledError:
            self.left += 1
            raise


def _chunk(delta: dict[str, Any], finish_reason: str | None) -> str:
    body = {
        "id": "c", "object": "chat.completion.chunk", "created": int(time.time()), "model": "stub",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }  # fmt: skip
    return f"data: {json.dumps(body)}\n\n"


@contextmanager
def running_stub(stub: StubLLM) -> Iterator[StubLLM]:
    """Serve it in a thread; `stub.url` is its base URL."""
    app = Starlette(routes=[Route("/v1/chat/completions", stub.complete, methods=["POST"])])
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    stub.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"
    try:
        yield stub
    finally:
        server.should_exit = True
        thread.join(timeout=10)
