"""Copies of the whole store that deletion does not reach: backups, and stores kept after a re-embedding."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import structlog

from config.settings import StoreSettings
from core.errors import StoreUnavailableError
from core.operations.archive import SUFFIX, BadArchiveError
from core.operations.erasure import CopyHit, Left, Searched
from services.operations.backup.reader import can_be_searched, holds, open_archive
from services.operations.reembedding.folders import StoreFolders
from services.store.dialect import Reclaimed

YES, NO, MAY = "yes", "no", "may"
SEARCHED_AT_ONCE_BYTES = 16 << 20  # archives that are searched while somebody waits for a page
_DELETE_ARCHIVE = (
    "Delete the archive, or erase again with backups=delete (for the command: --backups delete)."
)
_SEARCH_ARCHIVE = "Made before the erasure and not searched: ask for the full proof, or delete the archive."
_DELETE_STORE = "An earlier store, kept after a change of the embedding: delete the folder."
_PREPARED = "A copy prepared for another embedding; it is brought up to date at the switch."


@dataclass(frozen=True, slots=True)
class CopySearch:
    searched: tuple[Searched, ...]
    copies: tuple[CopyHit, ...]
    left: tuple[Left, ...]


@dataclass(frozen=True, slots=True)
class _Subject:
    """`owner` is empty when it is not an owner that is looked for."""

    ids: frozenset[str]
    owner: str


class Copies:
    """`backups` is the folder of the archives; `store` the embedded store's, None with a Qdrant server."""

    def __init__(self, backups: Path, store: Path | None) -> None:
        self._backups = backups
        self._store = store

    async def search(self, ids: Collection[str], owner: str = "", *, thorough: bool) -> CopySearch:
        """Every copy by name and time. Large archives are searched only when it is to be `thorough`."""
        return await asyncio.to_thread(self._search, _Subject(frozenset(ids), owner), thorough)

    async def hold_owner(self, owner: str) -> bool:
        """Whether an archive has something of this owner; every one that can be read is."""
        search = await self.search((), owner, thorough=True)
        return any(copy.holds == YES for copy in search.copies)

    async def delete_holding(self, ids: Collection[str], owner: str = "") -> int:
        """Delete the archives that hold one of these, and those that cannot be read. Returns how many.

        Of an owner of whom nothing is known but the name only archives go in which the name was found.
        """
        return await asyncio.to_thread(self._delete_holding, _Subject(frozenset(ids), owner))

    def _search(self, subject: _Subject, thorough: bool) -> CopySearch:
        archives = self._archives()
        small = sum(path.stat().st_size for path in archives) <= SEARCHED_AT_ONCE_BYTES
        hits_by_copy = [_looked_into(path, subject if thorough or small else None) for path in archives]
        earlier, prepared = self._stores()
        stores = [CopyHit(folder.name, _changed_at(folder), MAY) for folder in [*earlier, *prepared]]
        hits = sum(each.holds == YES for each in hits_by_copy)
        searched = [Searched("backups", len(hits_by_copy), hits), Searched("earlier stores", len(earlier), 0)]
        searched += [Searched("prepared copy of the store", 1, 0) for _ in prepared]
        left = [
            Left(f"backups: {each.name}", 1, _DELETE_ARCHIVE)
            if each.holds == YES
            else Left(f"backups: {each.name}", 0, _SEARCH_ARCHIVE)
            for each in hits_by_copy
            if each.holds != NO
        ]
        left += [Left(f"earlier stores: {each.name}", 0, _DELETE_STORE) for each in earlier]
        left += [Left(f"prepared copy: {each.name}", 0, _PREPARED) for each in prepared]
        return CopySearch(tuple(searched), (*hits_by_copy, *stores), tuple(left))

    def _delete_holding(self, subject: _Subject) -> int:
        if not subject.ids and not subject.owner:
            return 0
        goes = (YES, MAY) if subject.ids else (YES,)
        holding = [path for path in self._archives() if _looked_into(path, subject).holds in goes]
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


