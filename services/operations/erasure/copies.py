"""Copies of the store that deletion does not reach: backups, stores kept after a re-embedding, free space."""

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
from core.operations.archive import BadArchiveError
from core.operations.erasure import CopyHit, Left, Searched
from services.operations.backup.reader import can_be_searched, holds, open_archive
from services.operations.backup.writer import archives_in
from services.operations.reembedding.folders import StoreFolders
from services.store.dialect import Reclaimed

YES, NO, MAY = "yes", "no", "may"
SEARCHED_AT_ONCE_BYTES = 16 << 20  # archives searched while a request waits
_DELETE_ARCHIVE = (
    "Delete the archive, or erase again with backups=delete (for the command: --backups delete)."
)
_SEARCH_ARCHIVE = "Made before the erasure and not searched: ask for the full proof, or delete the archive."
_DELETE_STORE = "An earlier store, kept after a change of the embedding: delete the folder."
_PREPARED = "A copy prepared for another embedding; it is updated at the switch."


@dataclass(frozen=True, slots=True)
class CopySearch:
    searched: tuple[Searched, ...]
    copies: tuple[CopyHit, ...]
    left: tuple[Left, ...]


@dataclass(frozen=True, slots=True)
class _Subject:
    """What to search for; `owner` is empty if it is not an owner."""

    ids: frozenset[str]
    owner: str


class Copies:
    """`backups` is the folder of the archives; `store` the embedded store's, None with a Qdrant server."""

    def __init__(self, backups: Path, store: Path | None) -> None:
        self._backups = backups
        self._store = store

    async def search(self, ids: Collection[str], owner: str = "", *, thorough: bool) -> CopySearch:
        """List every copy by name and time. Large archives are searched only if `thorough`."""
        return await asyncio.to_thread(self._search, _Subject(frozenset(ids), owner), thorough)

    async def hold_owner(self, owner: str) -> bool:
        """Whether an archive holds something of this owner; every readable one is searched."""
        search = await self.search((), owner, thorough=True)
        return any(copy.holds == YES for copy in search.copies)

    async def delete_holding(self, ids: Collection[str], owner: str) -> int:
        """Delete the archives that hold one of these, and unreadable ones. Returns how many.

        Without ids, only the archives in which the owner's name was found are deleted.
        """
        return await asyncio.to_thread(self._delete_holding, _Subject(frozenset(ids), owner))

    def _search(self, subject: _Subject, thorough: bool) -> CopySearch:
        archives = self._archives()
        small = sum(path.stat().st_size for path in archives) <= SEARCHED_AT_ONCE_BYTES
        hits_by_copy = [_searched_archive(path, subject if thorough or small else None) for path in archives]
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
        deletable = (YES, MAY) if subject.ids else (YES,)
        holding = [path for path in self._archives() if _searched_archive(path, subject).holds in deletable]
        for path in holding:
            path.unlink(missing_ok=True)
        return len(holding)

    def _archives(self) -> list[Path]:
        return sorted(archives_in(self._backups)) if self._backups.is_dir() else []

    def _stores(self) -> tuple[list[Path], list[Path]]:
        """Return the stores that were replaced, and the copy prepared to replace this one, if any."""
        if self._store is None:
            return [], []
        folders = StoreFolders(self._store)
        return folders.replaced(), [folders.copy] if folders.copy.is_dir() else []


def _searched_archive(path: Path, subject: _Subject | None) -> CopyHit:
    """Search one archive; with `subject` None it is only named."""
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

# Deletion leaves free space in the store's files until they are rewritten: at once, or a little later.


PLACE = "store files"
QUIET_S = 5.0
MAX_WAIT_S = 30.0  # even if erasure follows erasure
STOP_S = 2.0  # a stop waits this long; a large store takes minutes, and the stop would end in a kill
_LATER = "What was erased lies in them as free space; they are rewritten within a minute."
_FAILED = "They could not be rewritten ({reason}): what was erased lies in them as free space until they are."
_STOPPING = "the server is stopping, and rewrites them after its next start"


