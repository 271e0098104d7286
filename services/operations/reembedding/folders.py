"""The folders of an embedded store that is replaced by a copy: each step is a rename, and none loses data.

`store` is the store, `store.reembed` the copy in the making, `store.before-<UTC time>` a replaced store. A
copy that was complete once is marked by a file; in one that is about to replace the store, a file names the
old store's future folder, so that the next start can finish an interrupted switch.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from config.settings import StoreSettings
from core.errors import StartRefusedError
from core.failpoints import failpoint
from services.store.collections import StoredAs, collection_specs, read_stored_as
from services.store.durable import store_locked, sync_folder, write_durably

COPY_SUFFIX = ".reembed"
BEFORE = ".before-"
_OPENED = ", which was about to be replaced; nothing was changed: stop it and run this again"
SPEC_FILE = "collection.json"  # written by the embedded store into each collection's folder
_COMPLETE_FILE = "complete"
_PREPARED_FILE = "prepared"
# A starting server waits a second for the lock, and would then hold the old folder's: it must give up first.
_START_WAIT_S = 1.2


class _Dense(msgspec.Struct, array_like=True, frozen=True):
    size: int


class _Spec(msgspec.Struct, array_like=True, frozen=True):
    """The fields needed here of a collection's file, as our engine writes it."""

    dense: dict[str, _Dense]
    sparse: dict[str, bool]
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StoreFolders:
    store: Path

    @property
    def copy(self) -> Path:
        return self.store.with_name(self.store.name + COPY_SUFFIX)

    def exists(self) -> bool:
        return self.store.is_dir()

    def replaced(self) -> list[Path]:
        """Return replaced stores, newest first. They still hold what was deleted since."""
        folders = self.store.parent.glob(f"{self.store.name}{BEFORE}*")
        return sorted((folder for folder in folders if folder.is_dir()), reverse=True)

    def fits(self, names: StoreSettings, expected: StoredAs) -> bool:
        """Whether the store is of this embedding, judging by its files; a missing store fits any."""
        return not self.exists() or _is_of(self.store, names, expected)

    def prepared(self, names: StoreSettings, expected: StoredAs) -> Path | None:
        """Return a complete copy of this embedding, perhaps out of date: the one made for it, else the newest
        of the replaced stores. None if there is none."""
        made = [self.copy] if self.is_prepared else []
        whole = [folder for folder in [*made, *self.replaced()] if _is_of(folder, names, expected)]
        return whole[0] if whole else None

    @property
    def is_prepared(self) -> bool:
        """Whether there is a copy that was complete once."""
        return (self.copy / _PREPARED_FILE).exists()

    def copied_as(self, names: StoreSettings) -> StoredAs | None:
        """Return the embedding of the copy, complete or not; None if there is no copy that can be read."""
        specs = [_spec(self.copy / spec.name) for spec in collection_specs(names) if spec.dense]
        return next((read_stored_as(spec.metadata) for spec in specs if spec is not None), None)

    def copy_fits(self, names: StoreSettings, expected: StoredAs) -> bool:
        """Whether a copy left by an earlier run can be continued."""
        return self.copy.is_dir() and _is_of(self.copy, names, expected)

    def others(self, known: Collection[str]) -> list[str]:
        """Return the collections in the store that no setting names."""
        names = [entry.name for entry in self.store.iterdir() if entry.is_dir() and "." not in entry.name]
        return sorted(set(names) - set(known))

    @property
    def is_interrupted(self) -> bool:
        """Whether an earlier run ended between its two renames."""
        before = self._future_name()
        return before is not None and before.is_dir()

    def finish_interrupted(self) -> Path | None:
        """Put a complete copy in place if an earlier run ended between its two renames.

        Returns the old store's folder, None if there was nothing to finish. Raises StartRefusedError if a
        server created a new store in the meantime, StoreLockedError if the other run is still running.
        """
        (self.store / _COMPLETE_FILE).unlink(missing_ok=True)  # already in place
        before = self._future_name()
        if before is None or not before.is_dir():
            return None
        if self.store.exists():
            raise StartRefusedError(
                f"{self.copy} was about to take the place of {self.store} when a start made a new one there; "
                f"move {self.store} away and run this again"
            )
        with store_locked(before, _OPENED):
            self._put_in_place()
        return before

    def take_over(self, whole: Path) -> None:
        """Make this complete copy the one to continue; the caller has the store locked.

        Another complete copy in its place is kept like a replaced store; an unfinished one is removed.
        """
        if whole == self.copy:
            return
        if self.copy.exists():
            self._clear_way()
        write_durably(whole / _PREPARED_FILE, b"")
        whole.rename(self.copy)
        sync_folder(self.store.parent)

    def _clear_way(self) -> None:
        if self.is_prepared:
            with store_locked(self.copy, _OPENED):
                self.copy.rename(self._before())
        else:
            self.discard_copy()

    def mark_prepared(self) -> None:
        """Mark the copy, closed or not, as checked."""
        write_durably(self.copy / _PREPARED_FILE, b"")

    def discard_copy(self) -> bool:
        """Remove the copy; the caller has the store locked. False if there was none.

        Raises StoreLockedError if another process writes to it.
        """
        if not self.copy.exists():
            return False
        with store_locked(self.copy, _OPENED):
            shutil.rmtree(self.copy)
        return True

    def replace(self) -> Path:
        """Replace the store by the complete, closed copy. Returns the old store's new folder.

        Raises StoreLockedError if a server has opened the store; nothing is changed then.
        """
        before = self._before()
        with store_locked(self.store, _OPENED):
            (self.store / _COMPLETE_FILE).unlink(missing_ok=True)
            write_durably(self.copy / _COMPLETE_FILE, before.name.encode())
            failpoint("reembed.switch")
            self.store.rename(before)
            sync_folder(self.store.parent)
            failpoint("reembed.switch")
            self._put_in_place()
            time.sleep(_START_WAIT_S)
        return before

    def _before(self) -> Path:
        """Return a free name that sorts after all others."""
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        for number in range(1_000):
            name = f"{self.store.name}{BEFORE}{moment}{number:03}Z"
            if not (path := self.store.with_name(name)).exists():
                return path
        raise StartRefusedError(f"there are too many folders like {path}: delete those that are not needed")

    def _put_in_place(self) -> None:
        self.copy.rename(self.store)
        sync_folder(self.store.parent)
        failpoint("reembed.switch")
        for name in (_COMPLETE_FILE, _PREPARED_FILE):
            (self.store / name).unlink(missing_ok=True)

    def _future_name(self) -> Path | None:
        try:
            name = (self.copy / _COMPLETE_FILE).read_text(encoding="ascii")
        except FileNotFoundError:
            return None
        return self.store.with_name(name) if name else None


def _is_of(folder: Path, names: StoreSettings, expected: StoredAs) -> bool:
    """Whether all existing collections with dense vectors, and at least one, are of this embedding."""
    dense = [spec for spec in collection_specs(names) if spec.dense and (folder / spec.name).is_dir()]
    return bool(dense) and all(_fits(_spec(folder / spec.name), spec.dense, expected) for spec in dense)


def _fits(spec: _Spec | None, dense: tuple[str, ...], expected: StoredAs) -> bool:
    if spec is None or read_stored_as(spec.metadata) != expected:
        return False
    return all(name in spec.dense and spec.dense[name].size == expected.dimension for name in dense)


def _spec(folder: Path) -> _Spec | None:
    try:
        return msgspec.json.decode((folder / SPEC_FILE).read_bytes(), type=_Spec)
    except (OSError, msgspec.DecodeError):
        return None
