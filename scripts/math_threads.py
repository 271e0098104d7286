"""How many threads the numeric libraries take; read when they load, so it is said before anything else."""

from __future__ import annotations

import os

_LIBRARIES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def one_math_thread() -> None:
    """Two spin against each other on a small machine. What the environment says goes before."""
    for name in _LIBRARIES:
        os.environ.setdefault(name, "1")
