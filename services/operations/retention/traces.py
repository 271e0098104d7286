"""Traces of a turn outside its own point: summaries, rewritten questions and memories derived from it, the
title of its session, the question log, its images, and the undo files of repairs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from services.conversation.images import FOLDER, ImageFiles
from services.conversation.sessions import SessionStore
from services.conversation.turns import TurnStore
from services.memory.records import MemoryRecords
from services.operations.qa_log import QALog
from services.store.dialect import Filter
from services.store.points import has_id

ForgetSummaries = Callable[[str, str | None, Collection[str]], Awaitable[int]]
ForgetRewordings = Callable[[str, Collection[str]], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class ErasedTraces:
    """How many summaries, memories, question log lines and rewritten questions were erased; `images` counts
    turns."""

    summaries: int = 0
    memories: int = 0
    log_lines: int = 0
    rewordings: int = 0
    images: int = 0

    def __add__(self, other: ErasedTraces) -> ErasedTraces:
        return ErasedTraces(
            self.summaries + other.summaries,
            self.memories + other.memories,
            self.log_lines + other.log_lines,
            self.rewordings + other.rewordings,
            self.images + other.images,
        )


class TurnTraces:
    """`forget_summaries` takes session, owner (None: any) and turns, `forget_rewordings` session and turns;
    `qa_log` is None when it is off, `data_dir` where there are neither images nor undo files. With
    `memories_outlive` the memories of expired turns stay."""

    def __init__(
        self,
        forget_summaries: ForgetSummaries,
        sessions: SessionStore,
        qa_log: QALog | None,
        memories: MemoryRecords | None = None,
        data_dir: Path | None = None,
        forget_rewordings: ForgetRewordings | None = None,
        *,
        memories_outlive: bool = False,
    ) -> None:
        self._forget_summaries = forget_summaries
        self._sessions = sessions
        self._qa_log = qa_log
        self._memories = memories
        self._data_dir = data_dir
        self._images = ImageFiles(data_dir / FOLDER) if data_dir is not None else None
        self._forget_rewordings = forget_rewordings
        self._memories_outlive = memories_outlive

    async def erase(self, turns: Mapping[str, Collection[str]]) -> ErasedTraces:
        """Erase every trace of these turns, given by session. Raises StoreUnavailableError.

        To be called before the turns are deleted: a crash in between leaves turns that can be erased again,
        and no traces of deleted turns.
        """
        stored = await self._erase_stored(turns, memories=True)
        lines = await self.erase_log({turn_id for ids in turns.values() for turn_id in ids}) if turns else 0
        return stored + ErasedTraces(log_lines=lines)

    async def expire_stored(self, turns: Mapping[str, Collection[str]]) -> ErasedTraces:
        """Erase the stored traces of expired turns; memories may outlive them. The question log is left to
        `erase_log`: every call reads it whole, however few the turns."""
        return await self._erase_stored(turns, memories=not self._memories_outlive)

    async def count_aged_memories(self, before_us: int) -> int:
        """Count the memories neither learned nor used since."""
        return 0 if self._memories is None else await self._memories.count_aged(before_us)

    async def expire_memories(self, before_us: int) -> int:
        """Delete memories neither learned nor used since. Returns how many."""
        return 0 if self._memories is None else await self._memories.expire(before_us)

    async def _erase_stored(self, turns: Mapping[str, Collection[str]], *, memories: bool) -> ErasedTraces:
        summaries = forgotten = rewordings = 0
        for session_id, turn_ids in turns.items():
            summaries += await self._forget_summaries(session_id, None, turn_ids)
            rewordings += await self.erase_rewordings(session_id, turn_ids)
            await self._sessions.clear_title_from(session_id, turn_ids)
        if self._memories is not None and turns and memories:
            turn_ids = [turn_id for ids in turns.values() for turn_id in ids]
            forgotten = await self._memories.forget_turns(turn_ids)
        if self._data_dir is not None and turns:
            await delete_undo_files(self._data_dir)
        images = await self.erase_images({turn_id for ids in turns.values() for turn_id in ids})
        return ErasedTraces(summaries, forgotten, rewordings=rewordings, images=images)

    async def erase_images(self, turn_ids: Collection[str]) -> int:
        """Erase the images of these questions. Returns the number of turns. Raises StoreUnavailableError."""
        return await self._images.erase(turn_ids) if self._images is not None and turn_ids else 0

    async def sweep_images(self, turns: TurnStore, min_age_s: float) -> int:
        """Delete images that a crash left before their turn was stored. Returns the number of turns."""

        async def existing(turn_ids: Collection[str]) -> list[str]:
            records = turns.scroll(Filter(must=[has_id(list(turn_ids))]), with_payload=False)
            return [str(record.id) async for record in records]

        return await self._images.sweep(existing, time.time() - min_age_s) if self._images else 0

    async def erase_rewordings(self, session_id: str, turn_ids: Collection[str]) -> int:
        """Erase other turns' rewritten questions that contain words of these turns. Returns how many."""
        return 0 if self._forget_rewordings is None else await self._forget_rewordings(session_id, turn_ids)

    async def erase_log(self, turn_ids: Collection[str]) -> int:
        """Erase these turns' lines of the question log. Returns how many."""
        return 0 if self._qa_log is None else await self._qa_log.erase(turn_ids)

    async def expire_log(self, before_us: int, held: Collection[str]) -> int:
        """Erase the log lines of all turns that began before, even of turns that are already deleted; those
        of `held` sessions stay. Returns how many."""
        return 0 if self._qa_log is None else await self._qa_log.expire(before_us, held)

    async def erase_session(self, session_id: str, turn_ids: Collection[str]) -> ErasedTraces:
        """Erase the traces of a whole session, including the log lines of turns that are already deleted."""
        summaries = await self._forget_summaries(session_id, None, turn_ids)
        memories = 0
        if self._memories is not None and turn_ids:
            memories = await self._memories.forget_turns(turn_ids)
        if self._data_dir is not None:
            await delete_undo_files(self._data_dir)
        lines = 0 if self._qa_log is None else await self._qa_log.erase_session(session_id)
        return ErasedTraces(summaries, memories, lines, images=await self.erase_images(turn_ids))


log = structlog.get_logger()

# Undo files of repairs by earlier versions; nothing reads them any more.


PATTERNS = "backfill-undo-*.jsonl", ".backfill-undo-rewriting"


async def delete_undo_files(folder: Path) -> None:
    """Delete all undo files in DATA_DIR: they contain texts of turns. Raises OSError."""
    deleted = await asyncio.to_thread(_delete, folder)
    if deleted:
        log.info(
            "undo_files_deleted", files=deleted, why="earlier versions wrote them; they are no longer used"
        )


def _delete(folder: Path) -> int:
    files = [path for pattern in PATTERNS for path in folder.glob(pattern)]
    for path in files:
        path.unlink(missing_ok=True)
    return len(files)
