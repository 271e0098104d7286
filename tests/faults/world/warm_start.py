"""Servers that start instantly, for tests with a loop; `tests.support.warm.process` forks them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.support.warm.client import request_for, warm_process

_SHARED = "WENMAI_TEST_WARM"


class WarmProcess:
    """A server forked by `tests.support.warm.process`."""

    def __init__(self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self._writer = writer
        self._ending = asyncio.create_task(reader.readline())

    async def wait(self) -> int:
        ended = await asyncio.shield(self._ending)
        self._writer.close()
        return int(ended or -signal.SIGKILL)


class Warm:
    """The source of warm servers."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def start(self, environment: dict[str, str], out: Path, err: Path) -> WarmProcess:
        reader, writer = await asyncio.open_unix_connection(str(self._path))
        writer.write(request_for("scripts.serve", (), environment, str(out), str(err)))
        return WarmProcess(int(await reader.readline()), reader, writer)


@asynccontextmanager
async def open_warm(*, own: bool = False) -> AsyncIterator[Warm]:
    """The one kept by `shared_warm`, or one for this block; `own` creates one where this process runs."""
    if not own and _SHARED in os.environ:
        yield Warm(Path(os.environ[_SHARED]))
        return
    with warm_process() as path:
        yield Warm(path)


@contextmanager
def shared_warm() -> Iterator[None]:
    """Everything in this block takes its servers from one process: the imports are paid once."""
    with warm_process() as path:
        os.environ[_SHARED] = str(path)
        try:
            yield
        finally:
            del os.environ[_SHARED]
