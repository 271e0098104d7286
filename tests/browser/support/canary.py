"""A listener on loopback that represents every foreign host: whoever connects to it has left the origin."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

REQUEST_BYTES = 4096
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
FOREIGN = ("*.test", "*.example", "example.com", "*.example.com")


@dataclass
class Canary:
    """`requests` holds the first bytes of each connection; "" for one that sent nothing (a preconnect)."""

    port: int
    requests: list[str] = field(default_factory=list)

    @property
    def resolver_rules(self) -> str:
        """For Chromium's --host-resolver-rules: the names in our texts resolve to the canary, no others
        do."""
        return ",".join(f"MAP {name} 127.0.0.1:{self.port}" for name in FOREIGN)


@contextmanager
def listening() -> Iterator[Canary]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        canary = Canary(server.getsockname()[1])
        threading.Thread(target=_listen, args=(server, canary), daemon=True).start()
        yield canary


def _listen(server: socket.socket, canary: Canary) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return  # closed: the tests have ended
        threading.Thread(target=_hear, args=(connection, canary), daemon=True).start()


def _hear(connection: socket.socket, canary: Canary) -> None:
    at = len(canary.requests)
    canary.requests.append("")
    with connection:
        connection.settimeout(2)
        try:
            canary.requests[at] = connection.recv(REQUEST_BYTES).decode("latin-1")
            connection.sendall(PAGE)
        except OSError:
            return
