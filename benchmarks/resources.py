"""Processor time and resident memory of a server with all its child processes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import psutil

SAMPLE_S = 0.5
MEMORY_SAMPLE_S = 1.0  # it takes the kernel milliseconds
QUIET_CPU_S = 0.02  # in one sample: less than 4 % of a core is not work
SETTLE_LIMIT_S = 180


class ProcessTree:
    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._known: Sequence[psutil.Process] = ()
        self.peak_mb = 0.0

    def cpu_s(self) -> float:
        """User and system time so far, of children that have ended too."""
        self._known = [self._root, *self._root.children(recursive=True)]
        return sum(_cpu_s(process) for process in self._known)

    async def watch_memory(self) -> None:
        """Keep `peak_mb` until cancelled. What several processes share counts for each in part (PSS)."""
        self._known = [self._root, *self._root.children(recursive=True)]  # once: it walks all of /proc
        while True:
            self.peak_mb = max(self.peak_mb, _resident_mb(self._known))
            await asyncio.sleep(MEMORY_SAMPLE_S)

    def resident_mb(self) -> float:
        """Of the processes that there are now (PSS)."""
        return _resident_mb([self._root, *self._root.children(recursive=True)])

    async def settled_cpu_s(self) -> float:
        """`cpu_s` once the work that answers leave behind is done, such as embedding them for recall.

        Waits three minutes at most.
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
