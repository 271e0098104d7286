"""Whole folders into the knowledge base: the sample that comes with Wenmai, and folders given at start."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from core.errors import WenmaiError
from core.formats import supported_files
from core.knowledge import Addition, JobStage, Upload
from services.knowledge.base import KnowledgeBase

IN_FLIGHT = 4  # the next files are parsed while one is embedded


@dataclass(frozen=True, slots=True)
class Failure:
    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class FolderReport:
    """How many documents are new or changed, and how many were there before; what could not be read, and
    why."""

    added: int
    existing: int
    failed: tuple[Failure, ...]


async def load_folder(
    knowledge_base: KnowledgeBase, folder: Path, owner: str, tags: tuple[str, ...] = ()
) -> FolderReport:
    """Adds file after file, the smallest first; the path below the folder is its external id.

    What a crash cuts is failed afterwards, and read in when the folder is loaded again.
    """
    loading = _Loading(knowledge_base, folder, owner, tags)
    for path in await asyncio.to_thread(_small_first, folder):
        await loading.add(path)
    return await loading.report()


class _Loading:
    def __init__(
        self, knowledge_base: KnowledgeBase, folder: Path, owner: str, tags: tuple[str, ...]
    ) -> None:
        self._knowledge_base = knowledge_base
        self._folder = folder
        self._owner = owner
        self._tags = tags
        self._running: deque[tuple[str, Addition]] = deque()
        self._added = self._existing = 0
        self._failed: list[Failure] = []

    async def add(self, path: Path) -> None:
        name = path.relative_to(self._folder).as_posix()
        try:
            content = await asyncio.to_thread(path.read_bytes)
            upload = Upload(self._owner, path.name, content, name, self._tags, comes_again=True)
            self._running.append((name, await self._knowledge_base.add(upload)))
        except (WenmaiError, OSError) as error:
            self._failed.append(Failure(name, str(error)))
        if len(self._running) > IN_FLIGHT:
            await self._follow(*self._running.popleft())

    async def report(self) -> FolderReport:
        while self._running:
            await self._follow(*self._running.popleft())
        return FolderReport(self._added, self._existing, tuple(self._failed))

    async def _follow(self, name: str, addition: Addition) -> None:
        if addition.job_id is not None:
            outcome = await self._knowledge_base.wait(addition.job_id, [self._owner])
            if outcome.stage is not JobStage.DONE:
                reason = outcome.error or "The document was removed while it was read in."
                self._failed.append(Failure(name, reason))
                return
        self._added += not addition.existing
        self._existing += addition.existing


def _small_first(folder: Path) -> list[Path]:
    """So that much can be asked about soon, in every language a folder has."""
    return sorted(supported_files(folder), key=lambda path: path.stat().st_size)
