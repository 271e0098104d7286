"""The real server as a separate process, as an operator starts it."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.environment import ROOT, clean_environment
from tests.support.warm.client import Forked, can_be_forked, fork

Process = subprocess.Popen[str] | Forked
Start = Callable[[Mapping[str, str]], Process]
START_LIMIT_S = 60
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass(frozen=True)
class RunningServer:
    url: str
    process: Process
    ready_after_s: float
    data_dir: Path

    @property
    def pid(self) -> int:
        return self.process.pid


def cold(environment: Mapping[str, str]) -> Process:
    """Start it in a fresh interpreter, to measure a start or memory."""
    return subprocess.Popen(
        [sys.executable, "-m", "scripts.serve"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def warm(environment: Mapping[str, str]) -> Process:
    if not can_be_forked(environment):
        return cold(environment)
    return fork("scripts.serve", (), environment, err=os.devnull)


def start_server(data_dir: Path, start: Start = warm, /, **environment: str) -> RunningServer:
    """Start it on a free port and wait until it is ready. The caller must stop the process."""
    begun = time.monotonic()
    process = start(clean_environment({"DATA_DIR": str(data_dir), "PORT": "0", **environment}))
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(process, lines), daemon=True).start()
    while True:
        line = lines.get(timeout=START_LIMIT_S)
        assert line, f"the server ended with {process.wait()}"
        if match := _ADDRESS.search(line):
            httpx.get(f"{match[0]}/health/ready").raise_for_status()
            return RunningServer(match[0], process, time.monotonic() - begun, data_dir)


@contextmanager
def running_server(data_dir: Path, start: Start = warm, /, **environment: str) -> Iterator[RunningServer]:
    server = start_server(data_dir, start, **environment)
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


def _read(process: Process, lines: queue.SimpleQueue[str]) -> None:
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.put(line)
    except ValueError:
        return  # closed while reading: the server was stopped
    lines.put("")
