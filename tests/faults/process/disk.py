"""F26: the disk of the data folder fills up while turns are asked.

The disk is a tmpfs in a mount namespace of its own, so nothing stays mounted and no privilege is needed if
users may create namespaces. There this module runs as a process: `unshare -rm python -m
tests.faults.process.disk TRIALS FOLDER SEED` prints the outcome as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.outcome import Fault, Outcome
from tests.faults.world.client import Client, Reply, open_client
from tests.faults.world.echo_model import answer_to, open_echo_model, question
from tests.faults.world.ledger import DOCUMENT, Ledger, check_session, check_turn
from tests.faults.world.server_world import StartFailedError, World, open_world
from tests.faults.world.warm_start import open_warm
from tests.support.environment import ROOT, clean_environment

SIZE_MB = 1_200
"""The engine touches every page of its files, which a tmpfs then has to hold: 900 MB for five collections."""
RESERVE_MB = 64
WRITERS = 3
BEFORE_THE_FIRST_BYTE = (507, "disk_full")
AFTERWARDS = {"disk_full", "not_stored"}
_DEADLINE_S = 10.0


@dataclass
class Disk:
    """A mounted folder whose free space is set by a ballast file."""

    folder: Path

    def mount(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        options = ["-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(self.folder)]
        subprocess.run(["mount", *options], check=True)

    def leave(self, megabytes: float) -> None:
        """Fill everything beyond that amount; retried when somebody wrote meanwhile."""
        with self._ballast.open("wb") as file:
            while (surplus := self._free_bytes() - int(megabytes * (1 << 20))) > 0:
                with suppress(OSError):
                    os.posix_fallocate(file.fileno(), 0, surplus)
                    return

    def _free_bytes(self) -> int:
        room = os.statvfs(self.folder)
        return room.f_bavail * room.f_frsize

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"


@dataclass
class Filling:
    world: World
    disk: Disk
    outcome: Outcome
    random: random.Random
    ledger: Ledger = field(default_factory=Ledger)

    async def trial(self, number: int) -> None:
        where = f"trial {number}"
        left_mb = self.random.choice((0.0, 0.0, self.random.uniform(0, RESERVE_MB), RESERVE_MB + 1.0))
        store = [process.pid for process in self.world.store_processes()]
        async with open_client(self.world.url) as client:
            writers = [
                asyncio.create_task(self._write(client, f"t{number}w{writer}", where))
                for writer in range(WRITERS)
            ]
            await asyncio.sleep(self.random.uniform(0, 0.4))
            await asyncio.to_thread(self.disk.leave, left_mb)
            refused = sum(await asyncio.gather(*writers))
            refused += await self._while_full(client, number, where)
            enough = refused > 0 or left_mb > RESERVE_MB
            self.outcome.expect(enough, f"{where}: nothing was refused with {left_mb:.0f} MB left")
        same = [process.pid for process in self.world.store_processes()] == store
        self.outcome.expect(same, f"{where}: the store process did not survive {left_mb:.0f} MB left")
        if self.random.random() < 0.4:
            await self._restart_full(where)
        self.disk.free()
        await self._afterwards(number, where)

    async def _write(self, client: Client, name: str, where: str) -> int:
        """Write some turns of one session. Returns how many were refused."""
        session: dict[str, Any] = {}
        refused = 0
        for number in range(6):
            asked = question(f"{name}n{number}", self.random.randint(1, 40), self.random.choice((0, 5)))
            reply = await client.ask(asked, **session)
            acknowledged = self.ledger.note(asked, reply)
            session = {"session_id": acknowledged.session_id} if acknowledged is not None else session
            refused += acknowledged is None
            self._check_reply(asked, reply, where)
        return refused

    def _check_reply(self, asked: str, reply: Reply, where: str) -> None:
        """Acknowledged and complete, or refused before the first byte, or complete with ERROR and DONE."""
        self.outcome.took(reply.took_s)
        if reply.code:
            self.outcome.count(f"{reply.status} {reply.code}")
        promise = (
            f"{where}: {asked} ended after {reply.took_s:.1f} s with {reply.status} {reply.text[-400:]!r}"
        )
        if reply.status != 200:
            self.outcome.expect((reply.status, reply.code) == BEFORE_THE_FIRST_BYTE, promise)
            return
        defined = reply.acknowledged or reply.code in AFTERWARDS
        self.outcome.expect(reply.done and defined and reply.took_s < _DEADLINE_S, promise)
        self.outcome.expect(reply.streamed.answer in ("", answer_to(asked)), promise)

    async def _while_full(self, client: Client, number: int, where: str) -> int:
        """Reads still work, and one more question gets a defined answer."""
        live = await client.get("/health/live")
        self.outcome.expect(live.status == 200, f"{where}: /health/live {live.status}")
        ready = await client.get("/health/ready")
        self.outcome.expect(ready.status in (200, 503), f"{where}: /health/ready {ready.status}")
        self.outcome.count(f"/health/ready {ready.status}")
        known = list(self.ledger.turns.values())
        for acknowledged in self.random.sample(known, min(5, len(known))):
            await check_turn(client, acknowledged, self.outcome, f"{where}, disk full")
        asked = question(f"t{number}full")
        reply = await client.ask(asked)
        self._check_reply(asked, reply, where)
        return self.ledger.note(asked, reply) is None

    async def _restart_full(self, where: str) -> None:
        """It opens, or it is refused in one line; never with a traceback, never as an empty store."""
        if self.random.random() < 0.5:
            await self.world.kill(with_store=self.random.random() < 0.5)
        else:
            self.world.signal(signal.SIGTERM)
            await self.world.wait()
        try:
            await self.world.start()
            self.outcome.count("started while full")
        except StartFailedError as error:
            self.outcome.count("start refused while full")
            plain = "Traceback" not in str(error) and "wenmai:" in str(error)
            self.outcome.expect(plain, f"{where}: the start ended with {error}")

    async def _afterwards(self, number: int, where: str) -> None:
        """With space again the next question is answered, and everything acknowledged exists."""
        if not self.world.url:
            await self.world.start()
        async with open_client(self.world.url) as client:
            asked = question(f"t{number}after")
            acknowledged = self.ledger.note(asked, reply := await client.ask(asked))
            self.outcome.expect(
                acknowledged is not None, f"{where}: with room again {reply.status} {reply.text[-400:]!r}"
            )
        if self.random.random() < 0.5:
            await self.world.kill(with_store=True)
            await self.world.start()
        async with open_client(self.world.url) as client:
            for session_id in list(self.ledger.sessions)[-2 * WRITERS :]:
                await self._check_session(client, session_id, where)

    async def _check_session(self, client: Client, session_id: str, where: str) -> None:
        """A turn whose end could not be written reads as running until the next start: not a loss here."""
        part = Outcome()
        await check_session(client, self.ledger, session_id, part, where)
        self.outcome.losses += [loss for loss in part.losses if "is running after a restart" not in loss]

    async def read_everything(self) -> None:
        await self.world.kill(with_store=True)
        await self.world.start()
        async with open_client(self.world.url) as client:
            for session_id in self.ledger.sessions:
                await check_session(client, self.ledger, session_id, self.outcome, "at the end")
        self.outcome.figures["acknowledged"] = len(self.ledger.turns)


async def fill(trials: int, folder: Path, seed: int) -> Outcome:
    outcome = Outcome()
    async with AsyncExitStack() as stack:
        warm = await stack.enter_async_context(open_warm(own=True))
        model = await stack.enter_async_context(open_echo_model())
        world = await stack.enter_async_context(open_world(folder, warm, OPENAI_BASE_URL=model.url))
        disk = Disk(world.data_dir)
        await asyncio.to_thread(disk.mount)
        await world.start()
        async with open_client(world.url) as client:
            await client.add_document("lighthouse.md", DOCUMENT)
        filling = Filling(world, disk, outcome, random.Random(seed))
        for number in range(trials):
            await filling.trial(number)
            outcome.trials += 1
        await filling.read_everything()
    return outcome


def _run(trials: int, folder: Path, seed: int) -> Outcome:
    """Run in a namespace of its own; without one the outcome says "skipped" and why."""
    probe = folder / "probe"
    probe.mkdir()
    mount = ["mount", "-t", "tmpfs", "tmpfs", str(probe)]
    try:
        allowed = subprocess.run(["unshare", "-rm", *mount], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return Outcome(figures={"skipped": str(error)})
    if allowed.returncode:
        return Outcome(figures={"skipped": f"no mount namespace: {allowed.stderr.strip()}"})
    command = [sys.executable, "-m", "tests.faults.process.disk", str(trials), str(folder), str(seed)]
    ended = subprocess.run(
        ["unshare", "-rm", *command],
        cwd=ROOT,
        env=clean_environment({}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Outcome(**json.loads(ended.stdout))


FAULTS = (
    Fault(
        "F26 disk full",
        "a defined end for every turn, reads go on, nothing acknowledged is lost, all well with room again",
        _run,
        short=1,
        long=50,
    ),
)

if __name__ == "__main__":
    outcome = asyncio.run(fill(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
    print(json.dumps(asdict(outcome)))
