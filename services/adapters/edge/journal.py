"""What was accepted and may not be in the engine's own files yet, and what every collection must hold. Runs
in the store process only.

The engine flushes its log together with everything else, so a cut of power would take what came since. Each
change is therefore written here first and is on the disk before it is made; a flush of the engine empties
the journal, and a start replays it. Since nothing is made that is not written here, a start knows which
points must be there, whatever killed the process: those of the last flush, and what the changes made of them.
SQLite has solved torn writes, checksums and ordering.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from services.adapters.edge.wire import PointId
from services.store.durable import sync_folder

FILE = "journal.db"
MARKER = f"{FILE}.made"
"""Beside it, so that a start misses a journal that was removed."""
ASIDE = ".damaged"
MOST_BYTES = 32 << 20
"""A start replays at most this; a store that is never idle flushes its engine when it is reached."""
_SETTINGS = ("journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=0", "secure_delete=ON")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS change (number INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS member (name TEXT PRIMARY KEY, spec BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS point (
    collection TEXT NOT NULL, id BLOB NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (collection, id)
) WITHOUT ROWID;
"""
_MOST_VARIABLES = 10_000

Checksums = Mapping[PointId, int | None]
"""Of points by id; None for one that was deleted."""


def checksum(payload: Mapping[str, Any] | None) -> int:
    """The same for every order of the keys; of no payload that of an empty one."""
    return zlib.crc32(msgspec.json.encode(payload or {}, order="sorted"))


