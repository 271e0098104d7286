"""The undo files that lie in a folder: what they still hold of turns that are gone for good."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from services.repair.undo_file import UNDO_NAME

_UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HALF_WRITTEN = ".backfill-undo-rewriting"


@dataclass(frozen=True, slots=True)
class LinesFound:
    """Lines of all files, and those that name one of the ids."""

    lines: int
    hits: int


class UndoFolder:
    """Where a repair leaves its undo files. Not to be struck from while a repair writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def count(self, ids: Collection[str]) -> LinesFound:
        """`ids` are UUIDs, in lower case, of turns or sessions."""
        return await asyncio.to_thread(self._count, _bytes(ids))

    async def strike(self, ids: Collection[str]) -> int:
        """Take out every line that names one of these. Returns how many. Raises OSError."""
        return await asyncio.to_thread(self._strike, _bytes(ids))

    async def forget(self, before_us: int) -> int:
        """Delete the files that were last written before. Returns how many."""
        return await asyncio.to_thread(self._forget, before_us)

    def _files(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return sorted(path for path in self._folder.iterdir() if UNDO_NAME.fullmatch(path.name))

    def _count(self, ids: frozenset[bytes]) -> LinesFound:
        named = [_names(line, ids) for path in self._files() for line in _lines(path)]
        return LinesFound(len(named), sum(named))

    def _strike(self, ids: frozenset[bytes]) -> int:
        struck = 0
        for path in self._files():
            hits = sum(_names(line, ids) for line in _lines(path))
            if hits:
                self._rewrite(path, ids)
                struck += hits
        return struck

    def _rewrite(self, path: Path, ids: frozenset[bytes]) -> None:
        half = self._folder / _HALF_WRITTEN
        with open(half, "wb", opener=_private) as file:
            file.writelines(line for line in _lines(path) if not _names(line, ids))
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)

    def _forget(self, before_us: int) -> int:
        old = [path for path in self._files() if path.stat().st_mtime_ns // 1_000 < before_us]
        for path in old:
            path.unlink(missing_ok=True)
        return len(old)


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file


def _names(line: bytes, ids: frozenset[bytes]) -> bool:
    return not ids.isdisjoint(_UUID.findall(line.lower()))


def _bytes(ids: Collection[str]) -> frozenset[bytes]:
    return frozenset(name.encode() for name in ids)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
