"""Runs the stub, the floor and the raw relay as separate processes; measures a server and its children."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import psutil

from tests.support.environment import ROOT, clean_environment

SAMPLE_S = 0.5
MEMORY_SAMPLE_S = 1.0  # a sample takes the kernel milliseconds
QUIET_CPU_S = 0.02  # per sample: less than 4 % of a core counts as idle
SETTLE_LIMIT_S = 180


@dataclass(frozen=True, slots=True)
class Started:
    url: str
    pid: int
    ready_after_s: float


@contextmanager
def running_module(module: str, *arguments: str) -> Iterator[Started]:
    """Run `python -m module`, whose first printed line is its address."""
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=clean_environment({}),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, f"{module} ended with {process.wait()}"
        yield Started(url, process.pid, time.monotonic() - begun)
    finally:
        process.terminate()
        process.communicate()


def running_stub() -> AbstractContextManager[Started]:
    return running_module("benchmarks.stub_llm")


def running_floor(stub_url: str) -> AbstractContextManager[Started]:
    return running_module("benchmarks.floor", stub_url)


def running_relay(stub_url: str) -> AbstractContextManager[Started]:
    return running_module("benchmarks.raw_relay", stub_url)


class ProcessTree:
    """CPU time and resident memory of a server with all its child processes."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._known: Sequence[psutil.Process] = ()
        self.peak_mb = 0.0

    def cpu_s(self) -> float:
        """User and system time so far, including that of children that have ended."""
        self._known = [self._root, *self._root.children(recursive=True)]
        return sum(_cpu_s(process) for process in self._known)

    async def watch_memory(self) -> None:
        """Update `peak_mb` until cancelled. Shared memory is divided among the processes that share it
        (PSS)."""
        self._known = [self._root, *self._root.children(recursive=True)]  # only once: this walks all of /proc
        while True:
            self.peak_mb = max(self.peak_mb, _resident_mb(self._known))
            await asyncio.sleep(MEMORY_SAMPLE_S)

    def resident_mb(self) -> float:
        """Resident memory of the current processes (PSS)."""
        return _resident_mb([self._root, *self._root.children(recursive=True)])

    async def settled_cpu_s(self) -> float:
        """Return `cpu_s` once the background work after answers, such as embedding them for recall, is done.

        Waits at most three minutes.
        """
        now = self.cpu_s()
        for _ in range(int(SETTLE_LIMIT_S / SAMPLE_S)):
            before = now
            await asyncio.sleep(SAMPLE_S)
            now = self.cpu_s()
            if now - before <= QUIET_CPU_S:
                break
        return now


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system + times.children_user + times.children_system


def _resident_mb(processes: Sequence[psutil.Process]) -> float:
    return sum(map(_resident, processes)) / 2**20


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.NoSuchProcess:
        return 0
