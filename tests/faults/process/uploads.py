"""F41: one owner sends more than can be read at once, and leaves; meanwhile another owner's file is read.

The flood comes from a separate process: `python -m tests.faults.process.uploads URL KEY FILES` sends so many
files at once and prints the reply to each, as JSON; so it does not delay the measurement.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.faults.outcome import Fault, Outcome
from tests.faults.world.server_world import World, open_world
from tests.faults.world.warm_start import open_warm

SLOW_FILES, MANY_FILES = 6, 50
FILE_BYTES = 20 << 20
LEAVES_AFTER_S = 4.0
SMALL_S, ANSWER_S = 5.0, 10.0
_FLOODER, _OTHER = "flooder-key-0123456789-0123456789", "other-key-0123456789-0123456789"
_LIMIT_S = 300.0
_PIECE = b"The keeper of the lighthouse lights the lamp at dusk and reads until it is day.\n\n" * 2_000
_BOUNDARY = "faults"


class Answer(NamedTuple):
    status: int
    retry_after: str
    took_s: float


async def send_one(url: httpx.URL, key: str, name: str, size_bytes: int) -> Answer:
    """By hand, in pieces: fifty such files would not fit into the memory of a client library."""
    begun = time.monotonic()
    disposition = f'Content-Disposition: form-data; name="file"; filename="{name}"'
    part = f"--{_BOUNDARY}\r\n{disposition}\r\n\r\n# {name} {begun}\n\n".encode()
    end = f"\r\n--{_BOUNDARY}--\r\n".encode()
    pieces = size_bytes // len(_PIECE)
    head = (
        f"POST /documents HTTP/1.1\r\nHost: {url.host}:{url.port}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: multipart/form-data; boundary={_BOUNDARY}\r\n"
        f"Content-Length: {len(part) + pieces * len(_PIECE) + len(end)}\r\nConnection: close\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        writer.write(head.encode() + part)
        for _ in range(pieces):
            writer.write(_PIECE)
            await writer.drain()
        writer.write(end)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    finally:
        writer.close()
    headers = dict(line.split(": ", 1) for line in answer.split("\r\n")[1:] if line)
    return Answer(int(answer.split()[1]), headers.get("retry-after", ""), time.monotonic() - begun)


async def flood(url: str, key: str, files: int) -> list[Answer]:
    sending = [send_one(httpx.URL(url), key, f"flood{n}.md", FILE_BYTES) for n in range(files)]
    return await asyncio.gather(*sending)


class Flooding:
    def __init__(self, world: World, outcome: Outcome) -> None:
        self._world = world
        self._outcome = outcome
        self._small = 0

    async def _flooder(self, files: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, self._world.url, _FLOODER, str(files),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async def leave(self) -> None:
        """Six files, whose client leaves while they are being read."""
        flooder = await self._flooder(SLOW_FILES)
        await asyncio.sleep(LEAVES_AFTER_S)
        flooder.kill()
        await flooder.wait()
        await self._small_one("beside those left behind")

    async def many(self) -> None:
        """Fifty at once, each to be answered."""
        flooder = await self._flooder(MANY_FILES)
        ended = asyncio.ensure_future(flooder.communicate())
        while not ended.done():
            await asyncio.wait([ended], timeout=1)
            if not ended.done():
                await self._small_one("beside fifty")
        answers = [Answer(*each) for each in json.loads((await ended)[0])]
        for answer in answers:
            self._outcome.count(f"answered {answer.status}")
            right = answer.status in (201, 413) or (answer.status == 429 and answer.retry_after.isdecimal())
            self._outcome.expect(right, f"a file of fifty was answered {answer}")
        self._judge("slowest of fifty, s", max(answer.took_s for answer in answers), ANSWER_S)

    async def _small_one(self, where: str) -> None:
        self._small += 1
        url = httpx.URL(self._world.url)
        answer = await send_one(url, _OTHER, f"small{self._small}.md", 200)
        self._outcome.expect(answer.status == 201, f"{where}: another's small file was answered {answer}")
        self._judge(f"small file {where}, s", answer.took_s, SMALL_S)

    def _judge(self, name: str, took_s: float, most_s: float) -> None:
        self._outcome.worst(name, took_s)
        if os.getloadavg()[0] > 2 * (os.cpu_count() or 1):
            self._outcome.count("machine too busy to judge a time")
            return
        self._outcome.expect(took_s <= most_s, f"{name}: {took_s:.1f}")


async def flood_with_uploads(trials: int, folder: Path) -> Outcome:
    outcome = Outcome()
    async with AsyncExitStack() as stack:
        warm = await stack.enter_async_context(open_warm())
        keys = {"API_KEYS": f"{_FLOODER},{_OTHER}"}
        for number in range(trials):
            place = folder / str(number)
            async with open_world(place, warm, **keys) as world:
                await world.start()
                flooding = Flooding(world, outcome)
                await flooding.leave()
                if number % 2:
                    await flooding.many()
            outcome.trials += 1
    return outcome


def _run(trials: int, folder: Path, seed: int) -> Outcome:
    return asyncio.run(asyncio.wait_for(flood_with_uploads(trials, folder), trials * _LIMIT_S))


FAULTS = (
    Fault(
        "F41 one owner's uploads",
        "another's small file is read within 5 s; each of fifty files of 20 MB is answered within 10 s",
        _run,
        short=1,
        long=6,
    ),
)

if __name__ == "__main__":
    json.dump(asyncio.run(flood(sys.argv[1], sys.argv[2], int(sys.argv[3]))), sys.stdout)
