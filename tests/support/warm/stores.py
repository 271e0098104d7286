"""Store processes that start instantly: a process that has done their imports forks them."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from subprocess import Popen
from typing import cast

from services.store import spawn
from tests.support.warm.client import Forked, request_for

spawn_started = spawn._spawn
"""The original, for tests that inspect the children of this process."""


def spawn_forked(folder: Path, flags: Sequence[str]) -> spawn.Spawned:
    """Replaces the function by which `services.store.spawn` starts a store; it prints where this process
    prints."""
    arguments = (str(folder), str(os.getpid()), *flags)
    printed = f"/proc/{os.getpid()}/fd/2"
    request = request_for(spawn._PROCESS, arguments, os.environ, os.devnull, printed)
    ours, theirs = socket.socketpair()
    with theirs:
        forked = Forked(request, (spawn._PROCESS,), (theirs.fileno(),))
    return spawn.Spawned(cast("Popen[bytes]", forked), ours)
