"""The undo files that lie in a folder: what they still hold of turns that are gone for good."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from core.operations.erasure import has_id, is_of, others_of, uuids_of
from services.operations.repair.undo_file import UNDO_NAME

_UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
Naming = Callable[[bytes], bool]
_HALF_WRITTEN = ".backfill-undo-rewriting"


class _Told(msgspec.Struct):
    """The payloads of a line of any kind."""

    was: dict[str, Any] | None = None
    wrote: dict[str, Any] | None = None
    payload: dict[str, Any] | None = None


_FREE = msgspec.json.Decoder(_Told)


@dataclass(frozen=True, slots=True)
class LinesFound:
    """Lines of all files, and those that name one of the ids."""

    lines: int
    hits: int


class UndoFolder:
    """Where a repair leaves its undo files. Not to be struck from while a repair writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def count(self, ids: Collection[str], *, owner: str = "") -> LinesFound:
        """`ids` are of turns or sessions, UUIDs in lower case; a line whose point was or became this owner's
        is counted, too."""
        return await asyncio.to_thread(self._count, _naming(ids, owner))

    async def strike(self, ids: Collection[str], *, owner: str = "") -> int:
        """Take out every line that names one of these, or is of the owner's. Returns how many.

        Raises OSError.
        """
        return await asyncio.to_thread(self._strike, _naming(ids, owner))

    async def forget(self, before_us: int) -> int:
        """Delete the files that were last written before. Returns how many."""
        return await asyncio.to_thread(self._forget, before_us)

    def _files(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return sorted(path for path in self._folder.iterdir() if UNDO_NAME.fullmatch(path.name))

    def _count(self, names: Naming) -> LinesFound:
        named = [names(line) for path in self._files() for line in _lines(path)]
        return LinesFound(len(named), sum(named))

    def _strike(self, names: Naming) -> int:
        struck = 0
        for path in self._files():
            hits = sum(names(line) for line in _lines(path))
            if hits:
                self._rewrite(path, names)
                struck += hits
        return struck

    def _rewrite(self, path: Path, names: Naming) -> None:
        half = self._folder / _HALF_WRITTEN
        with open(half, "wb", opener=_private) as file:
            file.writelines(line for line in _lines(path) if not names(line))
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


def _naming(ids: Collection[str], owner: str) -> Naming:
    uuids = frozenset(each.encode() for each in uuids_of(ids))
    others = others_of(ids)
    words = frozenset(msgspec.json.encode(each) for each in (*others, owner) if each)

    def names(line: bytes) -> bool:
        if uuids and not uuids.isdisjoint(_UUID.findall(line.lower())):
            return True
        return any(word in line for word in words) and _tells(line, others, owner)

    return names


def _tells(line: bytes, others: frozenset[str], owner: str) -> bool:
    """A line that was cut while it was written tells whatever stands in it."""
    try:
        told = _FREE.decode(line)
    except msgspec.MsgspecError:
        return True
    payloads = [part for part in (told.was, told.wrote, told.payload) if part]
    return any(is_of(part, owner) or has_id(part, others) for part in payloads)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
