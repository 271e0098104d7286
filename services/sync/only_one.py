"""One sync at a time among all processes that share a data folder."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from core.errors import ConflictError, UnavailableError
from services.store.durable import try_lock

LOCK_NAME = "sync.lock"


class SyncLock:
    """A lock on a file, let go of by the system when its process ends in whatever way."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / LOCK_NAME
        self._descriptor: int | None = None

    def take(self) -> None:
        """Never waits. Raises ConflictError saying who holds it, UnavailableError."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise UnavailableError(f"{LOCK_NAME} cannot be written: {error.strerror}.") from error
        if not try_lock(descriptor):
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise ConflictError(f"The folders are being synced by another process ({holder}).")
        os.ftruncate(descriptor, 0)
        began = datetime.now(UTC).isoformat(timespec="seconds")
        os.pwrite(descriptor, f"process {os.getpid()}, since {began}\n".encode(), 0)
        self._descriptor = descriptor

    def let_go(self) -> None:
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None
