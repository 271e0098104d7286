"""What deletion leaves in the store's files goes when these are written anew: at once, or a little later."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import structlog

from config.settings import StoreSettings
from core.errors import StoreUnavailableError
from core.operations.erasure import Left, Searched
from services.store.dialect import Reclaimed

log = structlog.get_logger()

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