class Rewriting(Protocol):
    """Every method raises StoreUnavailableError, including DiskFullError."""

    async def note(self, collections: Collection[str]) -> None:
        """Note in the store that these must be rewritten, until that is done."""
        ...

    async def noted(self) -> list[str]: ...

    async def rewrite(self, collections: Sequence[str]) -> Reclaimed | None:
        """Rewrite these collections' files; None with a Qdrant server, which does so automatically."""
        ...


@dataclass(frozen=True, slots=True)
class FileSearch:
    """The part of a proof about the store's files. `searched` is empty where the files are not ours."""

    searched: tuple[Searched, ...] = ()
    left: tuple[Left, ...] = ()
    failed: bool = False


class StoreFiles:
    """`space` is None where the files are not ours. A failed rewrite of a collection is retried next time."""

    def __init__(self, space: Rewriting | None, quiet_s: float = QUIET_S) -> None:
        self._space = space
        self._quiet_s = quiet_s
        self._due: set[str] = set()
        self._asked_at = 0.0
        self._hurry = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._stop_at: float | None = None
        self._limit: asyncio.Timeout | None = None

    async def note(self, collections: Collection[str]) -> None:
        """Note it in the store, before an erasure counts as made. Raises StoreUnavailableError."""
        if self._space is not None:
            await self._space.note(collections)

    async def resume(self) -> None:
        """Rewrite later what an earlier run left to rewrite. Raises StoreUnavailableError."""
        if self._space is not None:
            self.rewrite_later(await self._space.noted())

    async def rewrite(self, collections: Collection[str]) -> FileSearch:
        """Rewrite now. Never raises StoreUnavailableError: a failure is part of the result."""
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
        """Rewrite once, when no erasure has come for a few seconds."""
        if self._space is None or not collections:
            return FileSearch()
        self._due.update(collections)
        self._asked_at = asyncio.get_running_loop().time()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="rewrite store files")
        return FileSearch((Searched(PLACE, 0, 0),), (Left(PLACE, 0, _LATER),))

    async def close(self) -> None:
        """Rewrite what is due at once, if it takes less than `STOP_S`; else it is left to the next start. To
        be called before the store closes."""
        self._hurry.set()
        self._stop_at = asyncio.get_running_loop().time() + STOP_S
        if self._limit is not None:
            self._limit.reschedule(self._stop_at)
        if self._task is not None:
            await asyncio.wait([self._task])
        async with self._one_at_a_time:  # that of a request
            pass

    async def _run(self) -> None:
        while self._due:
            await self._quiet()
            if (await self.rewrite(())).failed:
                return

    async def _quiet(self) -> None:
        now = asyncio.get_running_loop().time
        latest = now() + MAX_WAIT_S
        while (wait_s := min(self._asked_at + self._quiet_s, latest) - now()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), wait_s)
                return

    async def _rewrite(self, space: Rewriting) -> int:
        """Rewrite what is due. Returns the number of collections."""
        async with self._one_at_a_time:
            due = sorted(self._due)
            self._due.clear()
            try:
                async with asyncio.timeout_at(self._stop_at) as self._limit:
                    reclaimed = await space.rewrite(due) if due else None
            except BaseException as error:
                self._due.update(due)
                if isinstance(error, TimeoutError):
                    raise StoreUnavailableError(_STOPPING) from None
                raise
            finally:
                self._limit = None
            return 0 if reclaimed is None else len(due)


def touched(done: Counter[str] | None, names: StoreSettings) -> frozenset[str]:
    """Return the collections in which something was deleted or changed, judging by the counts; all of them
    if these are unknown."""
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
    counted = of if done is None else [what for what, number in done.items() if number]
    return frozenset(name for what in counted for name in of.get(what, ()))
