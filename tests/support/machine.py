"""How much slower this machine is than those on which the goals of time were set."""

from __future__ import annotations

import time

# of the work below on such a machine: two cores of a server's processor, CPython 3.11
WORK_S = 0.04


def times_as_slow() -> float:
    """At least 1: a faster machine is given no less time. Measured when asked, since one that is shared is
    not equally fast at all times."""
    return max(1.0, sorted(_work_s() for _ in range(5))[2] / WORK_S)


def _work_s() -> float:
    """Of the processor's time: a machine that is merely busy counts as fast."""
    began, total = time.process_time(), 0
    for number in range(1_000_000):
        total += number
    return time.process_time() - began
