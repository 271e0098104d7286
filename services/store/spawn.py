"""The embedded store's process: started when the store is opened, or before the rest of the server is
imported, which takes seconds. Imports stay few."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen

UNFLUSHED_FLAG = "--unflushed"
"""Changes are acknowledged before they are on the disk: a killed process loses none, a cut of power may."""

_ROOT = Path(__file__).parents[2]
_PROCESS = "services.adapters.edge.process"


@dataclass(frozen=True, slots=True)
class Spawned:
    """A store process that was not greeted yet, and the server's end of its connection."""

    process: Popen[bytes]
    connection: socket.socket


_early: dict[tuple[Path, tuple[str, ...]], Spawned] = {}


def flags_of(*, durable: bool) -> tuple[str, ...]:
    """Of a store that is opened to be used."""
    return () if durable else (UNFLUSHED_FLAG,)


def spawn_early(folder: Path, flags: Sequence[str]) -> None:
    """Whoever opens the folder in this process takes what was started here. If nobody does, it ends with this
    process, as it reads the end of its connection then. Raises OSError."""
    _early[folder, tuple(flags)] = _spawn(folder, flags)


def spawn(folder: Path, flags: Sequence[str]) -> Spawned:
    """Raises OSError when the process cannot be run."""
    return _early.pop((folder, tuple(flags)), None) or _spawn(folder, flags)


def _spawn(folder: Path, flags: Sequence[str]) -> Spawned:
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process = Popen(  # noqa: S603 — this program's own module
                [sys.executable, "-P", "-m", _PROCESS, str(folder), str(os.getpid()), *flags],
                stdin=theirs.fileno(), stdout=DEVNULL, env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip
    except BaseException:
        ours.close()
        raise
    return Spawned(process, ours)
