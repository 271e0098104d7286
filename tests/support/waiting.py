"""Waiting for events elsewhere: the only polling loop of the tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

LIMIT_S = 30.0  # generous: a busy machine is not a failure
_LOOK_S = 0.01


async def until(condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Return once `condition()` is true. Raises AssertionError after `limit_s` seconds."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"it did not happen within {limit_s:.0f} s"
        await asyncio.sleep(_LOOK_S)


def wait_until(condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """The same for threads and code without an event loop."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"it did not happen within {limit_s:.0f} s"
        time.sleep(_LOOK_S)
