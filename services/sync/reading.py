"""A followed file's bytes, read so that neither a link nor a writer beside us gets something else in."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from services.sync.scanner import ScannedFile, modified_us_of

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe in its place must not make us wait


class FileChangedError(Exception):
    """It is being written, or is another file than the one that was seen: the next run reads it."""


@dataclass(frozen=True, slots=True)
class FileContent:
    """`hash_hex` is SHA-256."""

    content: bytes
    hash_hex: str


def read_scanned(folder: Path, scanned: ScannedFile) -> FileContent:
    """Blocking. Raises FileChangedError, also when it is gone, or OSError."""
    try:
        descriptor = _open_below(folder, scanned.path)
    except FileNotFoundError as error:
        raise FileChangedError(scanned.path) from error
    with open(descriptor, "rb") as file:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode) or not _is_unchanged(before, scanned):
            raise FileChangedError(scanned.path)
        content = file.read(scanned.size_bytes + 1)
        if len(content) != scanned.size_bytes or not _is_unchanged(os.fstat(descriptor), scanned):
            raise FileChangedError(scanned.path)
    return FileContent(content, hashlib.sha256(content).hexdigest())


def _is_unchanged(status: os.stat_result, file: ScannedFile) -> bool:
    return (status.st_size, modified_us_of(status)) == (file.size_bytes, file.modified_us)


def _open_below(folder: Path, path: str) -> int:
    """A descriptor. Part by part, so that no folder on the way can be put a link in place of."""
    *folders, name = path.split("/")
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in folders:
            inner = os.open(part, _FOLDER, dir_fd=at)
            os.close(at)
            at = inner
        return os.open(name, _FILE, dir_fd=at)
    finally:
        os.close(at)
