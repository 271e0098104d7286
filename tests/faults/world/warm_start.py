"""Servers that start in a moment come from here; `tests.faults.world.warm` is the process that forks them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.support.servers.server import ROOT, clean_environment

_SHARED = "WENMAI_TEST_WARM"


class WarmProcess:
    """A server forked by `tests.faults.world.warm`."""

    def __init__(self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self._writer = writer
        self._ending = asyncio.create_task(reader.readline())

    async def wait(self) -> int:
        ended = await asyncio.shield(self._ending)
        self._writer.close()
        return int(ended or -signal.SIGKILL)


class Warm:
    """Where warm servers come from."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def start(self, environment: dict[str, str], out: Path, err: Path) -> WarmProcess:
        reader, writer = await asyncio.open_unix_connection(str(self._path))
        expected = {"environment": environment, "out": str(out), "err": str(err)}
        writer.write(json.dumps(expected).encode() + b"\n")
        return WarmProcess(int(await reader.readline()), reader, writer)


@asynccontextmanager
async def open_warm(*, own: bool = False) -> AsyncIterator[Warm]:
    """The one that `shared_warm` keeps, or one for this block; `own` makes one where this process runs."""
    if not own and _SHARED in os.environ:
        yield Warm(Path(os.environ[_SHARED]))
        return
    with _warm_process() as path:
        yield Warm(path)


@contextmanager
def shared_warm() -> Iterator[None]:
    """Everything in this block takes its servers from one process: the imports are paid once."""
    with _warm_process() as path:
        os.environ[_SHARED] = str(path)
        try:
            yield
        finally:
            del os.environ[_SHARED]


@contextmanager
def _warm_process() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wenmai-warm-") as folder:
        path = Path(folder) / "socket"
        with subprocess.Popen(
            [sys.executable, "-m", "tests.faults.world.warm", str(path)], cwd=ROOT,
            env=clean_environment({"OMP_NUM_THREADS": "1"}),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "warm\n"
            yield path
            process.stdin.close()
