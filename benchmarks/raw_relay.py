"""The baseline: a server that only relays, `python -m benchmarks.raw_relay http://127.0.0.1:9100`.

It uses the same web libraries as the real server (uvicorn, Starlette, one pooled httpx client) and nothing
else: the bytes of request and answer are passed through without being parsed.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncGenerator

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

PATH = "/v1/chat/completions"


def create_relay(upstream: str, client: httpx.AsyncClient) -> Starlette:
    async def relay(request: Request) -> Response:
        sent = client.build_request("POST", upstream + PATH, content=await request.body())
        response = await client.send(sent, stream=True)
        return StreamingResponse(_bytes(response), response.status_code, media_type="text/event-stream")

    async def live(_: Request) -> Response:
        return PlainTextResponse("ok")

    return Starlette(routes=[Route(PATH, relay, methods=["POST"]), Route("/health/live", live)])


async def _bytes(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    try:
        async for piece in response.aiter_raw():
            yield piece
    finally:
        await response.aclose()


class Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}", flush=True)


def main() -> None:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=50)
    app = create_relay(sys.argv[1], httpx.AsyncClient(limits=limits, timeout=120))
    Server(uvicorn.Config(app, port=0, log_level="error", access_log=False, lifespan="off")).run()


if __name__ == "__main__":
    main()
