"""The floor: the minimal cost of a RAG conversation server in Python, `python -m benchmarks.floor URL`.

The bundled model embeds the questions on one thread, in batches of those waiting; one dot product over random
vectors selects the passages; the history is in memory; the model's stream is parsed and reframed. There is no
keyword search, no reranking and no storage. It speaks as much of our own protocol as the client needs.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections import defaultdict
from collections.abc import AsyncGenerator

import httpx
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from benchmarks.raw_relay import PATH, Server
from services.adapters.e5.embedding import DIMENSION, BundledEmbedding
from services.models.embedding import EmbeddingService

PASSAGES = 2_000
SHOWN = 5
RECENT = 10  # messages
PASSAGE = "Every turn is kept with its parent, and a branch is read from its root to its last turn. " * 10


class OneThread(BundledEmbedding):
    """Embeds in batches, as the simplest server would."""

    one_by_one = False


class Floor:
    def __init__(self, upstream: str) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=50)
        self._client = httpx.AsyncClient(limits=limits, timeout=120)
        self._url = upstream + PATH
        self._embedding = EmbeddingService(OneThread(), "floor", DIMENSION)
        self._vectors = np.random.default_rng(7).standard_normal((PASSAGES, DIMENSION)).astype(np.float32)
        self._history: defaultdict[str, list[dict[str, str]]] = defaultdict(list)

    async def ask(self, request: Request) -> Response:
        body = await request.json()
        session_id = body.get("session_id") or str(uuid.uuid4())
        return StreamingResponse(self._answer(session_id, body["question"]), media_type="text/event-stream")

    async def _answer(self, session_id: str, question: str) -> AsyncGenerator[bytes, None]:
        yield f"data: SESSION:{session_id}\n\n".encode()
        (vector,) = await self._embedding.embed_queries([question])
        nearest = np.argsort(self._vectors @ np.asarray(vector, np.float32))[-SHOWN:]
        history = self._history[session_id]
        system = "\n\n".join(f"[{number}] {PASSAGE}" for number in nearest)
        messages = [{"role": "system", "content": system}, *history[-RECENT:]]
        asked = {"role": "user", "content": question}
        sent = {"model": "stub", "stream": True, "messages": [*messages, asked]}
        answer = ""
        async with self._client.stream("POST", self._url, json=sent) as response:
            async for piece in _pieces(response):
                answer += piece
                yield b"data: CONTENT:%b\n\n" % piece.encode()
        history += [asked, {"role": "assistant", "content": answer}]
        yield b"data: DONE:\n\n"


async def _pieces(response: httpx.Response) -> AsyncGenerator[str, None]:
    """Yield the pieces of text; pieces that arrive together are yielded together."""
    rest = b""
    async for received in response.aiter_raw():
        *lines, rest = (rest + received).split(b"\n")
        events = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
        if text := "".join(event["choices"][0]["delta"].get("content") or "" for event in events):
            yield text


async def _live(_: Request) -> Response:
    return PlainTextResponse("ok")


def main() -> None:
    asked = Route("/knowledge_chat_conversation", Floor(sys.argv[1]).ask, methods=["POST"])
    app = Starlette(routes=[asked, Route("/health/live", _live)])
    Server(uvicorn.Config(app, port=0, log_level="error", access_log=False, lifespan="off")).run()


if __name__ == "__main__":
    main()
