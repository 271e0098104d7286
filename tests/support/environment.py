"""The environment of processes that tests start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
QUIET = {"MEMORY_MIN_MESSAGES": "0"}  # no model calls except the turns' own


def clean_environment(values: Mapping[str, str]) -> dict[str, str]:
    """Return what a process needs, without anything that would configure it from outside the test."""
    remaining = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return {**remaining, "PYTHONPATH": str(ROOT), "WENMAI_CONFIG": "", **QUIET, **values}
