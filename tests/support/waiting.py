"""Waiting for what happens elsewhere: the one loop of the tests that looks again and again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

LIMIT_S = 30.0  # generous: a busy machine is no failure
_LOOK_S = 0.01


async def until(condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Returns once `condition()` is true; AssertionError after `limit_s` seconds."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"it did not happen within {limit_s:.0f} s"
        await asyncio.sleep(_LOOK_S)


def wait_until(condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """The same in a thread of its own, or where there is no loop."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"it did not happen within {limit_s:.0f} s"
        time.sleep(_LOOK_S)
