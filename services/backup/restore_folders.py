"""The folders of an embedded store that is filled from elsewhere: made beside it, it takes its name whole.

`store.restoring` is being filled, `store.restored` is whole and about to take the place of `store`,
`store.emptied` is the empty store that stood there. A start must not pass over the first two.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from core.errors import StartRefusedError, StoreLockedError
from core.failpoints import failpoint

LOCK_FILE = "lock"  # the embedded store's own


@dataclass(frozen=True, slots=True)
class RestoreFolders:
    store: Path

    @property
    def unfinished(self) -> Path:
        return self._beside(".restoring")

    @property
    def whole(self) -> Path:
        return self._beside(".restored")

    @property
    def _emptied(self) -> Path:
        return self._beside(".emptied")

    def _beside(self, suffix: str) -> Path:
        return self.store.with_name(self.store.name + suffix)

    def refuse_interrupted(self) -> None:
        """For a start: an empty store would be made, and what was restored would be missing unseen.

        Raises StartRefusedError.
        """
        for folder in (self.whole, self.unfinished):
            if folder.exists():
                raise StartRefusedError(
                    f"a restore or a move into {self.store} was interrupted: run it again to finish it, or "
                    f"delete {folder} to give it up"
                )

    def finish_interrupted(self) -> bool:
        """Put a whole copy in place when an earlier run ended before it had done so; False: there is none."""
        if not self.whole.exists():
            return False
        self._put_in_place()
        return True

    def discard_unfinished(self) -> bool:
        """False when there was none."""
        shutil.rmtree(self._emptied, ignore_errors=True)
        if not self.unfinished.exists():
            return False
        shutil.rmtree(self.unfinished)
        return True

    def replace(self) -> None:
        """The filled, closed copy takes the store's place, which was found empty. Raises StoreLockedError."""
        self.unfinished.rename(self.whole)
        _sync(self.store.parent)
        failpoint("restore.renamed")
        self._put_in_place()

    def _put_in_place(self) -> None:
        shutil.rmtree(self._emptied, ignore_errors=True)
        if self.store.exists():
            with _locked(self.store):
                self.store.rename(self._emptied)
                failpoint("restore.emptied")
        self.whole.rename(self.store)
        _sync(self.store.parent)
        shutil.rmtree(self._emptied, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StoreLockedError(f"another process has opened {folder}: stop it and run this again") from None
    finally:
        os.close(descriptor)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
