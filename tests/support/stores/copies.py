"""Copies of a store's folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_BLOCK_BYTES = 64 << 10


def copied(folder: Path, copy: Path) -> Path:
    """Copy the folder, keeping holes in sparse files, for which `shutil` alone would write a gigabyte of
    zeros."""
    return Path(shutil.copytree(folder, copy, copy_function=_with_holes))


def _with_holes(source: str, target: str) -> str:
    with open(source, "rb") as read, open(target, "wb") as written:
        while block := read.read(_BLOCK_BYTES):
            if block.count(0) == len(block):
                written.seek(len(block), os.SEEK_CUR)
            else:
                written.write(block)
        written.truncate()
    shutil.copystat(source, target)
    return target
