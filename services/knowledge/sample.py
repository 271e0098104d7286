"""Whole folders into the knowledge base: the sample that comes with Wenmai, and folders given at start."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from core.errors import WenmaiError
from services.knowledge.formats import is_supported
from services.knowledge.job import JobStage
from services.knowledge.knowledge_base import KnowledgeBase
from services.knowledge.upload import Upload


@dataclass(frozen=True, slots=True)
class Failure:
    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class FolderReport:
    """How many documents are new and how many were there before; what could not be read, and why."""

    added: int
    existing: int
    failed: tuple[Failure, ...]


def supported_files(folder: Path) -> list[Path]:
    """Every file under the folder that can be read, sorted by path; hidden ones and links are left out."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and is_supported(path.name)
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


async def load_folder(
    knowledge_base: KnowledgeBase, folder: Path, owner: str, tags: tuple[str, ...] = ()
) -> FolderReport:
    """Adds file after file and waits for each; the path below the folder is its external id."""
    added = existing = 0
    failed: list[Failure] = []
    for path in await asyncio.to_thread(_small_first, folder):
        name = path.relative_to(folder).as_posix()
        try:
            content = await asyncio.to_thread(path.read_bytes)
            upload = Upload(owner, path.name, content, external_id=name, tags=tags)
            is_new = await _add(knowledge_base, upload)
        except (WenmaiError, OSError) as error:
            failed.append(Failure(name, str(error)))
        else:
            added, existing = added + is_new, existing + (not is_new)
    return FolderReport(added, existing, tuple(failed))


def _small_first(folder: Path) -> list[Path]:
    """So that much can be asked about soon, in every language a folder has."""
    return sorted(supported_files(folder), key=lambda path: path.stat().st_size)


async def _add(knowledge_base: KnowledgeBase, upload: Upload) -> bool:
    """True for a new document. Raises WenmaiError with the reason when its ingestion failed."""
    addition = await knowledge_base.add(upload)
    if addition.job_id is not None:
        outcome = await knowledge_base.wait(addition.job_id, [upload.owner])
        if outcome.stage is not JobStage.DONE:
            raise WenmaiError(outcome.error or "The document was removed while it was read in.")
    return not addition.existing
