"""A server's faults become our errors, and a server that is down does not keep the client from opening."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from config.settings import StoreSettings
from core.errors import StoreUnavailableError
from services.adapters.qdrant.server import open_qdrant_server
from services.store.dialect import StoreRequestError, UnknownPointError


@asynccontextmanager
async def server_that_answers(status: int, message: str) -> AsyncIterator[str]:
    """A real HTTP server that gives one answer to everything; status 0 hangs up instead."""
    body = json.dumps({"status": {"error": message}, "time": 0.0}).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if status:
            head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (0, "", StoreUnavailableError),
        (503, "Service Unavailable", StoreUnavailableError),
        (401, "Must provide an API key", StoreUnavailableError),
        (400, "Wrong input: Vector dimension error", StoreRequestError),
        (404, "Not found: Collection `x` doesn't exist!", StoreRequestError),
        (404, "Not found: No point with id 7 found", UnknownPointError),
    ],
)
async def test_a_servers_refusal_becomes_ours(status: int, message: str, expected: type[Exception]) -> None:
    async with (
        server_that_answers(status, message) as url,
        open_qdrant_server(StoreSettings(qdrant_url=url)) as store,
    ):
        with pytest.raises(expected) as failed:
            await store.set_payload("x", {"a": 1}, [7])
    assert type(failed.value) is expected


async def test_a_server_that_is_down_is_unavailable_when_asked_and_not_before() -> None:
    async with open_qdrant_server(StoreSettings(qdrant_url="http://127.0.0.1:9")) as store:
        with pytest.raises(StoreUnavailableError):
            await store.collection_exists("x")
