"""The archives of a folder: their names, which there are, and which are too many."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from core.errors import ConflictError
from core.operations.archive import SUFFIX, BadArchiveError
from services.operations.backup.reader import open_archive
from services.operations.backup.writer import PARTIAL
from services.store.durable import try_lock

_NAME = re.compile(r"wenmai-\d{8}T\d{6}\.\d{3}Z" + re.escape(SUFFIX))


class BackupRunningError(ConflictError):
    code = "backup_running"
    retryable = True


@dataclass(frozen=True, slots=True)
class ArchiveListing:
    """`problem` is empty when list of contents and manifest are sound; the contents were not read."""

    file: str
    size_bytes: int
    created: str = ""
    points: dict[str, int] = field(default_factory=dict)
    problem: str = ""


def archive_name(moment_us: int) -> str:
    moment = datetime.fromtimestamp(moment_us / 1_000_000, UTC)
    return f"wenmai-{moment:%Y%m%dT%H%M%S}.{moment.microsecond // 1000:03}Z{SUFFIX}"


def archives_in(folder: Path) -> list[Path]:
    """Ours by their names, newest first; none when there is no such folder.

    Raises NotADirectoryError when it is a file, and other OSErrors.
    """
    try:
        entries = list(folder.iterdir())
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        raise _no_folder(folder) from None
    ours = [path for path in entries if _NAME.fullmatch(path.name) and path.is_file()]
    return sorted(ours, key=lambda path: path.name, reverse=True)


def list_archives(folder: Path) -> list[ArchiveListing]:
    """Newest first. Blocking."""
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


def delete_older(folder: Path, keep: int) -> list[str]:
    """All but the newest `keep` archives of ours. Returns their names. Blocking."""
    older = archives_in(folder)[keep:]
    for path in older:
        path.unlink()
    return [path.name for path in older]


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Make the folder, and hold it against other backups; what a killed one left is removed.

    Blocking. Raises BackupRunningError, NotADirectoryError when it is a file, and other OSErrors.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise _no_folder(folder) from None
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if not try_lock(descriptor):
            raise BackupRunningError("A backup is being made; there is only one at a time.")
        for left in folder.glob(f"wenmai-*{SUFFIX}{PARTIAL}"):
            left.unlink(missing_ok=True)
        yield
    finally:
        os.close(descriptor)


def _no_folder(folder: Path) -> NotADirectoryError:
    return NotADirectoryError(errno.ENOTDIR, "it is not a folder", str(folder))