class Journal:
    """Changes are requests as they came, but with points named by their ids; `size` is theirs, in bytes.

    `flushes` counts what `commit` has written to the disk. Every method raises sqlite3.Error, OSError.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._noted: list[tuple[int, bytes]] = []
        self.size = 0
        self.flushes = 0
        self._open()

    def _open(self) -> None:
        self._path.touch(0o600)
        self._database = sqlite3.connect(self._path, isolation_level=None)
        for setting in _SETTINGS:
            self._database.execute(f"PRAGMA {setting}")
        self._database.executescript(_SCHEMA)
        (last,) = self._database.execute("SELECT coalesce(max(number), 0) FROM change").fetchone()
        self._next = int(last) + 1
        self._path.with_name(MARKER).touch(0o600)
        sync_folder(self._path.parent)

    def check(self) -> None:
        """Raises sqlite3.DatabaseError when its pages are not as SQLite has written them."""
        (verdict,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)

    # ---- changes --------------------------------------------------------------------------------

    def note(self, change: bytes) -> int:
        """Written by the next `commit`. Returns its number."""
        self._noted.append((self._next, change))
        self._next += 1
        return self._next - 1

    def commit(self) -> None:
        """All that was noted is on the disk when this returns; when it raises, nothing of it is."""
        noted, self._noted = self._noted, []
        if not noted:
            return
        with self._database as transaction:
            transaction.execute("BEGIN")
            transaction.executemany("INSERT INTO change VALUES (?, ?)", noted)
        self.flushes += 1
        self.size += sum(len(change) for _, change in noted)

    def take_back(self, number: int) -> None:
        """It could not be made; when this cannot be written, a start tries it again."""
        with suppress(sqlite3.Error):
            self._database.execute("DELETE FROM change WHERE number = ?", (number,))

    def changes(self) -> list[bytes]:
        """In the order in which they were answered."""
        return [body for (body,) in self._database.execute("SELECT body FROM change ORDER BY number")]

    def empty(self, changed: Mapping[str, Checksums]) -> None:
        """The engine has flushed: all is in its files, these points as they are now."""
        known = self.members()
        with self._database as transaction:
            transaction.execute("BEGIN")
            transaction.execute("DELETE FROM change")
            for name in changed.keys() & known.keys():
                self._write(name, changed[name])
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.size = 0

    def _write(self, name: str, points: Checksums) -> None:
        deleted = [(name, _key(point_id)) for point_id, value in points.items() if value is None]
        written = [(name, _key(point_id), value) for point_id, value in points.items() if value is not None]
        self._database.executemany("DELETE FROM point WHERE collection = ? AND id = ?", deleted)
        self._database.executemany("INSERT OR REPLACE INTO point VALUES (?, ?, ?)", written)

    # ---- collections ----------------------------------------------------------------------------

    def expect(self, name: str, spec: bytes, points: Checksums) -> None:
        """From now on the collection must be in the folder, with these points and no others."""
        with self._database as transaction:
            transaction.execute("BEGIN")
            transaction.execute("INSERT OR REPLACE INTO member VALUES (?, ?)", (name, spec))
            transaction.execute("DELETE FROM point WHERE collection = ?", (name,))
            self._write(name, points)

    def expect_no_more(self, name: str) -> None:
        """A collection is about to go, and the journal is empty."""
        with self._database as transaction:
            transaction.execute("BEGIN")
            transaction.execute("DELETE FROM member WHERE name = ?", (name,))
            transaction.execute("DELETE FROM point WHERE collection = ?", (name,))

    def members(self) -> dict[str, bytes]:
        """The specs of the collections that must be in the folder, by name."""
        return dict(self._database.execute("SELECT name, spec FROM member"))

    def ids(self, name: str) -> set[PointId]:
        """Of the points that the collection had at the last flush."""
        rows = self._database.execute("SELECT id FROM point WHERE collection = ?", (name,))
        return {_point_id(key) for (key,) in rows}

    def checksums(self, name: str, ids: Iterable[PointId]) -> dict[PointId, int]:
        """Of those that the collection had at the last flush."""
        keys = [_key(point_id) for point_id in ids]
        stored: dict[PointId, int] = {}
        for at in range(0, len(keys), _MOST_VARIABLES):
            some = keys[at : at + _MOST_VARIABLES]
            marks = ",".join("?" * len(some))
            query = f"SELECT id, checksum FROM point WHERE collection = ? AND id IN ({marks})"  # noqa: S608
            rows = self._database.execute(query, (name, *some))
            stored |= {_point_id(key): value for key, value in rows}
        return stored

    def renew(self) -> None:
        """A new one in its place, when it cannot be emptied: a full disk has room for less. It knows no
        collection, so that the next start takes them as they are."""
        self.close()
        remove(self._path.parent)
        self._open()

    def close(self) -> None:
        self._database.close()


def _key(point_id: PointId) -> int | bytes:
    """As it is stored: a UUID takes 16 bytes instead of 36."""
    return point_id if isinstance(point_id, int) else bytes.fromhex(point_id.replace("-", ""))


def _point_id(key: int | bytes) -> PointId:
    if isinstance(key, int):
        return key
    text = key.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_missed(folder: Path) -> bool:
    """There was one, and it is not there."""
    return (folder / MARKER).exists() and not (folder / FILE).exists()


def put_aside(folder: Path) -> None:
    for path in folder.glob(f"{FILE}*"):
        if not path.name.endswith(ASIDE):
            path.replace(path.with_name(path.name + ASIDE))


def remove(folder: Path) -> None:
    """For a store that is opened without one: an old one would say what is no longer so."""
    for path in folder.glob(f"{FILE}*"):
        if not path.name.endswith(ASIDE):
            path.unlink()


# What the collections must hold now: as at the last flush, and what was changed since.

# Instead of a checksum: a part of it was changed, or it may be there or not; the engine is asked when it has
# flushed.
_CHANGED, _UNSURE = -1, -2


class Expected:
    """`journal` None: nobody knows, and whatever is read is taken for right."""

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal
        self._since: dict[str, dict[PointId, int | None]] = {}

    def wrote(self, name: str, payloads: Iterable[tuple[PointId, Mapping[str, Any] | None]]) -> None:
        self._note(name, ((point_id, checksum(payload)) for point_id, payload in payloads))

    def changed(self, name: str, ids: Iterable[PointId]) -> None:
        self._note(name, ((point_id, _CHANGED) for point_id in ids))

    def unsure(self, name: str, ids: Iterable[PointId]) -> None:
        """A change of them was refused by the engine."""
        self._note(name, ((point_id, _UNSURE) for point_id in ids))

    def deleted(self, name: str, ids: Iterable[PointId]) -> None:
        self._note(name, ((point_id, None) for point_id in ids))

    def _note(self, name: str, points: Iterable[tuple[PointId, int | None]]) -> None:
        if self._journal is not None:
            self._since.setdefault(name, {}).update(points)

    def ids(self, name: str) -> set[PointId]:
        """That the collection must have."""
        assert self._journal is not None
        since = self._since.get(name, {})
        deleted = {point_id for point_id, value in since.items() if value is None}
        written = {point_id for point_id, value in since.items() if value not in (None, _UNSURE)}
        return self._journal.ids(name) - deleted | written

    def damaged(self, name: str, payloads: Mapping[PointId, Mapping[str, Any] | None]) -> set[PointId]:
        """Those of which another payload was written."""
        if self._journal is None:
            return set()
        since = self._since.get(name, {})
        known = self._journal.checksums(name, payloads.keys() - since.keys())
        known |= {
            point_id: value
            for point_id in payloads.keys() & since.keys()
            if (value := since[point_id]) is not None and value >= 0
        }
        return {point_id for point_id, value in known.items() if checksum(payloads[point_id]) != value}

    def settle(
        self, read: Callable[[str, list[PointId]], Mapping[PointId, Mapping[str, Any] | None]]
    ) -> None:
        """The engine has flushed; `read` gives the payloads of those that are there. The journal is empty
        then. Raises sqlite3.Error, OSError."""
        assert self._journal is not None
        for name, since in self._since.items():
            changed = [point_id for point_id, value in since.items() if value in (_CHANGED, _UNSURE)]
            payloads = read(name, changed) if changed else {}
            since.update(dict.fromkeys(changed))
            since.update({point_id: checksum(payload) for point_id, payload in payloads.items()})
        self._journal.empty(self._since)
        self._since.clear()

    def forget(self) -> None:
        self._since.clear()
