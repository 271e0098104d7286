"""How long the server's event loop lets a small request wait, measured from outside."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.faults.wire.world import WireWorld

EVERY_S = 0.02


@dataclass(frozen=True, slots=True)
class Wait:
    """For `for_core_s` of it the server or the probe could have run but had no core: the machine's fault."""

    took_s: float
    for_core_s: float

    @property
    def lag_s(self) -> float:
        return max(0.0, self.took_s - self.for_core_s)


async def probe(world: WireWorld, seconds: float) -> list[Wait]:
    """GET /health/live every 20 ms, on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    waits, end = [], time.monotonic() + seconds
    pids = (world.server.pid, os.getpid())
    try:
        while (began := time.monotonic()) < end:
            idle_s = _waited_for_core_s(pids)
            writer.write(b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await reader.readuntil(b"}")
            took_s = time.monotonic() - began
            waits.append(Wait(took_s, _waited_for_core_s(pids) - idle_s))
            await asyncio.sleep(max(0.0, EVERY_S - took_s))
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return waits


def _waited_for_core_s(pids: tuple[int, ...]) -> float:
    """The total of the processes' main threads so far; the second figure of Linux's schedstat, in ns."""
    return sum(int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) for pid in pids) / 1e9
