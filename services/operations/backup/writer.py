"""Writes an archive under a temporary name and renames it when it is complete; otherwise nothing remains."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from core.errors import ConflictError, DiskFullError
from core.failpoints import failpoint
from core.operations.archive import (
    MANIFEST,
    SUFFIX,
    BadArchiveError,
    Kind,
    Manifest,
    Member,
    Role,
    Shape,
    encode_manifest,
)
from services.operations.backup.reader import open_archive
from services.store.durable import FULL, make_folder, sync_folder, try_lock

PARTIAL = ".partial"
_FASTEST = 1
_JOINED_BYTES = 1 << 18


class ArchiveWriter:
    """Blocking. Members first, then the manifest."""

    def __init__(self, opened: zipfile.ZipFile) -> None:
        self._zip = opened
        self.members: list[Member] = []

    def add_snapshot(
        self, role: Role, collection: str, shape: Shape, chunks: Iterable[bytes], points: int
    ) -> None:
        with self._member(role, Kind.SNAPSHOT, collection, shape) as member:
            member.points = points
            for chunk in chunks:
                member.write(chunk)

    def add_points(self, role: Role, collection: str, shape: Shape, frames: Iterable[bytes]) -> None:
        with self._member(role, Kind.POINTS, collection, shape) as member:
            for joined, points in _joined(frames):
                member.write(joined)
                member.points += points

    @contextmanager
    def _member(self, role: Role, kind: Kind, collection: str, shape: Shape) -> Iterator[MemberWriter]:
        name = f"{role}.{kind}"
        entry: str | zipfile.ZipInfo = name
        if kind is Kind.SNAPSHOT:
            entry = zipfile.ZipInfo(name)  # its default is "stored": a snapshot is already compressed
        with self._zip.open(entry, "w", force_zip64=True) as stream:
            writer = MemberWriter(stream)
            yield writer
        self.members.append(
            Member(role, kind, collection, writer.points, writer.size_bytes, writer.sha256, shape)
        )

    def finish(self, manifest: Manifest) -> None:
        self._zip.writestr(MANIFEST, encode_manifest(manifest))


class MemberWriter:
    """`points` is set by the caller."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self.size_bytes = 0
        self.points = 0

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, content: bytes) -> None:
        self._stream.write(content)
        self._digest.update(content)
        self.size_bytes += len(content)


def _joined(frames: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
    """Join frames into large pieces, with the number of frames in each: small writes are slow."""
    waiting: list[bytes] = []
    size = 0
    for frame in frames:
        waiting.append(frame)
        size += len(frame)
        if size >= _JOINED_BYTES:
            yield b"".join(waiting), len(waiting)
            waiting, size = [], 0
    yield b"".join(waiting), len(waiting)


@contextmanager
def writing(path: Path) -> Iterator[ArchiveWriter]:
    """Write an archive, which ends up complete, verified, durable and private, or not at all. Blocking.

    Raises DiskFullError, OSError, FileExistsError if the file exists already.
    """
    partial = path.with_name(path.name + PARTIAL)
    with full_disk_as_error():
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w+b") as file:
                with zipfile.ZipFile(
                    file, "w", compression=zipfile.ZIP_DEFLATED, compresslevel=_FASTEST
                ) as opened:
                    yield ArchiveWriter(opened)
                file.flush()
                os.fsync(file.fileno())
            _verify(partial)
            failpoint("backup.copied")
            if path.exists():
                raise FileExistsError(errno.EEXIST, "the file already exists", str(path))
            partial.rename(path)
        finally:
            partial.unlink(missing_ok=True)
        failpoint("backup.renamed")
        sync_folder(path.parent)


def _verify(partial: Path) -> None:
    """Read the archive back: an unreadable backup is worthless."""
    with open_archive(partial) as archive:
        archive.verify()


@contextmanager
def full_disk_as_error() -> Iterator[None]:
    """Translate the OSErrors of a full disk, quota or file size limit into DiskFullError."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise DiskFullError(
            "the disk filled up while the backup was being written; nothing of it was kept"
        ) from error


# The archives of a folder: naming, listing, and deleting old ones.


_NAME = re.compile(r"wenmai-\d{8}T\d{6}\.\d{3}Z" + re.escape(SUFFIX))


class BackupRunningError(ConflictError):
    code = "backup_running"
    retryable = True


@dataclass(frozen=True, slots=True)
class ArchiveListing:
    """`problem` is empty if table of contents and manifest are valid; the contents were not read."""

    file: str
    size_bytes: int
    created: str = ""
    points: dict[str, int] = field(default_factory=dict)
    problem: str = ""


def archive_name(moment_us: int) -> str:
    moment = datetime.fromtimestamp(moment_us / 1_000_000, UTC)
    return f"wenmai-{moment:%Y%m%dT%H%M%S}.{moment.microsecond // 1000:03}Z{SUFFIX}"


def archives_in(folder: Path) -> list[Path]:
    """Return archives, newest first by our own naming, other names last; none if there is no such folder.

    Raises NotADirectoryError if it is a file, and other OSErrors.
    """
    try:
        entries = list(folder.iterdir())
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        raise _no_folder(folder) from None
    archives = [path for path in entries if path.name.endswith(SUFFIX) and path.is_file()]
    return sorted(archives, key=lambda path: (_is_ours(path), path.name), reverse=True)


def _is_ours(path: Path) -> bool:
    """Whether we named it: an archive that a person renamed is not ours to delete."""
    return _NAME.fullmatch(path.name) is not None


def list_archives(folder: Path) -> list[ArchiveListing]:
    """List archives in the order of `archives_in`. Blocking."""
    return [_listing(path) for path in archives_in(folder)]


def _listing(path: Path) -> ArchiveListing:
    size_bytes = path.stat().st_size
    try:
        with open_archive(path) as archive:
            manifest = archive.manifest
    except (BadArchiveError, OSError) as error:
        return ArchiveListing(path.name, size_bytes, problem=str(error))
    points = {role.value: number for role, number in manifest.points.items()}
    return ArchiveListing(path.name, size_bytes, manifest.created, points)


def delete_older(newest: Path, keep: int) -> list[ArchiveListing]:
    """Delete all of our archives except `keep`: `newest`, which was just made, those before it, and then any
    dated after it because a clock was ahead. Returns the deleted ones. Blocking."""
    ours = filter(_is_ours, archives_in(newest.parent))
    older = sorted(ours, key=lambda path: path.name > newest.name)[keep:]
    listed = [_listing(path) for path in older]
    for path in older:
        path.unlink()
    return listed


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Create the folder and lock it against other backups; remove what a killed backup left.

    Blocking. Raises BackupRunningError, NotADirectoryError if it is a file, and other OSErrors.
    """
    try:
        make_folder(folder)
    except (FileExistsError, NotADirectoryError):
        raise _no_folder(folder) from None
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if not try_lock(descriptor):
            raise BackupRunningError("A backup is already being made; only one can run at a time.")
        for left in folder.glob(f"wenmai-*{SUFFIX}{PARTIAL}"):
            left.unlink(missing_ok=True)
        yield
    finally:
        os.close(descriptor)


def _no_folder(folder: Path) -> NotADirectoryError:
    return NotADirectoryError(errno.ENOTDIR, "it is not a folder", str(folder))
