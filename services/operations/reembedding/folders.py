"""The folders of an embedded store that is replaced by a copy: each step a rename, none loses anything.

`store` is the store, `store.reembed` the copy while it is made, `store.before-<UTC time>` a store that was
replaced. A copy that was complete once says so in a file of its own; one that is about to take the store's
place says what the old store will be called, so that the next start can finish what was interrupted.
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
SPEC_FILE = "collection.json"  # the embedded store's own, one in each collection's folder
_COMPLETE_FILE = "complete"
_PREPARED_FILE = "prepared"
# A server that starts waits a second for the lock, and then holds the old folder's: it must give up first.
_START_WAIT_S = 1.2


class _Dense(msgspec.Struct, array_like=True, frozen=True):
    size: int


class _Spec(msgspec.Struct, array_like=True, frozen=True):
    """What a collection's folder says of it, as far as it is asked for here; as our engine writes it."""

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
        """Stores that were replaced, the newest first. They hold what was deleted since, too."""
        folders = self.store.parent.glob(f"{self.store.name}{BEFORE}*")
        return sorted((folder for folder in folders if folder.is_dir()), reverse=True)

    def fits(self, names: StoreSettings, expected: StoredAs) -> bool:
        """Whether the store is of this embedding, judging by its files; one that is missing fits any."""
        return not self.exists() or _is_of(self.store, names, expected)

    def prepared(self, names: StoreSettings, expected: StoredAs) -> Path | None:
        """A whole copy of this embedding, though maybe of an earlier day: the one that was made for it, else
        the newest of the replaced ones. None when there is none."""
        made = [self.copy] if (self.copy / _PREPARED_FILE).exists() else []
        whole = [folder for folder in [*made, *self.replaced()] if _is_of(folder, names, expected)]
        return whole[0] if whole else None

    def copy_fits(self, names: StoreSettings, expected: StoredAs) -> bool:
        """Whether what an earlier run left can be gone on with."""
        return self.copy.is_dir() and _is_of(self.copy, names, expected)

    def others(self, known: Collection[str]) -> list[str]:
        """Collections in the store that none of the settings names."""
        names = [entry.name for entry in self.store.iterdir() if entry.is_dir() and "." not in entry.name]
        return sorted(set(names) - set(known))

    @property
    def is_interrupted(self) -> bool:
        """Whether an earlier run ended between its two renames."""
        before = self._promised()
        return before is not None and before.is_dir()

    def finish_interrupted(self) -> Path | None:
        """Put a complete copy in place when an earlier run ended between its two renames.

        Returns where the old store is, None when there was nothing to finish. Raises StartRefusedError
        when a server made a new store in the meantime, StoreLockedError when the other run still goes on.
        """
        (self.store / _COMPLETE_FILE).unlink(missing_ok=True)  # it is in place
        before = self._promised()
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
        """Make this whole copy the one that is gone on with; the caller has the store locked.

        Another whole copy in its way is kept as a replaced store is, an unfinished one removed.
        """
        if whole == self.copy:
            return
        if self.copy.exists():
            self._clear_way()
        write_durably(whole / _PREPARED_FILE, b"")
        whole.rename(self.copy)
        sync_folder(self.store.parent)

    def _clear_way(self) -> None:
        if (self.copy / _PREPARED_FILE).exists():
            with store_locked(self.copy, _OPENED):
                self.copy.rename(self._before())
        else:
            self.discard_copy()

    def mark_prepared(self) -> None:
        """The copy, closed or not, has been checked."""
        write_durably(self.copy / _PREPARED_FILE, b"")

    def discard_copy(self) -> bool:
        """Remove the copy; the caller has the store locked. False when there was none.

        Raises StoreLockedError when another process writes to it.
        """
        if not self.copy.exists():
            return False
        with store_locked(self.copy, _OPENED):
            shutil.rmtree(self.copy)
        return True

    def replace(self) -> Path:
        """The complete, closed copy takes the store's place. Returns where the old store is.

        Raises StoreLockedError when a server has opened the store; nothing is changed then.
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
        """A name that is free, and sorts after all others."""
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

    def _promised(self) -> Path | None:
        try:
            name = (self.copy / _COMPLETE_FILE).read_text(encoding="ascii")
        except FileNotFoundError:
            return None
        return self.store.with_name(name) if name else None


def _is_of(folder: Path, names: StoreSettings, expected: StoredAs) -> bool:
    """Every collection with dense vectors that is there, and one at least, is of this embedding."""
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
