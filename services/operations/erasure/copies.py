"""Copies of the whole store that deletion does not reach: backups, and stores kept after a re-embedding."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from core.operations.archive import SUFFIX, BadArchiveError
from core.operations.erasure import CopyFound, Left, Searched
from services.operations.backup.reader import open_archive
from services.operations.backup.search import can_be_searched, holds
from services.operations.reembedding.folders import StoreFolders

YES, NO, MAY = "yes", "no", "may"
SEARCHED_AT_ONCE_BYTES = 16 << 20  # archives that are searched while somebody waits for a page
_DELETE_ARCHIVE = (
    "Delete the archive, or erase again with backups=delete (for the command: --backups delete)."
)
_SEARCH_ARCHIVE = "Made before the erasure and not searched: ask for the full proof, or delete the archive."
_DELETE_STORE = "An earlier store, kept after a change of the embedding: delete the folder."
_PREPARED = "A copy prepared for another embedding; it is brought up to date at the switch."


@dataclass(frozen=True, slots=True)
class CopiesFound:
    searched: tuple[Searched, ...]
    copies: tuple[CopyFound, ...]
    left: tuple[Left, ...]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """`owner` is empty when it is not an owner that is looked for."""

    ids: frozenset[str]
    owner: str


class Copies:
    """`backups` is the folder of the archives; `store` the embedded store's, None with a Qdrant server."""

    def __init__(self, backups: Path, store: Path | None) -> None:
        self._backups = backups
        self._store = store

    async def search(self, ids: Collection[str], owner: str = "", *, thorough: bool) -> CopiesFound:
        """Every copy by name and time. Large archives are searched only when it is to be `thorough`."""
        return await asyncio.to_thread(self._search, _Wanted(frozenset(ids), owner), thorough)

    async def delete_holding(self, ids: Collection[str], owner: str = "") -> int:
        """Delete the archives that hold one of these, and those that cannot be read. Returns how many.

        Of an owner of whom nothing is known but the name only archives go in which the name was found.
        """
        return await asyncio.to_thread(self._delete_holding, _Wanted(frozenset(ids), owner))

    def _search(self, wanted: _Wanted, thorough: bool) -> CopiesFound:
        archives = self._archives()
        small = sum(path.stat().st_size for path in archives) <= SEARCHED_AT_ONCE_BYTES
        found = [_looked_into(path, wanted) if thorough or small else _unsearched(path) for path in archives]
        earlier, prepared = self._stores()
        stores = [CopyFound(folder.name, _changed_at(folder), MAY) for folder in [*earlier, *prepared]]
        hits = sum(each.holds == YES for each in found)
        searched = [Searched("backups", len(found), hits), Searched("earlier stores", len(earlier), 0)]
        searched += [Searched("prepared copy of the store", 1, 0) for _ in prepared]
        left = [
            Left(f"backups: {each.name}", int(each.holds == YES), _advice(each))
            for each in found
            if each.holds != NO
        ]
        left += [Left(f"earlier stores: {each.name}", 0, _DELETE_STORE) for each in earlier]
        left += [Left(f"prepared copy: {each.name}", 0, _PREPARED) for each in prepared]
        return CopiesFound(tuple(searched), (*found, *stores), tuple(left))

    def _delete_holding(self, wanted: _Wanted) -> int:
        if not wanted.ids and not wanted.owner:
            return 0
        goes = (YES, MAY) if wanted.ids else (YES,)
        holding = [path for path in self._archives() if _looked_into(path, wanted).holds in goes]
        for path in holding:
            path.unlink(missing_ok=True)
        return len(holding)

    def _archives(self) -> list[Path]:
        if not self._backups.is_dir():
            return []
        return sorted(
            path for path in self._backups.iterdir() if path.name.endswith(SUFFIX) and path.is_file()
        )

    def _stores(self) -> tuple[list[Path], list[Path]]:
        """Stores that were replaced, and the copy that is to replace this one, if there is any."""
        if self._store is None:
            return [], []
        folders = StoreFolders(self._store)
        return folders.replaced(), [folders.copy] if folders.copy.is_dir() else []


def _advice(found: CopyFound) -> str:
    return _DELETE_ARCHIVE if found.holds == YES else _SEARCH_ARCHIVE


def _looked_into(path: Path, wanted: _Wanted) -> CopyFound:
    try:
        if not wanted.ids and not can_be_searched(path):
            return CopyFound(path.name, _made_at(path), MAY)
        there = holds(path, wanted.ids, owner=wanted.owner)
        return CopyFound(path.name, _made_at(path), YES if there else NO)
    except (BadArchiveError, OSError):
        return CopyFound(path.name, _changed_at(path), MAY)


def _unsearched(path: Path) -> CopyFound:
    try:
        return CopyFound(path.name, _made_at(path), MAY)
    except (BadArchiveError, OSError):
        return CopyFound(path.name, _changed_at(path), MAY)


def _made_at(path: Path) -> str:
    with open_archive(path) as archive:
        return archive.manifest.created


def _changed_at(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
