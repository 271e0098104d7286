"""The clock seam: time is an argument, so that tests can move it."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns UTC microseconds since 1970."""


def utc_now_us() -> int:
    return time.time_ns() // 1_000
