"""The real server as a process of its own, as an operator starts it."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[3]
START_LIMIT_S = 60
QUIET = {"MEMORY_MIN_MESSAGES": "0"}  # no call of a model but the turns' own
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass(frozen=True)
class RunningServer:
    url: str
    process: subprocess.Popen[str]
    ready_after_s: float

    @property
    def pid(self) -> int:
        return self.process.pid


def start_server(data_dir: Path, **environment: str) -> RunningServer:
    """Start it on a free port and wait until it says it is ready. The caller ends the process."""
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "scripts.serve"],
        cwd=ROOT,
        env=clean_environment({"DATA_DIR": str(data_dir), "PORT": "0", **environment}),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(process, lines), daemon=True).start()
    while True:
        line = lines.get(timeout=START_LIMIT_S)
        assert line, f"the server ended with {process.wait()}"
        if match := _ADDRESS.search(line):
            httpx.get(f"{match[0]}/health/ready").raise_for_status()
            return RunningServer(match[0], process, time.monotonic() - begun)


@contextmanager
def running_server(data_dir: Path, **environment: str) -> Iterator[RunningServer]:
    server = start_server(data_dir, **environment)
    try:
        yield server
    finally:
        stop_server(server)


def stop_server(server: RunningServer) -> None:
    server.process.terminate()
    try:
        server.process.wait(timeout=40)
    except subprocess.TimeoutExpired:
        server.process.kill()
        server.process.wait()
    assert server.process.stdout is not None
    server.process.stdout.close()


def clean_environment(values: Mapping[str, str]) -> dict[str, str]:
    """What a process needs, and nothing that would configure it from outside the test."""
    remaining = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return {**remaining, "PYTHONPATH": str(ROOT), "WENMAI_CONFIG": "", **QUIET, **values}


def _read(process: subprocess.Popen[str], lines: queue.SimpleQueue[str]) -> None:
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.put(line)
    except ValueError:
        return  # closed while reading: the server was stopped
    lines.put("")
