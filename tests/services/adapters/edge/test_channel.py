"""The server's end of the store process: its start, and replies as they arrive."""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from services.adapters.edge import wire
from services.adapters.edge.channel import open_channel
from services.adapters.edge.client import EdgeClient, open_edge_client
from tests.services.adapters.edge.stores import COLLECTION, make_collection
from tests.support.waiting import LIMIT_S


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[EdgeClient]:
    async with open_edge_client(tmp_path) as opened:
        await make_collection(opened)
        yield opened


def wait_for_bytes(client: EdgeClient) -> None:
    """Wait until a reply has arrived, without yielding to the event loop."""
    received = client._channel._transport.get_extra_info("socket")
    assert select.select([received.fileno()], [], [], LIMIT_S)[0]


async def test_the_caller_continues_in_the_loop_iteration_after_its_reply_arrived(client: EdgeClient) -> None:
    """Discriminates: a separate task that reads replies; under load each loop iteration takes
    milliseconds."""
    asked = asyncio.create_task(client.count(COLLECTION))
    await asyncio.sleep(0)  # the request is sent
    wait_for_bytes(client)
    for _ in range(3):  # the reply is received, wakes the caller, and is returned
        await asyncio.sleep(0)
    assert asked.done()


def test_frames_are_read_whole_however_they_arrive() -> None:
    """Discriminates: reading a frame before its end has arrived, or together with the beginning of the
    next."""
    received, taken = bytearray(), []
    for byte in wire.frame(b"abc") + wire.frame(b"", wire.Verdict.REFUSED) + wire.frame(b"de"):
        received.append(byte)
        if frame := wire.take_frame(received):
            taken.append(frame)
    assert taken == [(wire.Verdict.OK, b"abc"), (wire.Verdict.REFUSED, b""), (wire.Verdict.OK, b"de")]
    received += wire.frame(b"f") + wire.frame(b"g")
    assert [wire.take_frame(received) for _ in range(3)] == [
        (wire.Verdict.OK, b"f"), (wire.Verdict.OK, b"g"), None,
    ]  # fmt: skip


@pytest.mark.usefixtures("started_children")
@pytest.mark.parametrize("steps", range(4))
async def test_a_start_cancelled_at_any_step_leaves_no_process(tmp_path: Path, steps: int) -> None:
    """Discriminates: a process that is ended only if already connected."""
    opening = asyncio.create_task(open_channel(tmp_path))
    for _ in range(steps + 1):
        await asyncio.sleep(0)  # one step of the task
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not [each for each in psutil.Process().children() if str(tmp_path) in each.cmdline()]
