"""Real servers on one data folder: started, killed and started again."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

import aiohttp
import psutil

from tests.faults.world.warm_start import Warm
from tests.support.environment import ROOT, clean_environment
from tests.support.servers.app import HASHING
from tests.support.servers.server import START_LIMIT_S

_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
_STORE = "services.adapters.edge.process"
_LOOK_EVERY_S = 0.01
_ORPHANS_END_S = 20
QUICK = {"EMBEDDING": HASHING, "LOAD_SAMPLE": "false", "RERANK_SCORE_THRESHOLD": "0", "PORT": "0"}
"""No model is loaded, and whatever is found is cited."""


class StartFailedError(Exception):
    """The server ended before it was ready; the message has its exit code and its output."""


class Process(Protocol):
    @property
    def pid(self) -> int: ...

    async def wait(self) -> int: ...


class World:
    """At most one server at a time on `folder`/data; its output is kept in `folder`/logs.

    Without `warm`, or with `cold=True`, the server is started as an operator does.
    """

    def __init__(self, folder: Path, warm: Warm | None = None, **environment: str) -> None:
        self.data_dir = folder / "data"
        self.starts = 0
        self.url = ""
        self.ready_after_s = 0.0
        self._logs = folder / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        self._warm = warm
        self._environment = {**QUICK, "DATA_DIR": str(self.data_dir), **environment}
        self._orphans: list[psutil.Process] = []
        self._process: Process | None = None  # and no `url` when there is none

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self, *, cold: bool = False, **environment: str) -> None:
        """Return when it is ready for requests. Raises StartFailedError."""
        assert self._process is None
        self.starts += 1
        begun = time.monotonic()
        out, err = self._log("out"), self._log("err")
        values = clean_environment({**self._environment, **environment})
        if self._warm and not cold:
            self._process = await self._warm.start(values, out, err)
        else:
            self._process = await _start_cold(values, out, err)
        self.url = await self._address(out, begun + START_LIMIT_S)
        self.ready_after_s = time.monotonic() - begun

    async def _address(self, out: Path, deadline: float) -> str:
        assert self._process is not None
        ended = asyncio.ensure_future(self._process.wait())
        while time.monotonic() < deadline and not ended.done():
            address = _address_in(out)
            if address and await _is_ready(address):
                ended.cancel()
                return address
            await asyncio.wait([ended], timeout=_LOOK_EVERY_S)
        if not ended.done():
            self.signal(signal.SIGKILL)
        code = await ended
        self._process = None
        raise StartFailedError(f"exit code {code}: {self.stderr()[-2_000:]}")

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def kill(self, *, with_store: bool) -> None:
        """SIGKILL; the store process is left to notice on its own, or is killed just before."""
        self._orphans = self.store_processes()
        if with_store:
            self.kill_store()
        self.signal(signal.SIGKILL)
        await self.wait()

    def kill_store(self) -> None:
        for process in self.store_processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def store_processes(self) -> list[psutil.Process]:
        if self._process is None:
            return []
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.pid).children()
            return [child for child in children if _is_store(child)]
        return []

    async def wait(self, limit_s: float = 60) -> int:
        """Return its exit code. Raises TimeoutError."""
        assert self._process is not None
        code = await asyncio.wait_for(self._process.wait(), limit_s)
        self._process, self.url = None, ""
        return code

    async def close(self) -> None:
        """Return when no process is left that writes to the data folder."""
        if self._process is not None:
            await self.kill(with_store=True)
        await asyncio.to_thread(psutil.wait_procs, self._orphans, timeout=_ORPHANS_END_S)

    def stderr(self) -> str:
        """What the current server, or the last one, has written there."""
        path = self._log("err")
        return path.read_text(errors="replace") if path.exists() else ""

    def _log(self, kind: str) -> Path:
        return self._logs / f"{self.starts:05}.{kind}"


async def _start_cold(environment: dict[str, str], out: Path, err: Path) -> asyncio.subprocess.Process:
    with out.open("wb") as raised, err.open("wb") as complained:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "scripts.serve",
            cwd=ROOT, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=raised, stderr=complained,
        )  # fmt: skip


def _address_in(out: Path) -> str:
    match = _ADDRESS.search(out.read_text()) if out.exists() else None
    return match[0] if match else ""


async def _is_ready(url: str) -> bool:
    with suppress(aiohttp.ClientError):
        async with aiohttp.ClientSession() as session, session.get(f"{url}/health/ready") as response:
            return response.status == 200
    return False


def _is_store(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return _STORE in process.cmdline()
    return False


@asynccontextmanager
async def open_world(folder: Path, warm: Warm | None = None, **environment: str) -> AsyncIterator[World]:
    """A world whose server is started by the caller and killed at the end."""
    world = World(folder, warm, **environment)
    try:
        yield world
    finally:
        await world.close()
