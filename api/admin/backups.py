"""Backups that are asked for while the server runs: one at a time, below one folder, listed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from core.errors import UnavailableError
from services.operations.backup.making import BackupReport, Backups
from services.operations.backup.writer import ArchiveListing, BackupRunningError, list_archives


class BackupsHandler:
    """`folder` is where they are written and looked for; no request names another place."""

    def __init__(self, backups: Backups, folder: Path) -> None:
        self._backups = backups
        self.folder = folder
        self._running = asyncio.Lock()

    async def create(self, keep: int | None = None, *, reason: str = "request") -> BackupReport:
        """With `keep` older archives are deleted afterwards; `reason` is "request", "command" or "clean-up".

        Raises BackupRunningError, DiskFullError, UnavailableError kinds.
        """
        if self._running.locked():
            raise BackupRunningError("A backup is being made; there is only one at a time.")
        async with self._running:
            try:
                return await self._backups.create(self.folder, reason, keep=keep)
            except OSError as error:
                raise UnavailableError(f"BACKUP_DIR cannot be used: {error.strerror or error}") from error

    async def create_before(self, reason: str) -> str:
        """What is about to be changed or deleted can be put back. Returns the archive's name; raises as
        `create`."""
        return (await self.create(reason=reason)).file

    async def list_all(self) -> list[ArchiveListing]:
        """Newest first; looked at quickly: list of contents and manifest, not the contents."""
        return await asyncio.to_thread(list_archives, self.folder)
