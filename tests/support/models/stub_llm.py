"""An OpenAI-compatible server on loopback that sends given words at a steady pace and records its
requests."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.waiting import wait_until


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as servers send it; `code` and `message` are in the error object."""

    message: str = "refused"
    status: int = 400
    code: str | None = None


def accept(body: dict[str, Any]) -> Refusal | None:
    return None


@dataclass
class StubLLM:
    """`words` are sent `pause_s` apart, then `reason`; `cut` ends without it. A `status` other than 200
    refuses; `raw` is sent instead of an answer; `refuse` may refuse a request; `usage` is sent at the end.
    `raw_bodies` and `paths` record the requests. `models` is the reply of GET /v1/models after
    `models_pause_s`; None: 404."""

    words: tuple[str, ...] = ("one ", "two ", "three")
    pause_s: float = 0.0
    status: int = 200
    cut: bool = False
    reason: str = "stop"
    bodies: list[dict[str, Any]] = field(default_factory=list)
    raw: str = ""
    left: int = 0
    url: str = ""
    refuse: Callable[[dict[str, Any]], Refusal | None] = accept
    usage: dict[str, Any] | None = None
    raw_bodies: list[bytes] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    models: list[dict[str, Any]] | None = None
    models_pause_s: float = 0.0
    keys: list[str] = field(default_factory=list)

    async def list_models(self, request: Request) -> Response:
        await asyncio.sleep(self.models_pause_s)
        return JSONResponse({"data": self.models}, 404 if self.models is None else 200)

    def words_for(self, body: dict[str, Any]) -> tuple[str, ...]:
        """Return the words for this request; override it for a model that reacts to it."""
        return self.words

    async def complete(self, request: Request) -> Response:
        self.raw_bodies.append(await request.body())
        self.paths.append(request.url.path)
        self.keys.append(request.headers.get("authorization", ""))
        self.bodies.append(await request.json())
        if self.status != 200:
            return JSONResponse({"error": {"message": "secret upstream text"}}, self.status)
        if refusal := self.refuse(self.bodies[-1]):
            error = {"message": refusal.message, "code": refusal.code, "type": "invalid_request_error"}
            return JSONResponse({"error": error}, refusal.status)
        flat, words = "prompt" in self.bodies[-1], self.words_for(self.bodies[-1])
        return StreamingResponse(self._stream(flat, words), media_type="text/event-stream")

    async def _stream(self, flat: bool, words: tuple[str, ...]) -> AsyncIterator[str]:
        try:
            if self.raw:
                yield self.raw
                return
            for word in words:
                await asyncio.sleep(self.pause_s)
                yield _text_chunk(word, None) if flat else _chunk({"content": word}, None)
            if not self.cut:
                yield _text_chunk("", self.reason) if flat else _chunk({}, self.reason)
                if self.usage is not None:
                    yield _usage_chunk(self.usage)
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


def _text_chunk(text: str, finish_reason: str | None) -> str:
    body = {
        "id": "c", "object": "text_completion", "created": int(time.time()), "model": "stub",
        "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}],
    }  # fmt: skip
    return f"data: {json.dumps(body)}\n\n"


def _usage_chunk(usage: dict[str, Any]) -> str:
    body = {
        "id": "c", "object": "chat.completion.chunk", "created": int(time.time()), "model": "stub",
        "choices": [], "usage": usage,
    }  # fmt: skip
    return f"data: {json.dumps(body)}\n\n"


S = TypeVar("S", bound=StubLLM)


@contextmanager
def in_thread(app: Starlette) -> Iterator[str]:
    """Serve the app on loopback in a thread; yields the base URL."""
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)


@contextmanager
def running_stub(stub: S) -> Iterator[S]:
    """Serve the stub in a thread; `stub.url` is its base URL."""
    paths = ("/v1/chat/completions", "/v1/completions")
    routes = [Route(path, stub.complete, methods=["POST"]) for path in paths]
    with in_thread(Starlette(routes=[*routes, Route("/v1/models", stub.list_models)])) as url:
        stub.url = f"{url}/v1"
        yield stub
