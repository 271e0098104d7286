"""What was acknowledged and may not be in the engine's own files yet. Runs in the store process only.

The engine flushes its log together with everything else, so a cut of power would take what came since. Each
change is therefore written here, too, and is on the disk before it is answered; a flush of the engine
empties the journal, and a start replays it. SQLite has solved torn writes, checksums and ordering.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from services.store.durable import sync_folder

FILE = "journal.db"
MOST_BYTES = 32 << 20
"""A start replays at most this; a store that is never idle flushes its engine when it is reached."""
_SETTINGS = ("journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=0", "secure_delete=ON")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS change (number INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS collection (name TEXT PRIMARY KEY) WITHOUT ROWID;
"""


class Journal:
    """Changes are requests as they came, but with points named by their ids; `size` is theirs, in bytes.

    Every method raises sqlite3.Error, OSError.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._noted: list[tuple[bytes]] = []
        self.size = 0
        self._open()

    def _open(self) -> None:
        self._path.touch(0o600)
        self._database = sqlite3.connect(self._path, isolation_level=None)
        for setting in _SETTINGS:
            self._database.execute(f"PRAGMA {setting}")
        self._database.executescript(_SCHEMA)
        sync_folder(self._path.parent)

    @property
    def noted(self) -> int:
        return len(self._noted)

    def note(self, change: bytes) -> None:
        """Written by the next `commit`."""
        self._noted.append((change,))

    def forget(self) -> None:
        """What was noted is in the engine's files already."""
        self._noted.clear()

    def commit(self) -> None:
        """All that was noted is on the disk when this returns; when it raises, nothing of it is."""
        noted, self._noted = self._noted, []
        if not noted:
            return
        with self._database as transaction:
            transaction.execute("BEGIN")
            transaction.executemany("INSERT INTO change (body) VALUES (?)", noted)
        self.size += sum(len(change) for (change,) in noted)

    def changes(self) -> list[bytes]:
        """In the order in which they were answered."""
        return [body for (body,) in self._database.execute("SELECT body FROM change ORDER BY number")]

    def expect(self, name: str) -> None:
        """A collection was made."""
        self._database.execute("INSERT OR REPLACE INTO collection VALUES (?)", (name,))

    def expect_no_more(self, name: str) -> None:
        """A collection is about to go, and the journal is empty."""
        self._database.execute("DELETE FROM collection WHERE name = ?", (name,))

    def expected(self) -> set[str]:
        """The collections that must be in the folder."""
        return {name for (name,) in self._database.execute("SELECT name FROM collection")}

    def empty(self, names: Iterable[str]) -> None:
        """The engine has flushed: all is in its files. These are the collections."""
        with self._database as transaction:
            transaction.execute("BEGIN")
            transaction.execute("DELETE FROM change")
            transaction.execute("DELETE FROM collection")
            transaction.executemany("INSERT INTO collection VALUES (?)", [(name,) for name in names])
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.size = 0

    def renew(self) -> None:
        """A new one in its place, when it cannot be emptied: a full disk has room for less."""
        self.close()
        remove(self._path.parent)
        self._open()

    def close(self) -> None:
        self._database.close()


def remove(folder: Path) -> None:
    """For a store that is opened without one: an old one would say what is no longer so."""
    for path in folder.glob(f"{FILE}*"):
        path.unlink()
