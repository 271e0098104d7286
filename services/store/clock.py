"""The clock seam: time is an argument, so that tests can move it; and whether answers are being written just
now: background work waits for a quiet moment."""

from __future__ import annotations

import asyncio
import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

Clock = Callable[[], int]
"""Returns UTC microseconds since 1970."""


def utc_now_us() -> int:
    return time.time_ns() // 1_000


def boot_us() -> int:
    """Microseconds since the machine started, those it slept included; nobody can set this clock.

    Where the system keeps no such clock, sleep is not counted.
    """
    if sys.platform == "linux":
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000
    if sys.platform == "darwin":  # its CLOCK_MONOTONIC goes on in sleep, other than time.monotonic
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000
    return time.monotonic_ns() // 1_000


@dataclass(frozen=True, slots=True)
class ClockMark:
    """How far the wall clock was ahead of the boot clock, in one start of the machine (`boot`, "" where the
    system does not name it). It outlives the process that made it, and only a moved clock changes it."""

    boot: str
    ahead_us: int

    @classmethod
    def now(cls, wall: Clock = utc_now_us) -> ClockMark:
        return cls(_boot_name(), wall() - boot_us())

    @classmethod
    def read(cls, text: str) -> ClockMark | None:
        """None: it is none, or is one of another time's make."""
        boot, _, ahead_us = text.partition(":")
        return cls(boot, int(ahead_us)) if boot and ahead_us.lstrip("-").isdigit() else None

    def __str__(self) -> str:
        return f"{self.boot}:{self.ahead_us}"

    def moved_us(self, before: ClockMark | None) -> int:
        """How far the wall clock was put forward since `before`; 0 where the machine was started since."""
        same = before is not None and self.boot and before.boot == self.boot
        return self.ahead_us - before.ahead_us if before is not None and same else 0


def _boot_name() -> str:
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return ""
    return hashlib.sha256(name).hexdigest()[:12]


class ClockWatch:
    """Whether somebody moved the wall clock: it is held against the machine's boot clock.

    Not noticed is a clock that was wrong before the watch began.
    """

    def __init__(self, wall: Clock = utc_now_us, boot: Clock = boot_us) -> None:
        self._wall = wall
        self._boot = boot
        self._trusted_us = self._ahead_us()

    def _ahead_us(self) -> int:
        return self._wall() - self._boot()

    def moved_us(self) -> int:
        """How far the wall clock was moved since it was last trusted; below 0 it was set back.

        A clock that was set back is trusted from then on: what goes by its time goes later, never too early.
        """
        ahead_us = self._ahead_us()
        moved_us = ahead_us - self._trusted_us
        if moved_us < 0:
            self._trusted_us = ahead_us
        return moved_us

    def trust(self) -> None:
        """Take the wall clock as it is now for right."""
        self._trusted_us = self._ahead_us()


PAUSE_S = 0.1  # a client that asks on at once is not to meet the work that waited for it to end


class Activity:
    """Counts what is going on; `quiet` waits until nothing has been for PAUSE_S."""

    def __init__(self) -> None:
        self._going_on = 0
        self._pause: asyncio.TimerHandle | None = None
        self._quiet = asyncio.Event()
        self._quiet.set()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        self._going_on += 1
        self._quiet.clear()
        if self._pause is not None:
            self._pause.cancel()
        try:
            yield
        finally:
            self._going_on -= 1
            if not self._going_on:
                self._pause = asyncio.get_running_loop().call_later(PAUSE_S, self._quiet.set)

    async def quiet(self, limit_s: float) -> None:
        """Return when nothing is going on, after `limit_s` seconds at the latest."""
        try:
            async with asyncio.timeout(limit_s):
                await self._quiet.wait()
        except TimeoutError:
            return
