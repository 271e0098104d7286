"""F3: killed while a collection is compacted and written to.

The server is a miniature one, so that compactions follow each other without pause: `python -m
tests.faults.upkeep.compactions FOLDER FIRST` opens the store in FOLDER, writes and deletes points with
numbers from FIRST on, compacts continuously, and prints what was acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from core.errors import StoreUnavailableError
from services.adapters.edge.client import EdgeClient, open_edge_client
from services.adapters.edge.journal import FILE
from tests.faults.outcome import Fault, Outcome
from tests.services.adapters.edge.stores import COLLECTION, make_collection, nth_id, thing
from tests.support.environment import ROOT

WRITERS = 3
PLACES = ("compact.copied", "compact.adopting", "compact.renamed", "compact.adopted", "")
"""The first is passed by the server, the next three by its store process; without one, killed anywhen."""
READY_S = 5.0
_DEADLINE_S = 60
_PER_TRIAL = 1_000_000


@dataclass
class Acknowledged:
    """What the writers reported: `present` and `deleted` are acknowledged, `open` may have happened."""

    present: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)
    compactions: int = 0
    failed: int = 0

    def note(self, line: str) -> None:
        kind, _, number = line.strip().partition(" ")
        if kind == "compacted":
            self.compactions += 1
        elif kind == "failed":
            self.failed += 1
        else:
            self._note_point(kind, int(number))

    def _note_point(self, kind: str, number: int) -> None:
        for state in (self.present, self.deleted, self.open):
            state.discard(number)
        {"asked": self.open, "wrote": self.present, "deleted": self.deleted}[kind].add(number)


class Killing:
    """One data folder over all trials."""

    def __init__(self, folder: Path, outcome: Outcome, choice: random.Random) -> None:
        self._folder = folder
        self._outcome = outcome
        self._random = choice
        self._acknowledged = Acknowledged()

    async def trial(self, number: int) -> None:
        place = PLACES[number % len(PLACES)]
        where = f"{place or 'anywhen'}, trial {number}"
        async with _miniature(self._folder, place, number * _PER_TRIAL) as server:
            await asyncio.wait_for(self._listen(server, place), _DEADLINE_S)
        began = time.monotonic()
        async with open_edge_client(self._folder) as client:
            self._outcome.took(time.monotonic() - began)
            await self._check(client, where)

    async def _listen(self, server: asyncio.subprocess.Process, place: str) -> None:
        """Until the process dies on its own, or until a compaction has failed or succeeded, and some writes
        after it."""
        assert server.stdout is not None
        failed_before, done_before = self._acknowledged.failed, self._acknowledged.compactions
        left = self._random.randint(1, 200 if place else 1_000)
        while line := await server.stdout.readline():
            if line.endswith(b"\n"):
                self._acknowledged.note(line.decode())
            left -= self._acknowledged.failed > failed_before or self._acknowledged.compactions > done_before
            if left <= 0:
                os.kill(server.pid, signal.SIGKILL)
                break
        async for line in server.stdout:  # what was acknowledged before the end counts
            if line.endswith(b"\n"):
                self._acknowledged.note(line.decode())

    async def _check(self, client: EdgeClient, where: str) -> None:
        records, _ = await client.scroll(COLLECTION, limit=1_000_000)
        existing = [record.payload["n"] for record in records if record.payload]
        lost = self._acknowledged.present - set(existing)
        back = set(existing) & self._acknowledged.deleted
        self._outcome.expect(not lost, f"{where}: {len(lost)} acknowledged points are lost")
        self._outcome.expect(not back, f"{where}: {len(back)} deleted points are back")
        self._outcome.expect(len(existing) == len(set(existing)), f"{where}: a point is there twice")
        entries = {entry.name for entry in self._folder.iterdir() if not entry.name.startswith(FILE)}
        left = entries - {"lock", COLLECTION}
        self._outcome.expect(not left, f"{where}: {left} was left behind")
        self._acknowledged.open.clear()
        self._acknowledged.present = set(existing)
        figures = self._outcome.figures
        figures["compactions"], figures["store deaths in one"] = (
            self._acknowledged.compactions,
            self._acknowledged.failed,
        )
        figures["points"] = len(existing)


@asynccontextmanager
async def _miniature(folder: Path, place: str, first: int) -> AsyncIterator[asyncio.subprocess.Process]:
    environment = {**os.environ, "WENMAI_FAILPOINT": place}
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.upkeep.compactions", str(folder), str(first),
        cwd=ROOT, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGKILL)
        await server.wait()


# ---- the miniature server -----------------------------------------------------------------------


def _report(kind: str, number: int = 0) -> None:
    os.write(1, f"{kind} {number}\n".encode())


async def _write(client: EdgeClient, number: int) -> None:
    """Every third point is deleted again."""
    while True:
        try:
            _report("asked", number)
            await client.upsert(COLLECTION, [thing(number)])
            _report("wrote", number)
            if number % 9 < WRITERS:
                _report("asked", number)
                await client.delete(COLLECTION, [nth_id(number)])
                _report("deleted", number)
        except StoreUnavailableError:
            pass  # the store has died; the next request starts another
        number += WRITERS
        await asyncio.sleep(0.003)  # gives the compaction its turns


async def _compact(client: EdgeClient) -> None:
    while True:
        try:
            await client.compact(COLLECTION)
            _report("compacted")
        except StoreUnavailableError:
            _report("failed")


async def _serve(folder: Path, first: int) -> None:
    async with open_edge_client(folder) as client:
        if not await client.collection_exists(COLLECTION):
            await make_collection(client)
        writers = [_write(client, first + n) for n in range(WRITERS)]
        await asyncio.gather(*writers, _compact(client))


# ---- trials -------------------------------------------------------------------------------------


async def kill_in_compactions(trials: int, folder: Path, seed: int) -> Outcome:
    outcome = Outcome()
    killing = Killing(folder / "store", outcome, random.Random(seed))
    for number in range(trials):
        await killing.trial(number)
        outcome.trials += 1
    outcome.expect(outcome.worst_s <= READY_S, f"open after {outcome.worst_s:.1f} s")
    return outcome


def _run(trials: int, folder: Path, seed: int) -> Outcome:
    return asyncio.run(kill_in_compactions(trials, folder, seed))


FAULTS = (
    Fault(
        "F3 killed during compaction",
        "every acknowledged point there once, no deleted one back, nothing left of the copy, open in 5 s",
        _run,
        short=1,
        long=50,
    ),
)

if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
