"""A whole folder into the knowledge base: the sample that comes with Wenmai."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path

from core.errors import WenmaiError
from core.formats import supported_files
from core.knowledge import JobStage, Upload
from services.knowledge.base import KnowledgeBase

IN_FLIGHT = 4  # the next files are parsed while one is embedded


async def load_folder(knowledge_base: KnowledgeBase, folder: Path, owner: str) -> dict[str, str]:
    """Adds file after file; the path below the folder is its external id. Returns what could not be read, by
    that path, and why.

    What a crash cuts is failed afterwards, and read in when the folder is loaded again.
    """
    running: deque[tuple[str, str]] = deque()
    failed: dict[str, str] = {}

    async def follow_next() -> None:
        name, job_id = running.popleft()
        outcome = await knowledge_base.wait(job_id, [owner])
        if outcome.stage is not JobStage.DONE:
            failed[name] = outcome.error or "The document was removed while it was read in."

    for path in await asyncio.to_thread(_small_first, folder):
        name = path.relative_to(folder).as_posix()
        try:
            content = await asyncio.to_thread(path.read_bytes)
            addition = await knowledge_base.add(
                Upload(owner, path.name, content, name, tags=(), comes_again=True)
            )
        except (WenmaiError, OSError) as error:
            failed[name] = str(error)
            continue
        if addition.job_id is not None:
            running.append((name, addition.job_id))
        if len(running) > IN_FLIGHT:
            await follow_next()
    while running:
        await follow_next()
    return failed


def _small_first(folder: Path) -> list[Path]:
    """So that much can be asked about soon, in every language a folder has."""
    return sorted(supported_files(folder), key=lambda path: path.stat().st_size)
