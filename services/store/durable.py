"""What a crash or a power cut must not undo: files and names on the disk, and locks between processes."""

from __future__ import annotations

import errno
import fcntl
import os
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
ID_FILE = "id"  # beside it: the store's own, so that nobody takes another for it
_BLOCK_BYTES = 512  # of st_blocks, whatever the file system


def free_bytes(folder: Path) -> int:
    """Of the disk, for a user who is not root."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


class ReserveFile:
    """Bytes of the disk that nobody else can take: a file that is given back where it is needed."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = path
        self._size_bytes = size_bytes

    def hold(self, least_bytes: int) -> None:
        """Take them where they are not held and `least_bytes` stay free; else the next time."""
        if self._path.exists() or free_bytes(self._path.parent) < self._size_bytes + least_bytes:
            return
        try:
            with self._path.open("xb") as file:
                os.chmod(file.fileno(), 0o600)
                if sys.platform == "linux":
                    os.posix_fallocate(file.fileno(), 0, self._size_bytes)
                else:
                    file.write(bytes(self._size_bytes))  # a hole would take nothing
        except OSError:  # somebody was faster
            self.give()

    def give(self) -> None:
        self._path.unlink(missing_ok=True)

    def taken_bytes(self) -> int:
        return self._path.stat().st_blocks * _BLOCK_BYTES if self._path.exists() else 0


def try_lock(descriptor: int) -> bool:
    """Whether the open file or folder is locked for this process now; closing it lets go."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def refuse_unusable(folder: Path) -> None:
    """Before anything is made. Raises StartRefusedError when the data folder cannot be used."""
    existing = next(each for each in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(each))
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        why = "this user may not write to it" if existing.is_dir() else "it is not a folder"
        raise StartRefusedError(
            f"DATA_DIR = {str(folder)!r} cannot be used ({existing}: {why}): set it to another folder"
        )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file against other processes. Raises BlockingIOError at once when one of them holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not try_lock(descriptor):
            raise BlockingIOError(f"{path} is locked by another process")
        yield
    finally:
        os.close(descriptor)


@contextmanager
def store_locked(folder: Path, consequence: str) -> Iterator[None]:
    """Keep an embedded store's folder from being opened. Raises StoreLockedError when it is open."""
    try:
        with locked(folder / LOCK_FILE):
            yield
    except BlockingIOError:
        raise StoreLockedError(f"another process has opened {folder}{consequence}") from None


class Holder(msgspec.Struct, frozen=True):
    """Who holds a data folder: the store process and the program that started it; `url` is where that one
    serves, "" while it does not."""

    pid: int = 0
    server_pid: int = 0
    started: str = "an unknown time"
    url: str = ""


def read_holder(descriptor: int) -> Holder:
    """Of an open lock file."""
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
    """Of a store that is locked; of another it is the last one. Raises OSError."""
    descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY)
    try:
        return read_holder(descriptor)
    finally:
        os.close(descriptor)


def announce(folder: Path, url: str) -> None:
    """Say in the lock of a store, which this program has open, where it is served; a store without an id gets
    one. Blocking. Raises OSError."""
    if not store_id(folder):
        write_durably(folder / ID_FILE, str(uuid.uuid4()).encode())
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR)
    try:
        write_holder(descriptor, msgspec.structs.replace(read_holder(descriptor), url=url))
    finally:
        os.close(descriptor)


def store_id(folder: Path) -> str:
    """ "" of a store that no server has had open, or whose id is damaged."""
    try:
        return canonical_uuid((folder / ID_FILE).read_text(encoding="ascii", errors="replace")) or ""
    except FileNotFoundError:
        return ""


PARTIAL = ".partial"


def write_durably(path: Path, *pieces: bytes) -> None:
    """Write a new file, or replace an old one, so that a crash leaves the whole of one of them, and beside it
    at most a file whose name ends in PARTIAL."""
    partial = path.with_name(path.name + PARTIAL)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        for piece in pieces:
            file.write(piece)  # all of it: a nearly full disk takes a part without an error
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    sync_folder(path.parent)


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def unwritable(what: str, error: OSError) -> StoreUnavailableError:
    """Of something that was sent and cannot be kept."""
    if error.errno in FULL:
        return DiskFullError(f"The disk is full: the {what} was not accepted. What is stored can be read.")
    return StoreUnavailableError(f"The {what} cannot be kept on the disk: {error.strerror}.")


def make_folder(folder: Path) -> None:
    """With the folders above it, their owner's only; on the disk when this returns. Raises OSError."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in missing:
        sync_folder(each.parent)


_FORGETFUL = frozenset({"tmpfs", "ramfs", "nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse.s3fs"})
"""File systems in memory or across a network: a flush may return before anything is on a disk."""


def forgetful_file_system(folder: Path) -> str:
    """Its kind, when a flush there promises less than on a disk; "" elsewhere, and where it is not known.

    Only Linux lists what is mounted in a file.
    """
    if sys.platform != "linux":
        return ""
    place, kind = "", ""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mounted, each, *_ = line.split()
        if len(mounted) >= len(place) and Path(mounted) in (folder.resolve(), *folder.resolve().parents):
            place, kind = mounted, each
    return kind if kind in _FORGETFUL else ""


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable; or what a file holds."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Make all files of `folder`, and their names, durable."""
    for path, _, names in os.walk(folder):
        for name in names:
            sync_folder(Path(path, name))
        sync_folder(Path(path))


def allocated_bytes(folder: Path) -> int:
    """What `folder` takes on its disk, holes left out. What vanishes while it is walked is passed over."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(path, name)).st_blocks
    return total * _BLOCK_BYTES
