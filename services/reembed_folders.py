"""The folders of an embedded store that is replaced by a copy: each step a rename, none loses anything.

`store` is the store, `store.reembed` the copy while it is made, `store.before-<UTC time>` the old store.
A complete copy says, in a file of its own, what the old store will be called: so the next run can tell a
copy that was about to take its place from one that was never finished.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from core.errors import StartRefusedError, StoreLockedError

COPY_SUFFIX = ".reembed"
LOCK_FILE = "lock"  # the embedded store's own
_COMPLETE_FILE = "complete"
# A server that starts waits a second for the lock, and then holds the old folder's: it must give up first.
_START_WAIT_S = 1.2


@dataclass(frozen=True, slots=True)
class StoreFolders:
    store: Path

    @property
    def copy(self) -> Path:
        return self.store.with_name(self.store.name + COPY_SUFFIX)

    def finish_interrupted(self) -> Path | None:
        """Put a complete copy in place when an earlier run ended between its two renames.

        Returns where the old store is, None when there was nothing to finish. Raises StartRefusedError
        when a server made a new store in the meantime.
        """
        before = self._promised()
        if before is None or not before.is_dir():
            return None
        if self.store.exists():
            raise StartRefusedError(
                f"{self.copy} was about to take the place of {self.store} when a start made a new one there; "
                f"move {self.store} away and run this again"
            )
        self._put_in_place()
        return before

    def exists(self) -> bool:
        return self.store.is_dir()

    def others(self, known: Collection[str]) -> list[str]:
        """Collections in the store that none of the settings names."""
        names = [entry.name for entry in self.store.iterdir() if entry.is_dir() and "." not in entry.name]
        return sorted(set(names) - set(known))

    def discard_copy(self) -> bool:
        """Remove what an interrupted run left; the caller has the store locked. False when there was none."""
        if not self.copy.exists():
            return False
        shutil.rmtree(self.copy)
        return True

    def replace(self) -> Path:
        """The complete, closed copy takes the store's place. Returns where the old store is.

        Raises StoreLockedError when a server has opened the store; nothing is changed then.
        """
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        before = self.store.with_name(f"{self.store.name}.before-{moment}")
        with _locked(self.store):
            _write_durably(self.copy / _COMPLETE_FILE, before.name)
            self.store.rename(before)
            _sync(self.store.parent)
            self._put_in_place()
            time.sleep(_START_WAIT_S)
        return before

    def _put_in_place(self) -> None:
        self.copy.rename(self.store)
        _sync(self.store.parent)
        (self.store / _COMPLETE_FILE).unlink()

    def _promised(self) -> Path | None:
        try:
            name = (self.copy / _COMPLETE_FILE).read_text(encoding="ascii")
        except FileNotFoundError:
            return None
        return self.store.with_name(name) if name else None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StoreLockedError(
            f"another process has opened {folder}, which was about to be replaced; nothing was changed: "
            f"stop it and run this again"
        ) from None
    finally:
        os.close(descriptor)


def _write_durably(path: Path, text: str) -> None:
    with path.open("w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    _sync(path.parent)


def _sync(folder: Path) -> None:
    """Make what happened to the folder's entries durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
