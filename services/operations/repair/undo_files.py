"""The files with which earlier versions undid a repair: nothing reads them any more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

log = structlog.get_logger()

PATTERNS = "backfill-undo-*.jsonl", ".backfill-undo-rewriting"


async def delete_undo_files(folder: Path) -> None:
    """They lie in DATA_DIR and hold texts of turns, so the first erasure deletes them all. Raises OSError."""
    deleted = await asyncio.to_thread(_delete, folder)
    if deleted:
        log.info("undo_files_deleted", files=deleted, why="earlier versions wrote them, and none is read")


def _delete(folder: Path) -> int:
    files = [path for pattern in PATTERNS for path in folder.glob(pattern)]
    for path in files:
        path.unlink(missing_ok=True)
    return len(files)
