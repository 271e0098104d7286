"""The server's end of the pipe to its store process: start it, send it requests, notice its death, end it."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import TypeVar, cast

from msgspec.msgpack import Decoder

from core.errors import (
    DiskFullError,
    StartRefusedError,
    StoreLockedError,
    StoreReadOnlyError,
    StoreUnavailableError,
    WenmaiError,
)
from services.adapters.edge import convert, wire
from services.store.dialect import Changed, StoreRequestError, UnknownPointError
from services.store.spawn import spawn

_START_TIMEOUT_S = 120
_END_TIMEOUT_S = 30
_ENDED = "the store process ended before it answered"
_CRASHES = frozenset(
    {-signal.SIGBUS, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGILL, wire.ENDED_BY_READING}
)
"""Exit codes of a process that died of the data it read."""

_ERRORS: dict[wire.Verdict, type[WenmaiError]] = {
    wire.Verdict.REFUSED: StoreRequestError,
    wire.Verdict.UNAVAILABLE: StoreUnavailableError,
    wire.Verdict.UNKNOWN_POINT: UnknownPointError,
    wire.Verdict.LOCKED: StoreLockedError,
    wire.Verdict.UNREADABLE: StartRefusedError,
    wire.Verdict.DISK_FULL: DiskFullError,
    wire.Verdict.READ_ONLY: StoreReadOnlyError,
}


class EdgeChannel(asyncio.Protocol):
    """One store process. Requests of many tasks share its pipe; replies come in the order of the requests.
    Each reply wakes its caller directly: a reader task would cost another iteration of the event loop."""

    _transport: asyncio.WriteTransport

    def __init__(self, process: Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process
        self._received = bytearray()
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._ended = False
        self._greeting = self._reply()

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def crashed(self) -> bool:
        """Once closed: whether the process died of the data it read."""
        return self._process.returncode in _CRASHES

    async def exchange(self, request: wire.Request) -> bytes:
        """Send a request and wait for its reply's body.

        Cancelling the wait keeps the pipe in sync: the place in the queue remains, its reply is dropped.
        Raises the domain error of the reply's verdict, or StoreUnavailableError when the process dies.
        """
        reply = self._send(request)
        await self._has_room.wait()
        return await reply

    def _send(self, request: wire.Request) -> asyncio.Future[bytes]:
        """Write and enqueue without an await in between, so that replies match their requests."""
        if self._ended:
            raise StoreUnavailableError("the store process has ended")
        body = wire.encode(request)
        if len(body) > wire.MAX_BODY_BYTES:
            raise StoreRequestError(f"a request of {len(body)} bytes is too large")
        reply = self._reply()
        self._transport.write(wire.frame(body))
        return reply

    def _reply(self) -> asyncio.Future[bytes]:
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(reply)
        return reply

    async def greeted(self, folder: Path) -> None:
        """Wait for the empty frame sent once all shards are open. Raises as `open_channel` does."""
        try:
            await asyncio.wait_for(self._greeting, _START_TIMEOUT_S)
        except StoreUnavailableError as error:
            if str(error) != _ENDED:
                raise
            raise StartRefusedError(f"the store process of {folder} ended while it was starting") from None
        except TimeoutError:
            sentence = f"the store in {folder} did not open within {_START_TIMEOUT_S} s"
            raise StartRefusedError(sentence) from None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (frame := wire.take_frame(self._received)) is not None:
            reply, (verdict, body) = self._waiting.popleft(), frame
            if reply.done():
                continue  # its caller was cancelled
            if verdict is wire.Verdict.OK:
                reply.set_result(body)
            else:
                reply.set_exception(_ERRORS[verdict](body.decode(errors="replace")))

    def pause_writing(self) -> None:
        self._has_room.clear()

    def resume_writing(self) -> None:
        self._has_room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True  # the process has closed its end, or died, or is being closed
        self._transport.close()
        self._has_room.set()  # waiting writers learn of it from their replies
        while self._waiting:
            reply = self._waiting.popleft()
            if not reply.done():
                reply.set_exception(StoreUnavailableError(_ENDED))

    def kill(self) -> None:
        """End the process without closing anything; `close` must still be called."""
        self._process.kill()

    async def close(self) -> None:
        """Wait for pending replies; the process then sees the pipe closed, closes its shards and exits."""
        await asyncio.gather(*self._waiting, return_exceptions=True)
        self.connection_lost(None)
        await end_process(self._process)


async def open_channel(folder: Path, *flags: str) -> EdgeChannel:
    """Start the store process of `folder` and wait until all shards are open.

    `flags` are those of `wire`; with COPIES_FLAG it runs at low priority and leaves unreleased shards open.
    Raises StoreLockedError, StartRefusedError; StoreUnavailableError when the process cannot be run.
    """
    try:
        spawned = spawn(folder, flags)
    except OSError as error:
        raise StoreUnavailableError(f"the store process cannot be started: {error}") from error
    process = spawned.process
    loop, channel = asyncio.get_running_loop(), EdgeChannel(process)
    try:
        await loop.create_unix_connection(lambda: channel, sock=spawned.connection)
    except BaseException:
        spawned.connection.close()
        await end_process(process)
        raise
    try:
        await channel.greeted(folder)
    except BaseException:
        await channel.close()
        if process.returncode in _CRASHES and wire.PROBING_FLAG not in flags:
            return await open_channel(folder, *flags, wire.PROBING_FLAG)
        raise
    return channel


async def end_process(process: Popen[bytes]) -> None:
    """Wait for a process whose pipe is closed; kill it if it does not end on its own, or if the wait is
    cancelled: everything acknowledged is in the journal."""
    try:
        with suppress(TimeoutExpired):
            await asyncio.to_thread(process.wait, _END_TIMEOUT_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()  # returns as soon as it has ended


# The server's end of a feed of changes.


T = TypeVar("T")

_CHANGED = Decoder(dict[str, list[wire.PointId]])
_LAST = Decoder(dict[str, wire.LastChanged] | None)


class EdgeFeed:
    """Satisfies `services.store.dialect.ChangeFeed`. Bound to one store process; it ends with that process.

    Creating or deleting a collection in the meantime ends it, too: both calls then raise
    StoreUnavailableError. A compaction changes no point and does not end it.
    """

    def __init__(self, channel: EdgeChannel, number: int) -> None:
        self.channel = channel
        self.number = number

    async def changed(self) -> dict[str, list[wire.PointId]]:
        return await self._ask(wire.TakeChanged(self.number), _CHANGED)

    async def last(self, max_points: int) -> Mapping[str, Changed] | None:
        taken = await self._ask(wire.TakeLast(self.number, max_points), _LAST)
        if taken is None:
            return None
        return {
            name: Changed([convert.record(record) for record in last.records], last.deleted)
            for name, last in taken.items()
        }

    async def _ask(self, request: wire.Request, decoder: Decoder[T]) -> T:
        try:
            return decoder.decode(await self.channel.exchange(request))
        except StoreUnavailableError as error:
            if not self.channel.ended:
                raise
            sentence = "the store process ended while the store was being copied: start the copy again"
            raise StoreUnavailableError(sentence) from error


@asynccontextmanager
async def open_feed(
    channel: EdgeChannel, number: int, collections: Sequence[str] | None
) -> AsyncIterator[EdgeFeed]:
    """`number` must be new on this channel. Raises StoreUnavailableError."""
    names = None if collections is None else list(collections)
    try:
        await channel.exchange(wire.Follow(number, names))
        yield EdgeFeed(channel, number)
    finally:
        with suppress(StoreUnavailableError):  # the process has ended, and the feed with it
            await channel.exchange(wire.Unfollow(number))
