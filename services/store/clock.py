"""The clock seam: time is an argument, so that tests can move it. Also tracks whether answers are being
written: background work waits for a quiet moment."""

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
    """Microseconds since the machine booted, including sleep; nobody can set this clock.

    On systems without such a clock, sleep is not counted.
    """
    if sys.platform == "linux":
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000
    if sys.platform == "darwin":  # its CLOCK_MONOTONIC keeps counting during sleep, unlike time.monotonic
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000
    return time.monotonic_ns() // 1_000


@dataclass(frozen=True, slots=True)
class ClockMark:
    """How far the wall clock is ahead of the boot clock, within one boot of the machine (`boot`, "" where the
    system does not identify it). It outlives the process that made it; only setting the clock changes it."""

    boot: str
    ahead_us: int

    @classmethod
    def now(cls, wall: Clock = utc_now_us) -> ClockMark:
        return cls(_boot_name(), wall() - boot_us())

    @classmethod
    def read(cls, text: str) -> ClockMark | None:
        """Parse a mark; None if it is not one, or has a format this version does not know."""
        boot, _, ahead_us = text.partition(":")
        return cls(boot, int(ahead_us)) if boot and ahead_us.lstrip("-").isdigit() else None

    def __str__(self) -> str:
        return f"{self.boot}:{self.ahead_us}"

    def moved_us(self, before: ClockMark | None) -> int:
        """How far the wall clock was put forward since `before`; 0 if the machine was restarted since."""
        same = before is not None and self.boot and before.boot == self.boot
        return self.ahead_us - before.ahead_us if before is not None and same else 0


def _boot_name() -> str:
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return ""
    return hashlib.sha256(name).hexdigest()[:12]


class ClockWatch:
    """Detects that the wall clock was set, by comparing it with the machine's boot clock.

    A clock that was wrong before the watch began goes unnoticed.
    """

    def __init__(self, wall: Clock = utc_now_us, boot: Clock = boot_us) -> None:
        self._wall = wall
        self._boot = boot
        self._trusted_us = self._ahead_us()

    def _ahead_us(self) -> int:
        return self._wall() - self._boot()

    def moved_us(self) -> int:
        """How far the wall clock was moved since it was last trusted; negative if it was set back.

        A clock that was set back is trusted from then on: what depends on it happens late, never too early.
        """
        ahead_us = self._ahead_us()
        moved_us = ahead_us - self._trusted_us
        if moved_us < 0:
            self._trusted_us = ahead_us
        return moved_us

    def trust(self) -> None:
        """Accept the wall clock's current time as correct."""
        self._trusted_us = self._ahead_us()


PAUSE_S = 0.1  # an immediate follow-up must not collide with the work that waited for the turn to end


class Activity:
    """Counts what is running; `quiet` waits until nothing has been running for PAUSE_S."""

    def __init__(self) -> None:
        self._running = 0
        self._pause: asyncio.TimerHandle | None = None
        self._quiet = asyncio.Event()
        self._quiet.set()

    @contextmanager
    def busy(self) -> Iterator[None]:
        self._running += 1
        self._quiet.clear()
        if self._pause is not None:
            self._pause.cancel()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._pause = asyncio.get_running_loop().call_later(PAUSE_S, self._quiet.set)

    async def quiet(self, limit_s: float) -> None:
        """Return when nothing is running, after `limit_s` seconds at the latest."""
        try:
            async with asyncio.timeout(limit_s):
                await self._quiet.wait()
        except TimeoutError:
            return
