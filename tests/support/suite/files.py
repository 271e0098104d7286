"""Where the temporary files of a run stand."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

MEMORY = Path("/dev/shm")
FILES_BYTES = 8 << 30  # what the files of one run come to, and then some
PROCESSES_BYTES = 7 << 30  # and its processes
_PREFIX = "wenmai-tests-"


@contextmanager
def fast_files() -> Iterator[None]:
    """Temporary files in memory, where there is room: most of the time of a test that opens a store on a disk
    is waiting for the disk to say that it has written, and no test takes the power away."""
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
    """For the processes, too: where both want more than there is, the kernel kills some."""
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < FILES_BYTES:
        return False
    return psutil.virtual_memory().available >= FILES_BYTES + PROCESSES_BYTES


def remove_leftovers(memory: Path) -> None:
    """The files of runs that were killed: nobody else would ever give that memory back."""
    for folder in memory.glob(f"{_PREFIX}*"):
        process, _, _ = folder.name.removeprefix(_PREFIX).partition("-")
        if not (process.isdigit() and psutil.pid_exists(int(process))):
            shutil.rmtree(folder, ignore_errors=True)
