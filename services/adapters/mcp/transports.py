"""The two transports, with limits that the SDK's own lack: a server that prints garbage or floods us loses
its connection, and nothing else happens."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
import httpx2
import structlog
from mcp.client._transport import TransportStreams
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

log = structlog.get_logger()

MAX_MESSAGE_BYTES = 16_000_000
MAX_GARBAGE_LINES = 100  # per connection: some programs print a greeting to the wrong stream
MAX_MESSAGES_A_SECOND = 500
END_PATIENCE_S = 1.0  # for a program to end once its input has ended, and again once it is asked to
CONNECT_TIMEOUT_S = 5.0
STDERR_BYTES = 4_000

OnLost = Callable[[], None]
OnStderr = Callable[[bytes], None]


class Floodgate:
    """Counts messages and garbage, and says when it is too much."""

    def __init__(self) -> None:
        self._second = 0
        self._messages = 0
        self._garbage = 0

    def passes_message(self) -> bool:
        second = int(asyncio.get_running_loop().time())
        if second != self._second:
            self._second, self._messages = second, 0
        self._messages += 1
        return self._messages <= MAX_MESSAGES_A_SECOND

    def passes_garbage(self) -> bool:
        self._garbage += 1
        return self._garbage <= MAX_GARBAGE_LINES


@asynccontextmanager
async def open_program(
    command: Sequence[str], environment: Mapping[str, str], on_lost: OnLost, on_stderr: OnStderr
) -> AsyncGenerator[TransportStreams, None]:
    """Run a program that speaks over its standard streams; its standard error goes to `on_stderr`.

    Its environment is the few variables that any program needs, plus `environment`. Raises OSError.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=get_default_environment() | dict(environment),
        start_new_session=True,
        limit=MAX_MESSAGE_BYTES,
    )
    listening = asyncio.create_task(_listen(process, on_stderr))
    try:
        incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        sending, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, process, incoming, on_lost)
            tasks.start_soon(_write, process, outgoing)
            try:
                yield received, sending
            finally:
                received.close()
                sending.close()
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
            await asyncio.wait([listening], timeout=END_PATIENCE_S)
            listening.cancel()


async def _listen(process: asyncio.subprocess.Process, on_stderr: OnStderr) -> None:
    assert process.stderr is not None
    while piece := await process.stderr.read(STDERR_BYTES):
        on_stderr(piece)


async def _read(
    process: asyncio.subprocess.Process,
    incoming: anyio.streams.memory.MemoryObjectSendStream[SessionMessage | Exception],
    on_lost: OnLost,
) -> None:
    assert process.stdout is not None
    async with incoming:
        try:
            async for message in _messages(process.stdout):
                await incoming.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return
        finally:
            on_lost()


async def _messages(stdout: asyncio.StreamReader) -> AsyncIterator[SessionMessage]:
    """Messages line by line, until the stream ends or exceeds a limit."""
    gate = Floodgate()
    while True:
        try:
            line = await stdout.readline()
        except (ValueError, ConnectionError):  # a line beyond the limit
            log.warning(
                "tool_server_cut_off", reason="a message over the size limit", limit=MAX_MESSAGE_BYTES
            )
            return
        if not line:
            return
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            if not gate.passes_garbage():
                log.warning("tool_server_cut_off", reason="too many lines that are not messages")
                return
            await asyncio.sleep(0)
            continue
        if not gate.passes_message():
            log.warning("tool_server_cut_off", reason="too many messages")
            return
        yield SessionMessage(message)


async def _write(
    process: asyncio.subprocess.Process,
    outgoing: anyio.streams.memory.MemoryObjectReceiveStream[SessionMessage],
) -> None:
    assert process.stdin is not None
    async with outgoing:
        with suppress(ConnectionError, anyio.ClosedResourceError):
            async for each in outgoing:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close the program's input; if it keeps running, terminate, then kill it, with all that it started."""
    assert process.stdin is not None
    process.stdin.close()
    for sign in (None, signal.SIGTERM, signal.SIGKILL):
        if sign is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, sign)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_PATIENCE_S):
                await process.wait()
                break
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # processes it left behind
    process._transport.close()  # type: ignore[attr-defined]  # a child that holds the pipe keeps it open


@asynccontextmanager
async def open_address(
    url: str, headers: Mapping[str, str], timeout_s: float
) -> AsyncGenerator[TransportStreams, None]:
    """A server over streamable HTTP. Callers have a deadline of their own, `timeout_s`; the request of an
    abandoned call stays open a little longer."""
    timeout = httpx2.Timeout(timeout_s + CONNECT_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    async with (
        httpx2.AsyncClient(
            headers=dict(headers), timeout=timeout, transport=BoundedTransport(), trust_env=False
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams


class BoundedTransport(httpx2.AsyncHTTPTransport):
    """Limits responses to the size of a message. One that denies access ends the connection, because the
    SDK's own error for it says that the server is broken."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await super().handle_async_request(request)
        except httpx2.ReadTimeout:  # the call was abandoned; an error would abort concurrent calls, too
            return httpx2.Response(504, request=request)
        if response.status_code in (401, 403):
            await response.aclose()
            raise httpx2.HTTPStatusError("It refused the client.", request=request, response=response)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(response.stream)
        return response


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_MESSAGE_BYTES
        with suppress(httpx2.ReadTimeout):
            async for piece in self._stream:
                left -= len(piece)
                if left < 0:
                    raise httpx2.ReadError("The server sent a message over the size limit.")
                yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
