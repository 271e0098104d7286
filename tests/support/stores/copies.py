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
    return b"\0".join(part for _, part in _parts(path))


def _with_holes(source: str, target: str) -> str:
    with open(target, "wb") as copy:
        for at, part in _parts(Path(source)):
            if part.count(0) < len(part):  # unlike space that is only reserved
                copy.seek(at)
                copy.write(part)
        copy.truncate(os.path.getsize(source))
    shutil.copystat(source, target)
    return target


def _parts(path: Path) -> Iterator[tuple[int, bytes]]:
    """The position and content of each part between holes."""
    end = 0
    with path.open("rb") as file:
        while True:
            try:
                at = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:  # the rest is a hole
                    raise
                return
            end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            yield at, os.pread(file.fileno(), end - at, at)
