"""The archive is written beside its name and takes it when it is whole; otherwise nothing of it stays."""

from __future__ import annotations

import errno
import hashlib
import os
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from core.errors import DiskFullError
from core.failpoints import failpoint
from core.operations.archive import MANIFEST, Kind, Manifest, Member, Role, Shape, encode_manifest
from services.operations.backup.reader import open_archive
from services.store.durable import sync_folder

PARTIAL = ".partial"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
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
            entry = zipfile.ZipInfo(name)  # which says stored: a snapshot is compressed already
        with self._zip.open(entry, "w", force_zip64=True) as stream:
            writer = MemberWriter(stream)
            yield writer
        self.members.append(
            Member(role, kind, collection, writer.points, writer.size_bytes, writer.sha256, shape)
        )

    def finish(self, manifest: Manifest) -> None:
        self._zip.writestr(MANIFEST, encode_manifest(manifest))


class MemberWriter:
    """`points` is counted by whoever writes."""

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
    """Large pieces with the number of their frames: small writes would cost more than they carry."""
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
    """Blocking. Whole, read again and durable under its name afterwards, its owner's only; or not there.

    Raises DiskFullError, OSError, FileExistsError when there is such a file.
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
            _read_again(partial)
            failpoint("backup.copied")
            if path.exists():
                raise FileExistsError(errno.EEXIST, "there is such a file", str(path))
            partial.rename(path)
        finally:
            with suppress(FileNotFoundError):
                partial.unlink()
        failpoint("backup.renamed")
        sync_folder(path.parent)


def _read_again(partial: Path) -> None:
    """A backup that nobody could read is none."""
    with open_archive(partial) as archive:
        archive.verify()


@contextmanager
def full_disk_as_error() -> Iterator[None]:
    """A full disk, or a limit that is met, raises DiskFullError."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise DiskFullError(
            "the disk became full while the backup was written; no part of it was kept"
        ) from error
