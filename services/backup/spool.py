"""Where a collection's points wait while the store is copied; what changed meanwhile takes their place.

The files have no name: whatever happens, nothing of them stays on the disk.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from core.archive import LENGTH, PointId, PointRecord
from core.errors import DiskFullError
from services.backup.records import bodies, framed, id_of


class CollectionSpool:
    """Blocking. A later state of a point hides its earlier ones; `frames` gives what is left."""

    def __init__(self, folder: Path) -> None:
        self._copied = _nameless(folder)
        self._changed = _nameless(folder)
        self._latest: dict[PointId, int | None] = {}  # where in `_changed`; None: it is gone

    def copied(self, records: Iterable[PointRecord]) -> None:
        self._copied.writelines(map(framed, records))

    def changed(self, records: Iterable[PointRecord], gone: Iterable[PointId]) -> None:
        """In the order of time."""
        for record in records:
            self._latest[record.id] = self._changed.tell()
            self._changed.write(framed(record))
        self._latest.update(dict.fromkeys(gone))

    def frames(self) -> Iterator[bytes]:
        """Each point once, as it was last, framed."""
        self._copied.seek(0)
        for body in bodies(self._copied):
            if id_of(body) not in self._latest:
                yield LENGTH.pack(len(body)) + body
        for place in self._latest.values():
            if place is not None:
                self._changed.seek(place)
                body = next(bodies(self._changed))
                yield LENGTH.pack(len(body)) + body

    def close(self) -> None:
        self._copied.close()
        self._changed.close()


def _nameless(folder: Path) -> BinaryIO:
    return cast(BinaryIO, tempfile.TemporaryFile(dir=folder))


def check_room(folder: Path, needed_bytes: int, reserve_bytes: int) -> None:
    """Raises DiskFullError when less than the reserve would be left."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes - needed_bytes < reserve_bytes:
        raise DiskFullError(
            f"there is not enough room for a backup: {free_bytes >> 20} MB are free, up to "
            f"{(needed_bytes >> 20) + 1} MB are needed, and {reserve_bytes >> 20} MB are kept free"
        )
