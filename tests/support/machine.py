"""How much slower this machine is than those on which the time limits were set."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

_WEIGHTS = np.ones(8_000_000, dtype=np.float32)


def _count() -> None:
    """Work that fits into the CPU caches."""
    sum(number % 7 for number in range(300_000))


def _fill() -> None:
    """Work that allocates memory, as a start and a search do."""
    [{"number": number, "text": str(number)} for number in range(50_000)]


def _read() -> None:
    """Reading much memory, as a model does with its weights."""
    for _ in range(4):
        _WEIGHTS.sum()


# Each kind of work, with its seconds on the reference machine: two server cores, CPython 3.11. On a virtual
# machine, idle memory may be ten times slower while everything else is as fast as usual.
WORK_S: dict[Callable[[], None], float] = {_count: 0.015, _fill: 0.025, _read: 0.02}


@contextmanager
def at_most(limit_s: float) -> Iterator[None]:
    """Fail if the block takes longer, in CPU time scaled to the reference machine."""
    began = time.process_time()
    yield
    taken_s = time.process_time() - began
    assert taken_s < limit_s or taken_s < limit_s * times_as_slow(), f"it took {taken_s:.2f} s"


def times_as_slow() -> float:
    """Return how many times slower this machine is, at least 1. Measured on each call, because the speed of a
    shared machine varies."""
    return max(1.0, *(_took_s(work) / usual_s for work, usual_s in WORK_S.items()))


def _took_s(work: Callable[[], None]) -> float:
    """Return CPU seconds, so that a machine that is merely busy counts as fast."""
    began = time.thread_time()
    work()
    return time.thread_time() - began
