"""Copies of a store's folder, and what its files contain; most of their bytes, a gigabyte, are holes."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


def copied(folder: Path, copy: Path) -> Path:
    """Copy the folder, keeping holes in sparse files, for which `shutil` alone would write zeros."""
    return Path(shutil.copytree(folder, copy, copy_function=_with_holes))


def without_holes(path: Path) -> bytes:
    """The content of a file, with one zero in place of each hole."""
    with path.open("rb") as file:
        return b"\0".join(os.pread(file.fileno(), size, at) for at, size in _written(file.fileno()))


def _with_holes(source: str, target: str) -> str:
    with open(source, "rb") as read, open(target, "wb") as copy:
        for at, size in _written(read.fileno()):
            copy.seek(at)
            copy.write(os.pread(read.fileno(), size, at))
        copy.truncate(os.fstat(read.fileno()).st_size)
    shutil.copystat(source, target)
    return target


def _written(descriptor: int) -> Iterator[tuple[int, int]]:
    """Position and size of each part of the file that is not a hole."""
    end = 0
    while True:
        try:
            at = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # nothing follows but a hole
                raise
            return
        end = os.lseek(descriptor, at, os.SEEK_HOLE)
        yield at, end - at
