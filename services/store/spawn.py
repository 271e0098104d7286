"""Starts the embedded store's process, when the store is opened or before the rest of the server is imported,
which takes seconds. Keep the imports few."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen

UNFLUSHED_FLAG = "--unflushed"
"""Acknowledge changes before they are flushed to disk: killing the process loses none, a power cut may."""

_ROOT = Path(__file__).parents[2]
_PROCESS = "services.adapters.edge.process"


@dataclass(frozen=True, slots=True)
class Spawned:
    """A store process whose greeting has not been read yet, and the server's end of its connection."""

    process: Popen[bytes]
    connection: socket.socket


_early: dict[tuple[Path, tuple[str, ...]], Spawned] = {}


def flags_of(*, durable: bool) -> tuple[str, ...]:
    """The flags for a store that is opened for normal use."""
    return () if durable else (UNFLUSHED_FLAG,)


def spawn_early(folder: Path, flags: Sequence[str]) -> None:
    """Start the process now; whoever opens the folder in this process takes it over. If nobody does, it ends
    with this process, because its connection is then closed. Raises OSError."""
    _early[folder, tuple(flags)] = _spawn(folder, flags)


def spawn(folder: Path, flags: Sequence[str]) -> Spawned:
    """Take over the process that was started early, or start one. Raises OSError if it cannot be run."""
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
