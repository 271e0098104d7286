"""The write-ahead journal: accepted changes that may not be in the engine's files yet, and what every
collection must contain. Runs in the store process only.

The engine flushes its log together with everything else, so a power cut would lose everything since. Each
change is therefore written here first and is on disk before it is applied; a flush of the engine empties the
journal, and a start replays it. Since no change is applied that is not written here, a start knows which
points must exist, whatever killed the process: those of the last flush, with these changes applied.
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
"""Lies beside the journal, so that a start notices if the journal was removed."""
LAST = f"{FILE}.last"
"""The number of the last committed change. SQLite treats a damaged end of its log as never written; the
changes before it would then be replayed over later ones. It is written after the commit and never flushed: a
kill leaves it as it is, and a power cut leaves at worst an earlier one."""
_LAST_BYTES = 8
ASIDE = ".damaged"
MAX_BYTES = 32 << 20
"""The most a start has to replay; a store that is never idle flushes its engine when this is reached."""
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
_WITHOUT_VECTORS = "ALTER TABLE point ADD COLUMN vectors INTEGER"  # for journals of an earlier version
_MAX_VARIABLES = 10_000

Checksums = Mapping[PointId, int | None]
"""Checksums of points by id; None for a deleted one."""
NOTHING: Mapping[str, Collection[PointId]] = {}


def checksum(payload: Mapping[str, Any] | None) -> int:
    """Independent of the order of the keys; no payload counts as an empty one."""
    return zlib.crc32(msgspec.json.encode(payload or {}, order="sorted"))


def vectors_checksum(vectors: Vectors | None) -> int:
    """A checksum of the vectors as read back: the engine may store numbers with half of their bits."""
    value = 0
    for name, vector in sorted((vectors or {}).items()):
        parts = (vector,) if isinstance(vector, bytes) else (vector.indices, vector.values)
        for part in (name.encode(), *parts):
            value = zlib.crc32(part, value)
    return value


class Journal:
    """Changes are requests as received, but with points named by ids; `size` is their total size in bytes.

    `flushes` counts the commits written to disk. Every method raises sqlite3.Error, OSError.
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
        """Reopened if `renew` could not recreate it: the disk may be writable again."""
        return self._connection or self._open()

    def check(self) -> None:
        """Raises sqlite3.DatabaseError when its pages are damaged or changes are missing."""
        (verdict,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        committed = int.from_bytes(os.pread(self._last.fileno(), _LAST_BYTES, 0), "little")
        if committed >= self._next:
            raise sqlite3.DatabaseError(f"the changes {self._next} to {committed} are not there")

    # ---- changes --------------------------------------------------------------------------------

    def note(self, change: bytes) -> int:
        """Queue a change for the next `commit`; returns its number."""
        self._noted.append((self._next, change))
        self._next += 1
        return self._next - 1

    def commit(self) -> None:
        """On return, all noted changes are on disk; if it raises, none of them is."""
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

    def revoke(self, number: int) -> None:
        """Drop a change that could not be applied; if that cannot be written, a start retries the change."""
        with suppress(sqlite3.Error):
            self._database.execute("UPDATE change SET body = x'' WHERE number = ?", (number,))

    def changes(self) -> list[bytes]:
        """The changes, in the order in which they were answered."""
        query = "SELECT body FROM change WHERE length(body) > 0 ORDER BY number"
        return [body for (body,) in self._database.execute(query)]

    def empty(
        self, changed: Mapping[str, Checksums], embedded: Mapping[str, Collection[PointId]] = NOTHING
    ) -> None:
        """Empty it after a flush: all is in the engine's files, with these points in their current state; the
        vectors of those in `embedded` were written, too, and have no checksum yet."""
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
        """From now on the collection must exist, with exactly these points."""
        with self._database as transaction:
            transaction.execute("BEGIN")
            transaction.execute("INSERT OR REPLACE INTO member VALUES (?, ?)", (name, spec))
            transaction.execute("DELETE FROM point WHERE collection = ?", (name,))
            self._write(name, points)

    def stop_expecting(self, name: str) -> None:
        """Call when a collection is about to be deleted and the journal is empty."""
        with self._database as transaction:
            transaction.execute("BEGIN")
            transaction.execute("DELETE FROM member WHERE name = ?", (name,))
            transaction.execute("DELETE FROM point WHERE collection = ?", (name,))

    def members(self) -> dict[str, bytes]:
        """The specs of the collections that must exist, by name."""
        return dict(self._database.execute("SELECT name, spec FROM member"))

    def ids(self, name: str) -> set[PointId]:
        """The ids of the points that the collection had at the last flush."""
        rows = self._database.execute("SELECT id FROM point WHERE collection = ?", (name,))
        return {_point_id(key) for (key,) in rows}

    def checksums(self, name: str, ids: Iterable[PointId]) -> dict[PointId, int]:
        """The payload checksums of those points that the collection had at the last flush."""
        return self._numbers("checksum", name, ids)

    # ---- vectors: checksums of them as the engine stores them, taken after a flush ------------------

    def vectors(self, name: str, ids: Iterable[PointId]) -> dict[PointId, int]:
        """The vector checksums of those points that have one."""
        return self._numbers("vectors", name, ids)

    def unread(self, name: str, limit: int) -> list[PointId]:
        """Points without a vector checksum. On its own, SQLite would scan all points: 10 ms for 200,000."""
        query = "SELECT id FROM point INDEXED BY unread WHERE collection = ? AND vectors IS NULL LIMIT ?"
        return [_point_id(key) for (key,) in self._database.execute(query, (name, limit))]

    def note_vectors(self, name: str, checksums: Mapping[PointId, int]) -> None:
        with self._database as transaction:
            transaction.execute("BEGIN")
            transaction.executemany(
                "UPDATE point SET vectors = ? WHERE collection = ? AND id = ?",
                [(value, name, _key(point_id)) for point_id, value in checksums.items()],
            )

    def forget_all_vectors(self, name: str) -> None:
        """Call when the engine is about to rewrite them."""
        self._database.execute("UPDATE point SET vectors = NULL WHERE collection = ?", (name,))

    # ---------------------------------------------------------------------------------------------

    def _numbers(self, column: str, name: str, ids: Iterable[PointId]) -> dict[PointId, int]:
        keys = [_key(point_id) for point_id in ids]
        stored: dict[PointId, int] = {}
        for at in range(0, len(keys), _MAX_VARIABLES):
            some = keys[at : at + _MAX_VARIABLES]
            marks = ",".join("?" * len(some))
            query = (
                f"SELECT id, {column} FROM point"  # noqa: S608 — a name of ours
                f" WHERE collection = ? AND {column} IS NOT NULL AND id IN ({marks})"
            )
            rows = self._database.execute(query, (name, *some))
            stored |= {_point_id(key): value for key, value in rows}
        return stored

    def renew(self) -> None:
        """Replace it by a new one if it cannot be emptied: a full disk may still have room for that. It knows
        no collections, so that the next start accepts them as they are."""
        self.close()
        remove(self._path.parent)
        self._open()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._last.close()


def _key(point_id: PointId) -> int | bytes:
    """The stored form of an id: a UUID takes 16 bytes instead of 36."""
    return point_id if isinstance(point_id, int) else bytes.fromhex(point_id.replace("-", ""))


def _point_id(key: int | bytes) -> PointId:
    if isinstance(key, int):
        return key
    text = key.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_missing(folder: Path) -> bool:
    """Whether there was a journal that no longer exists."""
    return (folder / MARKER).exists() and not (folder / FILE).exists()


def put_aside(folder: Path) -> None:
    for path in folder.glob(f"{FILE}*"):
        if not path.name.endswith(ASIDE):
            path.replace(path.with_name(path.name + ASIDE))


def remove(folder: Path) -> None:
    """For a store opened without a journal: an old one would miss its changes and be replayed later."""
    for path in folder.glob(f"{FILE}*"):
        if not path.name.endswith(ASIDE):
            path.unlink()
