"""Files of the embedded store that are ours: the lock of the data folder, and durable small files."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from services.store.durable import LOCK_FILE, try_lock

RESERVE_BYTES = 64 << 20
"""Left free by all writes: a mapped file that cannot grow kills its process."""
COPIES = ".compacting-"
"""Begins the name of a folder in which a collection is being copied; no collection is named so."""
_BLOCK_BYTES = 512  # of st_blocks, whatever the file system
_LOCK_WAIT_S = 1.0
_ORPHAN_WAIT_S = 20.0
_LOCK_RETRY_S = 0.02


class Holder(msgspec.Struct, frozen=True):
    """Who holds a data folder: the store process and the server that started it."""

    pid: int = 0
    server_pid: int = 0
    started: str = "an unknown time"


class FolderHeldError(Exception):
    def __init__(self, holder: Holder) -> None:
        super().__init__(holder)
        self.holder = holder


def lock_folder(folder: Path, server_pid: int) -> int:
    """Lock `folder` for this process's life, on behalf of that server; returns the descriptor that holds it.

    Waits a second. When the holder's server is gone the holder is closing its shards, maybe after a long
    compaction, and is worth a longer wait. Raises FolderHeldError, OSError.
    """
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    began = time.monotonic()
    while not try_lock(descriptor):
        holder = _read_holder(descriptor)
        patience_s = _LOCK_WAIT_S if _is_alive(holder.server_pid) else _ORPHAN_WAIT_S
        if time.monotonic() - began > patience_s:
            os.close(descriptor)
            raise FolderHeldError(holder)
        time.sleep(_LOCK_RETRY_S)
    _write_holder(descriptor, server_pid)
    return descriptor


def _read_holder(descriptor: int) -> Holder:
    try:
        return msgspec.json.decode(os.pread(descriptor, 4096, 0), type=Holder)
    except msgspec.DecodeError:
        return Holder()


def _write_holder(descriptor: int, server_pid: int) -> None:
    holder = Holder(os.getpid(), server_pid, datetime.now(UTC).isoformat(timespec="seconds"))
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, msgspec.json.encode(holder), 0)
    os.fsync(descriptor)


def _is_alive(pid: int) -> bool:
    """An unknown holder (0) counts as alive: the short wait is for it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def free_bytes(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def allocated_bytes(folder: Path) -> int:
    """What `folder` takes on its disk, holes left out. What vanishes while it is walked is passed over."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(path, name)).st_blocks
    return total * _BLOCK_BYTES


def remove_copies(folder: Path) -> None:
    """What cannot be removed is left to the next time."""
    for entry in folder.glob(f"{COPIES}*"):
        shutil.rmtree(entry, ignore_errors=True)


# Give back what loading shards has touched without need. Runs in the store process only.
#
# The engine faults every page of its mapped files in when it loads them, holes included: 160 MB resident
# for five collections without a point. Unmapped pages stay in the page cache and come back when they are
# used; nothing is lost, as the mappings are shared with their files.


_MAPS = Path("/proc/self/maps")
_MADV_DONTNEED = 4
_SHARED = "s"


def release_mapped_files(folder: Path) -> None:
    """Only Linux lists a process's mappings in a file; elsewhere nothing happens."""
    if sys.platform != "linux":
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for start, end in _shared_mappings(folder.resolve()):
        madvise(start, end - start, _MADV_DONTNEED)


def _shared_mappings(folder: Path) -> Iterator[tuple[int, int]]:
    """Lines read `start-end rwxs offset device inode    path`."""
    for line in _MAPS.read_text().splitlines():
        addresses, permissions, *_, path = line.split(maxsplit=5)
        if permissions.endswith(_SHARED) and path.startswith(f"{folder}/"):
            start, end = addresses.split("-")
            yield int(start, 16), int(end, 16)
