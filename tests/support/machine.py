"""How much slower this machine is than those on which the goals of time were set."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

_WEIGHTS = np.ones(8_000_000, dtype=np.float32)


def _count() -> None:
    """What stays in the processor's own memory."""
    sum(number % 7 for number in range(300_000))


def _fill() -> None:
    """What goes through all of its memory, as a start and a search do."""
    [{"number": number, "text": str(number)} for number in range(50_000)]


def _read() -> None:
    """What a model does with its weights."""
    for _ in range(4):
        _WEIGHTS.sum()


# Each kind of work, with its seconds on such a machine: two cores of a server's processor, CPython 3.11. On a
# virtual machine, memory that lay idle may take ten times as long, while all the rest is as fast as ever.
WORK_S: dict[Callable[[], None], float] = {_count: 0.015, _fill: 0.025, _read: 0.02}


@contextmanager
def at_most(limit_s: float) -> Iterator[None]:
    """Fails if what is within takes longer, of the processor's time on a machine that is fast enough."""
    began = time.process_time()
    yield
    taken_s = time.process_time() - began
    assert taken_s < limit_s or taken_s < limit_s * times_as_slow(), f"it took {taken_s:.2f} s"


def times_as_slow() -> float:
    """At least 1: a faster machine is given no less time. Measured when asked, since one that is shared is
    not equally fast at all times."""
    return max(1.0, *(_took_s(work) / usual_s for work, usual_s in WORK_S.items()))


def _took_s(work: Callable[[], None]) -> float:
    """Of the processor's time: a machine that is merely busy counts as fast."""
    began = time.thread_time()
    work()
    return time.thread_time() - began
