"""Tool servers on a loopback port, as separate processes that can be killed; and `tool_program` over
handwritten HTTP.

`python -m tests.support.servers.tool_http FOLDER http`: the first line of its output is its address.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tests.support.environment import ROOT
from tests.support.servers.tool_program import reply_to


def serve_tools(app: Starlette) -> None:
    """Print the address and serve until the process ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])


@contextmanager
def tools_over_http(module: str, *arguments: str) -> Iterator[str]:
    """Run `python -m tests.support.servers.MODULE ARGUMENTS http`; yields its address."""
    command = [sys.executable, "-m", f"tests.support.servers.{module}", *arguments, "http"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


async def _flood() -> AsyncIterator[str]:
    notification = {
        "jsonrpc": "2.0",
        "method": "notifications/message",
        "params": {"level": "info", "data": "x"},
    }
    while True:
        yield f"event: message\ndata: {json.dumps(notification)}\n\n"
        await asyncio.sleep(0)


def http_app(folder: Path) -> Starlette:
    async def answer(request: Request) -> Response:
        if request.headers.get("authorization") == "wrong":
            return Response(status_code=401)
        message = await request.json()
        if "id" not in message:
            return Response(status_code=202)
        if message["method"] == "tools/call" and message["params"]["name"] == "flood":
            return StreamingResponse(_flood(), media_type="text/event-stream")
        reply = await to_thread.run_sync(reply_to, message, folder)
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply})  # may contain NaN
        return Response(body, media_type="application/json")

    return Starlette(routes=[Route("/mcp", answer, methods=["POST"])])


if __name__ == "__main__":
    serve_tools(http_app(Path(sys.argv[1])))
