"""What was accepted and may not be in the engine's own files yet, and what every collection must hold. Runs
in the store process only.

The engine flushes its log together with everything else, so a cut of power would take what came since. Each
change is therefore written here first and is on the disk before it is made; a flush of the engine empties
the journal, and a start replays it. Since nothing is made that is not written here, a start knows which
points must be there, whatever killed the process: those of the last flush, and what the changes made of them.
SQLite has solved torn writes, checksums and ordering.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from services.adapters.edge.wire import PointId, Vectors
from services.store.durable import sync_folder

FILE = "journal.db"
MARKER = f"{FILE}.made"
"""Beside it, so that a start misses a journal that was removed."""
LAST = f"{FILE}.last"
"""The number of the last change that was committed. SQLite takes a damaged end of its log for one that was
never written; what comes before it would be replayed over what came behind. It is written after the commit
and never flushed: a kill leaves it as it is, and a cut of power at most as an earlier one."""
_LAST_BYTES = 8
ASIDE = ".damaged"
MOST_BYTES = 32 << 20
"""A start replays at most this; a store that is never idle flushes its engine when it is reached."""
_SETTINGS = ("journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=0", "secure_delete=ON")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS change (number INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS member (name TEXT PRIMARY KEY, spec BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS point (
    collection TEXT NOT NULL, id BLOB NOT NULL, checksum INTEGER NOT NULL, vectors INTEGER,
    PRIMARY KEY (collection, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS emptied (last INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS unread ON point (collection) WHERE vectors IS NULL;
"""
_WITHOUT_VECTORS = "ALTER TABLE point ADD COLUMN vectors INTEGER"  # what a version before has made
_MOST_VARIABLES = 10_000

Checksums = Mapping[PointId, int | None]
"""Of points by id; None for one that was deleted."""
NOTHING: Mapping[str, Collection[PointId]] = {}


def checksum(payload: Mapping[str, Any] | None) -> int:
    """The same for every order of the keys; of no payload that of an empty one."""
    return zlib.crc32(msgspec.json.encode(payload or {}, order="sorted"))


def vectors_checksum(vectors: Vectors | None) -> int:
    """As they are read back: of many a number the engine keeps half of its bits."""
    value = 0
    for name, vector in sorted((vectors or {}).items()):
        parts = (vector,) if isinstance(vector, bytes) else (vector.indices, vector.values)
        for part in (name.encode(), *parts):
            value = zlib.crc32(part, value)
    return value