def _looked_into(path: Path, subject: _Subject | None) -> CopyHit:
    """None: it is not searched."""
    try:
        if subject is None or (not subject.ids and not can_be_searched(path)):
            return CopyHit(path.name, _made_at(path), MAY)
        holding = holds(path, subject.ids, owner=subject.owner)
        return CopyHit(path.name, _made_at(path), YES if holding else NO)
    except (BadArchiveError, OSError):
        return CopyHit(path.name, _changed_at(path), MAY)


def _made_at(path: Path) -> str:
    with open_archive(path) as archive:
        return archive.manifest.created


def _changed_at(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


log = structlog.get_logger()

# What deletion leaves in the store's files goes when these are written anew: at once, or a little later.


PLACE = "store files"
QUIET_S = 5.0
MOST_WAIT_S = 30.0  # also while erasure follows erasure
_LATER = "What was erased lies in them as free space; they are rewritten within a minute."
_FAILED = "They could not be rewritten ({reason}): what was erased lies in them as free space until they are."


class Rewriting(Protocol):
    async def rewrite(self, collections: Sequence[str]) -> Reclaimed | None:
        """Write these collections anew; None with a Qdrant server, which sees to it itself.

        Raises StoreUnavailableError, DiskFullError among them.
        """
        ...


@dataclass(frozen=True, slots=True)
class FileSearch:
    """What a proof says of the files. `searched` is empty where no files are ours."""

    searched: tuple[Searched, ...] = ()
    left: tuple[Left, ...] = ()
    failed: bool = False


class StoreFiles:
    """`space` is None where the files are not ours. Collections whose rewriting failed come with the next."""

    def __init__(self, space: Rewriting | None, quiet_s: float = QUIET_S) -> None:
        self._space = space
        self._quiet_s = quiet_s
        self._due: set[str] = set()
        self._asked_at = 0.0
        self._hurry = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def rewrite(self, collections: Collection[str]) -> FileSearch:
        """Return when it is done. Never raises StoreUnavailableError: a failure is in what is said."""
        self._due.update(collections)
        if self._space is None or not self._due:
            return FileSearch()
        try:
            rewritten = await self._rewrite(self._space)
        except StoreUnavailableError as error:
            log.warning("store_files_not_rewritten", reason=str(error))
            left = Left(PLACE, 0, _FAILED.format(reason=str(error).rstrip(".")))
            return FileSearch((Searched(PLACE, 0, 0),), (left,), failed=True)
        return FileSearch((Searched(PLACE, rewritten, 0),)) if rewritten else FileSearch()

    def rewrite_later(self, collections: Collection[str]) -> FileSearch:
        """Once, when no erasure has come for a few seconds."""
        if self._space is None or not collections:
            return FileSearch()
        self._due.update(collections)
        self._asked_at = asyncio.get_running_loop().time()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="rewrite store files")
        return FileSearch((Searched(PLACE, 0, 0),), (Left(PLACE, 0, _LATER),))

    async def close(self) -> None:
        """Do what is due at once. Before the store closes."""
        self._hurry.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._due:
            await self._quiet()
            if (await self.rewrite(())).failed:
                return

    async def _quiet(self) -> None:
        now = asyncio.get_running_loop().time
        latest = now() + MOST_WAIT_S
        while (wait_s := min(self._asked_at + self._quiet_s, latest) - now()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), wait_s)
                return

    async def _rewrite(self, space: Rewriting) -> int:
        """Returns how many collections."""
        async with self._one_at_a_time:
            due = sorted(self._due)
            self._due.clear()
            try:
                reclaimed = await space.rewrite(due) if due else None
            except BaseException:
                self._due.update(due)
                raise
            return 0 if reclaimed is None else len(due)


def touched(done: Counter[str], names: StoreSettings) -> frozenset[str]:
    """The collections in which something went or changed, judging by what was counted."""
    turns, sessions = names.conversation_collection, names.session_collection
    of = {
        "turns": (turns, sessions),  # the session's title may have been the turn's question
        "sessions": (sessions,),
        "summaries": (turns,),
        "rewritten_questions": (turns,),
        "parents": (turns,),
        "manifests": (turns,),
        "turns_scrubbed": (turns,),
        "personas": (sessions,),
        "memories": (names.memory_collection,),
        "documents": (names.document_collection,),
        "chunks": (names.knowledge_collection, names.document_collection),
    }
    return frozenset(name for what, number in done.items() if number for name in of.get(what, ()))
