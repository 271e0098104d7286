"""The location of a run's temporary files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

MEMORY = Path("/dev/shm")
FILES_BYTES = 8 << 30  # enough for the files of one run
PROCESSES_BYTES = 7 << 30  # and its processes
_PREFIX = "wenmai-tests-"


@contextmanager
def fast_files() -> Iterator[None]:
    """Put temporary files into memory if there is room: tests that open a store on disk mostly wait for
    writes to be synced, and no test cuts the power."""
    if MEMORY.is_dir():
        remove_leftovers(MEMORY)
    if not _has_room():
        yield
        return
    with tempfile.TemporaryDirectory(
        prefix=f"{_PREFIX}{os.getpid()}-", dir=MEMORY, ignore_cleanup_errors=True
    ) as folder:
        os.environ["TMPDIR"] = folder
        yield


def _has_room() -> bool:
    """Counts the processes, too: if both need more than there is, the kernel kills some."""
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < FILES_BYTES:
        return False
    return psutil.virtual_memory().available >= FILES_BYTES + PROCESSES_BYTES


def remove_leftovers(memory: Path) -> None:
    """Remove the files of killed runs, whose memory nobody else would release."""
    for folder in memory.glob(f"{_PREFIX}*"):
        process, _, _ = folder.name.removeprefix(_PREFIX).partition("-")
        if not (process.isdigit() and psutil.pid_exists(int(process))):
            shutil.rmtree(folder, ignore_errors=True)
