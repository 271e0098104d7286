"""An OpenAI-compatible model on loopback whose answer is a function of the question, and which counts calls.

So any answer can be checked by whoever knows the question.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiohttp import web

PIECES = (
    "lantern", " ", "\n\n", "DONE:", "灯塔", "\nCONTENT:", "👩‍🚀", " SOURCE:[]", "\nERROR: no\n", "é", "[1]",
)  # fmt: skip
SUMMARY = "Summarised."
_QUESTION = re.compile(r"\S+: \d+ words every (\d+) ms about the lighthouse\?")


def question(key: str, words: int = 10, pause_ms: int = 0) -> str:
    """`key` has no spaces. The model says `words` pieces, each after `pause_ms` milliseconds."""
    return f"{key}: {words} words every {pause_ms} ms about the lighthouse?"


def pieces_of(asked: str) -> list[str]:
    """Begins and ends with a word, since an answer is stored without outer white space."""
    words = int(re.findall(r": (\d+) words", asked)[0])
    chosen = random.Random(asked).choices(PIECES, k=words)
    return ["The", *chosen, "end"]


def answer_to(asked: str) -> str:
    return "".join(pieces_of(asked))


class EchoModel:
    """`calls` counts requests by question."""

    def __init__(self) -> None:
        self.url = ""
        self.calls: Counter[str] = Counter()

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        asked = str(body["messages"][-1]["content"]).rpartition("\n\n")[2]  # the passages precede it
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        with suppress(ConnectionResetError):  # the client has left
            await response.prepare(request)
            await self._answer(response, asked)
        return response

    async def _answer(self, response: web.StreamResponse, asked: str) -> None:
        known = _QUESTION.fullmatch(asked)
        if known is None:  # a summary is requested
            return await self._stream(response, [SUMMARY], 0)
        self.calls[asked] += 1
        await self._stream(response, pieces_of(asked), int(known[1]) / 1000)
        return None

    async def _stream(self, response: web.StreamResponse, pieces: list[str], pause_s: float) -> None:
        for piece in pieces:
            await asyncio.sleep(pause_s)
            await response.write(_chunk({"content": piece}, None))
        await response.write(_chunk({}, "stop") + b"data: [DONE]\n\n")
        await response.write_eof()


def _chunk(delta: dict[str, str], finish_reason: str | None) -> bytes:
    body = {
        "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "echo",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }  # fmt: skip
    return f"data: {json.dumps(body)}\n\n".encode()


@asynccontextmanager
async def open_echo_model() -> AsyncIterator[EchoModel]:
    """In the running loop, on a free port."""
    model = EchoModel()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/v1/chat/completions", model.complete)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    model.url = f"http://{host}:{port}/v1"
    try:
        yield model
    finally:
        await runner.cleanup()
