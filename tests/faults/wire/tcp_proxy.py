"""tcpx: a TCP proxy that disturbs connections on demand, in a separate thread."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

READ_BYTES = 65_536
RESET = struct.pack("ii", 1, 0)  # SO_LINGER for 0 s: closing sends RST


@dataclass(frozen=True, slots=True)
class Toxics:
    """What happens to the bytes of one direction; counts are bytes since the connection was made.

    `swallow_after`: later bytes disappear and the connection stays; `reset_after`: RST to both sides;
    `limit_after`: an orderly end to both sides; `refuse`: RST as soon as the connection exists.
    """

    latency_s: float = 0.0
    bytes_per_s: float | None = None
    slice_bytes: int | None = None
    slow_close_s: float = 0.0
    swallow_after: int | None = None
    reset_after: int | None = None
    limit_after: int | None = None
    refuse: bool = False

    @property
    def next_cut(self) -> int | None:
        """How many bytes pass before something ends."""
        cuts = [cut for cut in (self.swallow_after, self.reset_after, self.limit_after) if cut is not None]
        return min(cuts, default=None)


CLEAN = Toxics()


class TcpProxy:
    """Listens on `port`. `down` (server to client) and `up` may be set at any time, from any thread, and also
    apply to open connections. `accepted` counts; `open_clients` and `open_upstreams` are open now."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.down = CLEAN
        self.up = CLEAN
        self.accepted = 0
        self.open_clients = 0
        self.open_upstreams = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._links: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait(10)

    def close(self) -> None:
        """Reset open connections and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for link in self._links:
            link.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._links, return_exceptions=True))
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.down.refuse:
            reset(writer)
            return
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        self.open_clients += 1
        try:
            await self._link(reader, writer)
        except (OSError, asyncio.CancelledError):
            reset(writer)
        finally:
            self.open_clients -= 1
            self._links.discard(task)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        self.open_upstreams += 1
        try:
            await self._relay(reader, writer, far_reader, far_writer)
        finally:
            self.open_upstreams -= 1
            far_writer.transport.abort()

    async def _relay(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        """Until either side ends; the other is then closed too, with RST when a toxic says so."""
        up = asyncio.create_task(self._pump(reader, far_writer, "up"))
        down = asyncio.create_task(self._pump(far_reader, writer, "down"))
        try:
            done, _ = await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
        if any(task.exception() or task.result() for task in done):
            reset(far_writer)
            reset(writer)
        else:
            await asyncio.sleep(self.down.slow_close_s)
            writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> bool:
        """Pass bytes on until the end. True: the end is to be a reset."""
        passed = 0
        while data := await reader.read(READ_BYTES):
            toxics = self.up if way == "up" else self.down
            cut = toxics.next_cut
            remaining = data if cut is None else data[: max(0, cut - passed)]
            await _pass_on(remaining, writer, toxics)
            passed += len(remaining)
            if toxics.reset_after is not None and passed >= toxics.reset_after:
                return True
            if toxics.limit_after is not None and passed >= toxics.limit_after:
                return False
        return False


async def _pass_on(data: bytes, writer: asyncio.StreamWriter, toxics: Toxics) -> None:
    if toxics.latency_s:
        await asyncio.sleep(toxics.latency_s)
    size = toxics.slice_bytes or len(data) or 1
    for start in range(0, len(data), size):
        piece = data[start : start + size]
        writer.write(piece)
        await writer.drain()
        if toxics.slice_bytes:
            await asyncio.sleep(0)
        if toxics.bytes_per_s:
            await asyncio.sleep(len(piece) / toxics.bytes_per_s)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close at once, with RST."""
    sock = writer.get_extra_info("socket")
    if sock is not None and not writer.transport.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


@contextmanager
def running_proxy(target_port: int) -> Iterator[TcpProxy]:
    proxy = TcpProxy(target_port)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.close()