class Journal:
    """Changes are requests as they came, but with points named by their ids; `size` is theirs, in bytes.

    `flushes` counts what `commit` has written to the disk. Every method raises sqlite3.Error, OSError.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._noted: list[tuple[int, bytes]] = []
        self._next = 1
        self.size = 0
        self.flushes = 0
        self._failing = False
        self._open()

    def _open(self) -> sqlite3.Connection:
        self._connection: sqlite3.Connection | None = None
        self._path.touch(0o600)
        database = sqlite3.connect(self._path, isolation_level=None)
        try:
            self._prepare(database)
        except (sqlite3.Error, OSError):
            database.close()
            raise
        self._connection = database
        return database

    def _prepare(self, database: sqlite3.Connection) -> None:
        for setting in _SETTINGS:
            database.execute(f"PRAGMA {setting}")
        columns = [name for _, name, *_ in database.execute("PRAGMA table_info(point)")]
        if columns and "vectors" not in columns:
            database.execute(_WITHOUT_VECTORS)
        database.executescript(_SCHEMA)
        query = (
            "SELECT max(n) FROM (SELECT 0 n UNION SELECT number FROM change UNION SELECT last FROM emptied)"
        )
        (last,) = database.execute(query).fetchone()
        self._next = max(self._next, int(last) + 1)
        self._path.with_name(LAST).touch(0o600)
        self._last = self._path.with_name(LAST).open("r+b", buffering=0)
        self._path.with_name(MARKER).touch(0o600)
        sync_folder(self._path.parent)

    @property
    def _database(self) -> sqlite3.Connection:
        """Opened once more when it could not be made anew: the disk may write again."""
        return self._connection or self._open()

    def check(self) -> None:
        """Raises sqlite3.DatabaseError when its pages are not as SQLite has written them, or some are not
        there."""
        (verdict,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        committed = int.from_bytes(os.pread(self._last.fileno(), _LAST_BYTES, 0), "little")
        if committed >= self._next:
            raise sqlite3.DatabaseError(f"the changes {self._next} to {committed} are not there")

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
        self._failing = True
        with self._database as transaction:
            transaction.execute("BEGIN")
            transaction.executemany("INSERT INTO change VALUES (?, ?)", noted)
        os.pwrite(self._last.fileno(), noted[-1][0].to_bytes(_LAST_BYTES, "little"), 0)
        self._failing = False
        self.flushes += 1
        self.size += sum(len(change) for _, change in noted)

    def is_writable(self) -> bool:
        """Whether the last commit reached the disk. If it did not, an empty change is written to find out
        whether the disk has recovered."""
        if self._failing:
            self.note(b"")
            with suppress(sqlite3.Error, OSError):
                self.commit()
        return not self._failing

    def take_back(self, number: int) -> None:
        """It could not be made; when this cannot be written, a start tries it again."""
        with suppress(sqlite3.Error):
            self._database.execute("UPDATE change SET body = x'' WHERE number = ?", (number,))

    def changes(self) -> list[bytes]:
        """In the order in which they were answered."""
        query = "SELECT body FROM change WHERE length(body) > 0 ORDER BY number"
        return [body for (body,) in self._database.execute(query)]

    def empty(
        self, changed: Mapping[str, Checksums], embedded: Mapping[str, Collection[PointId]] = NOTHING
    ) -> None:
        """The engine has flushed: all is in its files, these points as they are now; of those in `embedded`
        the vectors were written, too, and have no checksum yet."""
        known = self.members()
        with self._database as transaction:
            transaction.execute("BEGIN")
            transaction.execute("DELETE FROM change")
            transaction.execute("DELETE FROM emptied")
            transaction.execute("INSERT INTO emptied VALUES (?)", (self._next - 1,))
            for name in changed.keys() & known.keys():
                self._write(name, changed[name])
                self._forget_vectors(name, embedded.get(name, ()))
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.size = 0

    def _write(self, name: str, points: Checksums) -> None:
        deleted = [(name, _key(point_id)) for point_id, value in points.items() if value is None]
        written = [(name, _key(point_id), value) for point_id, value in points.items() if value is not None]
        self._database.executemany("DELETE FROM point WHERE collection = ? AND id = ?", deleted)
        self._database.executemany(
            "INSERT INTO point (collection, id, checksum) VALUES (?, ?, ?)"
            " ON CONFLICT DO UPDATE SET checksum = excluded.checksum",
            written,
        )

    def _forget_vectors(self, name: str, ids: Iterable[PointId]) -> None:
        self._database.executemany(
            "UPDATE point SET vectors = NULL WHERE collection = ? AND id = ?",
            [(name, _key(point_id)) for point_id in ids],
        )

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
        """Of the payloads of those that the collection had at the last flush."""
        return self._numbers("checksum", name, ids)

    # ---- vectors: a checksum of what the engine has made of them, once it has flushed them ---------

    def vectors(self, name: str, ids: Iterable[PointId]) -> dict[PointId, int]:
        """The checksums of the vectors of those that have one."""
        return self._numbers("vectors", name, ids)

    def unread(self, name: str, most: int) -> list[PointId]:
        """Points whose vectors have none yet. SQLite alone would go through all points: 10 ms of 200,000."""
        query = "SELECT id FROM point INDEXED BY unread WHERE collection = ? AND vectors IS NULL LIMIT ?"
        return [_point_id(key) for (key,) in self._database.execute(query, (name, most))]

    def note_vectors(self, name: str, checksums: Mapping[PointId, int]) -> None:
        with self._database as transaction:
            transaction.execute("BEGIN")
            transaction.executemany(
                "UPDATE point SET vectors = ? WHERE collection = ? AND id = ?",
                [(value, name, _key(point_id)) for point_id, value in checksums.items()],
            )

    def forget_all_vectors(self, name: str) -> None:
        """The engine is about to write them anew."""
        self._database.execute("UPDATE point SET vectors = NULL WHERE collection = ?", (name,))

    # ---------------------------------------------------------------------------------------------

    def _numbers(self, column: str, name: str, ids: Iterable[PointId]) -> dict[PointId, int]:
        keys = [_key(point_id) for point_id in ids]
        stored: dict[PointId, int] = {}
        for at in range(0, len(keys), _MOST_VARIABLES):
            some = keys[at : at + _MOST_VARIABLES]
            marks = ",".join("?" * len(some))
            query = (
                f"SELECT id, {column} FROM point"  # noqa: S608 — a name of ours
                f" WHERE collection = ? AND {column} IS NOT NULL AND id IN ({marks})"
            )
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
        if self._connection is not None:
            self._connection.close()
        self._last.close()


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
