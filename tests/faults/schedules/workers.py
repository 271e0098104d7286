"""F29, F30, G14: several processes with one schedule; they are killed, stopped, and their clocks differ."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.faults.outcome import Fault, Outcome
from tests.support.servers.schedule_worker import BEGAN, ENDED, READY, Line, read_lines
from tests.support.stores.qdrant_facade import Facade, open_facade

WORKERS = 4
PERIOD_S = 0.6
LEASE_S = 1.2
SKEW_S = 0.15
_START_S = 40.0


@dataclass
class Crew:
    """Workers that share a store, and the folder in which their jobs write."""

    facade: Facade
    folder: Path
    nest: asyncio.subprocess.Process
    pids: set[int] = field(default_factory=set)

    @property
    def hold(self) -> Path:
        """While this file exists, running jobs keep running."""
        return self.folder / "hold"

    def lines(self, what: str) -> list[Line]:
        return [line for line in read_lines(self.folder / "lines") if line.what == what]

    async def start(self, ahead_s: float) -> None:
        assert self.nest.stdin is not None
        assert self.nest.stdout is not None
        self.nest.stdin.write(f"{ahead_s}\n".encode())
        pid = int(await asyncio.wait_for(self.nest.stdout.readline(), _START_S))
        self.pids.add(pid)
        if not await self.until(lambda: pid in {line.pid for line in self.lines(READY)}, _START_S):
            raise TimeoutError("the worker did not start")

    async def until(self, happened: Callable[[], bool], within_s: float) -> bool:
        end = time.monotonic() + within_s
        while not happened():
            if time.monotonic() > end:
                return False
            await asyncio.sleep(0.02)  # between two polls
        return True

    def kill(self, pid: int) -> None:
        self.pids.discard(pid)
        os.kill(pid, signal.SIGKILL)

    async def next_began(self, within_s: float) -> Line | None:
        """The first run that begins from now on."""
        before = len(self.lines(BEGAN))
        await self.until(lambda: len(self.lines(BEGAN)) > before, within_s)
        return next(iter(self.lines(BEGAN)[before:]), None)

    async def next_ended(self, within_s: float) -> None:
        before = len(self.lines(ENDED))
        await self.until(lambda: len(self.lines(ENDED)) > before, within_s)

    async def close(self) -> None:
        self.hold.unlink(missing_ok=True)
        assert self.nest.stdin is not None
        self.nest.stdin.close()
        try:
            await asyncio.wait_for(self.nest.wait(), 10)
        except TimeoutError:
            for pid in self.pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.nest.kill()
            await self.nest.wait()


@asynccontextmanager
async def open_crew(folder: Path, seeds: random.Random) -> AsyncIterator[Crew]:
    """Four workers whose clocks differ by up to 0.3 s: a quarter of a lease, half a period."""
    async with open_facade("operations") as facade:
        nest = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.support.servers.schedule_worker", f"--url={facade.url}", f"--folder={folder}"),
            *(f"--period-s={PERIOD_S}", f"--lease-s={LEASE_S}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        crew = Crew(facade, folder, nest)
        try:
            for _ in range(WORKERS):
                await crew.start(seeds.uniform(-SKEW_S, SKEW_S))
            yield crew
        finally:
            await crew.close()


async def _count(trials: int, folder: Path, seed: int) -> Outcome:
    outcome = Outcome()
    async with open_crew(folder, random.Random(seed)) as crew:
        enough = (trials + 4) * PERIOD_S * 2 + 20
        done = await crew.until(lambda: len(crew.lines(ENDED)) >= trials, enough)
        outcome.expect(done, f"only {len(crew.lines(ENDED))} of {trials} slots were run in {enough:.0f} s")
        ended = crew.lines(ENDED)[:]
    _check(outcome, ended)
    outcome.trials = len({line.slot for line in ended})
    workers = Counter(line.pid for line in ended)
    outcome.figures = {
        "slots": outcome.trials,
        "runs": len(ended),
        "processes": WORKERS,
        "processes that ran": len(workers),
        "requests": crew.facade.requests,
    }
    return outcome


def _check(outcome: Outcome, ended: list[Line]) -> None:
    runs = Counter(line.slot for line in ended)
    for slot, number in runs.items():
        outcome.expect(number == 1, f"slot {slot} was run {number} times")
    for one, two in pairwise(sorted(runs)):
        missed = round((two - one) / (PERIOD_S * 1_000_000)) - 1
        outcome.expect(missed == 0, f"{missed} slots after {one} were not run")


async def _kill(trials: int, folder: Path, seed: int) -> Outcome:
    """The holder dies while it runs; measured is the time until another run begins."""
    outcome, seeds = Outcome(), random.Random(seed)
    async with open_crew(folder, seeds) as crew:
        for trial in range(trials):
            crew.hold.touch()
            first = await crew.next_began(10)
            if first is None:
                outcome.expect(False, f"trial {trial}: no run began")
                break
            await asyncio.sleep(seeds.uniform(0, LEASE_S))
            died = time.monotonic()
            crew.kill(first.pid)
            second = await crew.next_began(4 * LEASE_S)
            crew.hold.unlink()
            outcome.trials += 1
            took_s = (second.at_s if second else time.monotonic()) - died
            outcome.took(took_s)
            outcome.expect(took_s <= 2 * LEASE_S, f"trial {trial}: the next began {took_s:.2f} s later")
            await crew.next_ended(10)
            await crew.start(seeds.uniform(-SKEW_S, SKEW_S))
        _expect_once(outcome, crew.lines(ENDED))
    outcome.figures = {"lease s": LEASE_S, "worst takeover in leases": round(outcome.worst_s / LEASE_S, 2)}
    return outcome


def _expect_once(outcome: Outcome, ended: list[Line]) -> None:
    for slot, number in Counter(line.slot for line in ended).items():
        outcome.expect(number == 1, f"slot {slot} was run to its end {number} times")


async def _stop(trials: int, folder: Path, seed: int) -> Outcome:
    """The holder is stopped for longer than its lease, as by a machine that sleeps, and then continues."""
    outcome = Outcome()
    async with open_crew(folder, random.Random(seed)) as crew:
        for trial in range(trials):
            crew.hold.touch()
            first = await crew.next_began(10)
            if first is None:
                outcome.expect(False, f"trial {trial}: no run began")
                break
            os.kill(first.pid, signal.SIGSTOP)
            second = await crew.next_began(4 * LEASE_S)
            outcome.expect(second is not None, f"trial {trial}: nobody took over")
            os.kill(first.pid, signal.SIGCONT)
            await asyncio.sleep(LEASE_S)  # time to notice
            crew.hold.unlink()
            await crew.next_ended(10)
            late = [line for line in crew.lines(ENDED) if line.pid == first.pid and line.slot == first.slot]
            outcome.expect(not late, f"trial {trial}: the stopped worker ended a slot that was taken over")
            outcome.trials += 1
        _expect_once(outcome, crew.lines(ENDED))
    return outcome


def _count_run(trials: int, folder: Path, seed: int) -> Outcome:
    return asyncio.run(_count(trials, folder, seed))


def _kill_run(trials: int, folder: Path, seed: int) -> Outcome:
    return asyncio.run(_kill(trials, folder, seed))


def _stop_run(trials: int, folder: Path, seed: int) -> Outcome:
    return asyncio.run(_stop(trials, folder, seed))


FAULTS = (
    Fault(
        "G14 one run per slot with 4 processes",
        "each slot is run once, by one of four processes whose clocks differ",
        _count_run,
        short=10,
        long=100,
    ),
    Fault(
        "F29 the worker that runs the clean-up is killed",
        "another one begins within two leases, and no slot is run to its end twice",
        _kill_run,
        short=1,
        long=20,
    ),
    Fault(
        "F30 the worker that runs the clean-up is stopped for longer than its lease",
        "another one takes over, and the stopped one does not go on",
        _stop_run,
        short=1,
        long=10,
    ),
)
