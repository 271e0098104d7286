"""A TCP proxy on loopback that cuts connections when a test asks for it."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

PIECE = 65_536


@dataclass
class CuttingProxy:
    """Passes bytes on to `target`. `cut_after` arms one cut: the reply that contains these bytes ends
    there."""

    target: str
    cut_after: bytes = b""
    refusing: bool = False
    silent: bool = False
    cuts: int = 0
    refused: int = 0
    _listener: socket.socket = field(init=False, repr=False)
    _open: list[socket.socket] = field(default_factory=list, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self._listener.close()
        self.cut_all()

    def cut_all(self) -> None:
        with self._lock:
            for one in self._open:
                _end(one)
            self._open.clear()

    def _accept(self) -> None:
        while True:
            try:
                reader, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:  # one that is accepted while all are being cut would survive
                self._join(reader)

    def _join(self, reader: socket.socket) -> None:
        if self.refusing:
            self.refused += 1
            _end(reader)
            return
        where = urlsplit(self.target)
        server = socket.create_connection((where.hostname or "", where.port or 80))
        self._open += [reader, server]
        threading.Thread(target=self._pass, args=(reader, server, False), daemon=True).start()
        threading.Thread(target=self._pass, args=(server, reader, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_reply: bool) -> None:
        observed = b""
        try:
            while data := source.recv(PIECE):
                if is_reply and self.silent:
                    continue
                if is_reply and self.cut_after:
                    observed = (observed + data)[-2 * PIECE :]
                    at = observed.find(self.cut_after)
                    if at >= 0:
                        beyond = len(observed) - at - len(self.cut_after)
                        self.cut_after = b""
                        self.cuts += 1
                        target.sendall(data[: len(data) - beyond])
                        break
                target.sendall(data)
        except OSError:
            pass  # the other side was closed
        _end(source)
        _end(target)


def _end(one: socket.socket) -> None:
    with suppress(OSError):  # already closed
        one.shutdown(socket.SHUT_RDWR)
    one.close()
