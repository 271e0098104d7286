"""Workers that run only the schedule: `python -m tests.support.servers.schedule_worker OPTIONS`.

Each line of stdin is a number of seconds and starts a worker whose clock is that far ahead; its pid is
printed, and all workers end with stdin. Workers are forked, so that four of them load the libraries once. A
worker's job writes a line to a file when it begins a slot and when it ends it, and lasts as long as a hold
file exists.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from config.settings import StoreSettings
from core.operations.expiry import ExpiryReport
from services.adapters.qdrant import open_qdrant_server
from services.adapters.schedule import run_on
from services.operations.schedule.lease import LeaseStore, Pace
from services.operations.schedule.runner import SlotRunner
from services.store.clock import utc_now_us
from tests.support.stores.schedule import REPORT, Every

READY, BEGAN, ENDED = "ready", "began", "ended"
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the file; `at_s` is on the machine's monotonic clock."""

    what: str
    pid: int
    slot: int
    at_s: float

    def write(self, file: Path) -> None:
        with file.open("a") as lines:  # a single write, so that lines of several processes do not mix
            lines.write(f"{self.what} {self.pid} {self.slot} {self.at_s}\n")


def read_lines(file: Path) -> list[Line]:
    if not file.exists():
        return []
    fields = [line.split() for line in file.read_text().splitlines()]
    return [Line(what, int(pid), int(slot), float(at_s)) for what, pid, slot, at_s in fields]


@dataclass(frozen=True, slots=True)
class Options:
    url: str
    folder: Path
    period_s: float
    lease_s: float


@asynccontextmanager
async def _scheduled(options: Options, ahead_s: float) -> AsyncIterator[None]:
    def note(what: str, slot: int = 0) -> None:
        Line(what, os.getpid(), slot, time.monotonic()).write(options.folder / "lines")

    async def job(slot: int) -> ExpiryReport:
        note(BEGAN, slot)
        while (options.folder / "hold").exists():  # noqa: ASYNC110 — a file sets no event
            await asyncio.sleep(_POLL_S)
        note(ENDED, slot)
        return REPORT

    def skewed_clock() -> int:
        return utc_now_us() + round(ahead_s * 1_000_000)

    slots = Every(options.period_s)
    async with open_qdrant_server(StoreSettings(qdrant_url=options.url, qdrant_timeout_s=5)) as store:
        pace = Pace(options.lease_s, first_look_s=0.05, look_s=options.lease_s / 2)
        runner = SlotRunner(job, slots, LeaseStore(store, "operations"), pace, clock=skewed_clock)
        async with run_on(runner, slots):
            note(READY)
            yield


async def _work(options: Options, ahead_s: float, until_closed: int) -> None:
    async with _scheduled(options, ahead_s):
        await asyncio.to_thread(os.read, until_closed, 1)


def _fork(options: Options, ahead_s: float, pipe: tuple[int, int]) -> int:
    """Fork a worker, which ends when the other end of the pipe is closed."""
    pid = os.fork()
    if pid:
        return pid
    os.close(pipe[1])
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the log
    logging.disable(logging.CRITICAL)
    asyncio.run(_work(options, ahead_s, pipe[0]))
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--period-s", type=float, required=True)
    parser.add_argument("--lease-s", type=float, required=True)
    options = Options(**vars(parser.parse_args()))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # killed workers leave no zombies
    pipe = os.pipe()
    for line in sys.stdin:
        print(_fork(options, float(line), pipe), flush=True)
    os.close(pipe[1])
    with suppress(ChildProcessError):
        os.wait()


if __name__ == "__main__":
    main()
