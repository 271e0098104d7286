"""A real HTTP server on a loopback port that answers POST requests from a script and remembers them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Reply:
    body: Any
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Stub:
    """`replies` are returned in order; the last one is repeated."""

    url: str
    replies: list[Reply]
    paths: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)

    def next_reply(self) -> Reply:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@contextmanager
def http_stub(*replies: Reply) -> Iterator[Stub]:
    stub = Stub("", list(replies))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            stub.paths.append(self.path)
            stub.keys.append(self.headers.get("Authorization"))
            stub.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            _answer(self, stub.next_reply())

        def log_message(self, format: str, *args: object) -> None:
            """Tests print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    payload = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
    handler.send_response(reply.status)
    headers: Sequence[tuple[str, str]] = (*reply.headers, ("Content-Length", str(len(payload))))
    for name, value in headers:
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(payload)
