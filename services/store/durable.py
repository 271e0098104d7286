"""What a crash or a power cut must not undo: files and names on disk, and locks between processes."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from core.errors import DiskFullError, StartRefusedError, StoreLockedError, StoreUnavailableError
from core.text import canonical_uuid

LOCK_FILE = "lock"
"""In an embedded store's folder: held by the process that has the store open."""
ID_FILE = "id"  # beside it: identifies the store, so that no other is mistaken for it
_BLOCK_BYTES = 512  # the unit of st_blocks on every file system


def free_bytes(folder: Path) -> int:
    """Free bytes on the folder's disk, as available to a user who is not root."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


class ReserveFile:
    """Disk space reserved by a file, which is deleted when the space is needed."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = path
        self._size_bytes = size_bytes

    def acquire(self, least_bytes: int) -> None:
        """Reserve the space unless it is reserved already or fewer than `least_bytes` would stay free."""
        if self._path.exists() or free_bytes(self._path.parent) < self._size_bytes + least_bytes:
            return
        try:
            with self._path.open("xb") as file:
                os.chmod(file.fileno(), 0o600)
                if sys.platform == "linux":
                    os.posix_fallocate(file.fileno(), 0, self._size_bytes)
                else:
                    file.write(bytes(self._size_bytes))  # a sparse file would reserve nothing
        except OSError:  # somebody else took the space first
            self.release()

    def release(self) -> None:
        self._path.unlink(missing_ok=True)

    def taken_bytes(self) -> int:
        return self._path.stat().st_blocks * _BLOCK_BYTES if self._path.exists() else 0


def try_lock(descriptor: int) -> bool:
    """Try to lock an open file or folder for this process; closing it releases the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def refuse_unusable(folder: Path) -> None:
    """Call before anything is created. Raises StartRefusedError when the data folder cannot be used."""
    existing = next(each for each in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(each))
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        why = "this user may not write to it" if existing.is_dir() else "it is not a folder"
        raise StartRefusedError(
            f"DATA_DIR = {str(folder)!r} cannot be used ({existing}: {why}): set it to another folder"
        )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file against other processes. Raises BlockingIOError at once if another one holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not try_lock(descriptor):
            raise BlockingIOError(f"{path} is locked by another process")
        yield
    finally:
        os.close(descriptor)


@contextmanager
def store_locked(folder: Path, consequence: str) -> Iterator[None]:
    """Keep others from opening an embedded store's folder. Raises StoreLockedError when it is open."""
    try:
        with locked(folder / LOCK_FILE):
            yield
    except BlockingIOError:
        raise StoreLockedError(f"another process has opened {folder}{consequence}") from None


class Holder(msgspec.Struct, frozen=True):
    """Who holds a data folder: the store process and the program that started it; `url` is where that program
    serves, "" while it does not."""

    pid: int = 0
    server_pid: int = 0
    started: str = "an unknown time"
    url: str = ""


def read_holder(descriptor: int) -> Holder:
    """Read the holder from an open lock file; all defaults if it cannot be parsed."""
    try:
        return msgspec.json.decode(os.pread(descriptor, 4096, 0), type=Holder)
    except msgspec.DecodeError:
        return Holder()


def write_holder(descriptor: int, holder: Holder) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, msgspec.json.encode(holder), 0)
    os.fsync(descriptor)


def holder_since_now(server_pid: int) -> Holder:
    return Holder(os.getpid(), server_pid, datetime.now(UTC).isoformat(timespec="seconds"))


def holder_of(folder: Path) -> Holder:
    """The holder of a store's folder, or the last one if it is not locked. Raises OSError."""
    descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY)
    try:
        return read_holder(descriptor)
    finally:
        os.close(descriptor)


def announce(folder: Path, url: str) -> None:
    """Write into the lock file of a store that this program has open where it is served; give the store an id
    if it has none. Blocking. Raises OSError."""
    if not store_id(folder):
        write_durably(folder / ID_FILE, str(uuid.uuid4()).encode())
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR)
    try:
        write_holder(descriptor, msgspec.structs.replace(read_holder(descriptor), url=url))
    finally:
        os.close(descriptor)


def store_id(folder: Path) -> str:
    """ "" for a store that no server has opened yet, or whose id is damaged."""
    try:
        return canonical_uuid((folder / ID_FILE).read_text(encoding="ascii", errors="replace")) or ""
    except FileNotFoundError:
        return ""


PARTIAL = ".partial"


def write_durably(path: Path, *pieces: bytes) -> None:
    """Create or replace a file atomically: a crash leaves the old or the new one whole, and beside it at most
    a file whose name ends in PARTIAL."""
    partial = path.with_name(path.name + PARTIAL)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        for piece in pieces:
            file.write(piece)  # retries short writes: a nearly full disk accepts a part without an error
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    sync_folder(path.parent)


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def unwritable(what: str, error: OSError) -> StoreUnavailableError:
    """The error for something that was received and cannot be written to disk."""
    if error.errno in FULL:
        return DiskFullError(f"The disk is full: the {what} was not accepted. Stored data can still be read.")
    return StoreUnavailableError(f"The {what} cannot be stored on the disk: {error.strerror}.")


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, private to the owner; durable on return. Raises OSError."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in missing:
        sync_folder(each.parent)


_NON_DURABLE = frozenset({"tmpfs", "ramfs", "nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse.s3fs"})
"""File systems in memory or on a network: a flush may return before anything is on a disk."""


def non_durable_file_system(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """The file system's type if a flush there promises less than on a disk; "" otherwise, or if unknown.

    Only Linux lists its mounts in a file.
    """
    if sys.platform != "linux":
        return ""
    place, kind = "", ""
    for line in mounts.read_text().splitlines():
        _, escaped, each, *_ = line.split()
        mounted = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), escaped)  # \040 is a blank
        if len(mounted) >= len(place) and Path(mounted) in (folder.resolve(), *folder.resolve().parents):
            place, kind = mounted, each
    return kind if kind in _NON_DURABLE else ""


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable; of a file, its contents."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Make all files in `folder`, and their names, durable."""
    for path, _, names in os.walk(folder):
        for name in names:
            sync_folder(Path(path, name))
        sync_folder(Path(path))


def allocated_bytes(folder: Path) -> int:
    """The disk space `folder` occupies, without holes. Files that vanish during the walk are skipped."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(path, name)).st_blocks
    return total * _BLOCK_BYTES
