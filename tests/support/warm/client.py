"""Programs that start instantly, for tests without an event loop; `tests.support.warm.process` forks them."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

from tests.support.environment import ROOT, clean_environment

_PROGRAMS = (
    "anyio._backends._asyncio",
    "httpcore",
    "rjieba",
    "routes.server",
    "scripts.serve",
    "scripts.wenmai",
    "services.adapters.edge.client",
    "services.adapters.llms.openai",
    "services.adapters.llms.token_counters",
    "tests.support.models.hashing_embedding",
)
# An interpreter reads these at start-up, so a program with other values cannot be forked.
_AT_START = ("PYTHON", "LC_", "LANG", "OMP_", "OPENBLAS_")


class Forked:
    """The part of `subprocess.Popen[str]` that tests use."""

    def __init__(self, request: bytes, modules: Sequence[str] = _PROGRAMS, stdin: Sequence[int] = ()) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(str(_shared(tuple(modules))))
        socket.send_fds(self._connection, [request], [*stdin])
        self._lines = self._connection.makefile("r")
        self.pid = int(self._lines.readline())
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended and its exit code is about to arrive
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _end(self) -> None:
        self.returncode = int(self._lines.readline())
        self._lines.close()
        self._connection.close()


def can_be_forked(environment: Mapping[str, str]) -> bool:
    """Whether the program can be forked: only on Linux, and only without changes to start-up variables."""
    begun = clean_environment({})
    is_late = any(begun.get(name) != environment[name] for name in environment if name.startswith(_AT_START))
    return hasattr(os, "pidfd_open") and not is_late


def request_for(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], out: str, err: str
) -> bytes:
    """The request for `python -m module arguments`; `out` and `err` are paths, opened for appending."""
    expected = {"module": module, "arguments": [*arguments], "environment": {**environment}}
    return json.dumps({**expected, "out": out, "err": err}).encode() + b"\n"


def run(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], *, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Like `subprocess.run` with `capture_output`. Raises subprocess.TimeoutExpired."""
    with tempfile.TemporaryDirectory(prefix="wenmai-out-") as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        forked = Forked(request_for(module, arguments, environment, str(out), str(err)))
        try:
            code = forked.wait(timeout)
        except subprocess.TimeoutExpired:
            forked.kill()
            forked.wait()
            raise
        texts = (file.read_text("utf-8") for file in (out, err))
        return subprocess.CompletedProcess([module, *arguments], code, *texts)


def fork(module: str, arguments: Sequence[str], environment: Mapping[str, str], *, err: str) -> Forked:
    """Fork the program; its standard output is read from `stdout`."""
    with tempfile.TemporaryDirectory(prefix="wenmai-out-") as folder:
        os.mkfifo(out := f"{folder}/out")
        reader = os.open(out, os.O_RDONLY | os.O_NONBLOCK)  # otherwise it would wait for the writer
        os.set_blocking(reader, True)
        forked = Forked(request_for(module, arguments, environment, out, err))
        forked.stdout = os.fdopen(reader, encoding="utf-8")
        return forked


@cache
def _shared(modules: tuple[str, ...]) -> Path:
    """The socket of the warm process, one per worker of a run."""
    stack = ExitStack()
    path = stack.enter_context(warm_process(modules))
    atexit.register(stack.close)
    return path


@contextmanager
def warm_process(modules: Sequence[str] = _PROGRAMS) -> Iterator[Path]:
    """Run a warm process; yields the path of its socket."""
    with tempfile.TemporaryDirectory(prefix="wenmai-warm-") as folder:
        path = Path(folder) / "socket"
        with subprocess.Popen(
            [sys.executable, "-m", "tests.support.warm.process", str(path), *modules], cwd=ROOT,
            env=clean_environment({"OMP_NUM_THREADS": "1"}),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "warm\n"
            yield path
            process.stdin.close()
