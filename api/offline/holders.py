"""Which server has a store open, and how to name a store; reads at once, without the store's engine."""

from __future__ import annotations

from dataclasses import dataclass

from config.settings import StoreSettings
from core.text import counted
from services.store.durable import LOCK_FILE, Holder, holder_of, locked, store_id


@dataclass(frozen=True, slots=True)
class StoreContents:
    """`place` is a folder or an address; `store_id` is "" for a Qdrant server, or before any server ran."""

    place: str
    store_id: str
    turns: int
    documents: int
    sessions: int

    @property
    def is_empty(self) -> bool:
        return not (self.turns or self.documents or self.sessions)

    @property
    def line(self) -> str:
        called = f" ({self.store_id})" if self.store_id else ""
        documents = counted(self.documents, "document")
        return f"Store {self.place}{called}: {counted(self.turns, 'turn')}, {documents}"


def id_of(names: StoreSettings) -> str:
    return "" if names.qdrant_url else store_id(names.embedded)


def place_of(names: StoreSettings) -> str:
    """Return the store's location and id, read without opening it."""
    if names.qdrant_url:
        return names.qdrant_url
    called = id_of(names)
    none = "" if names.embedded.is_dir() else ", which does not exist yet"
    return f"{names.embedded} ({called})" if called else f"{names.embedded}{none}"


def serving(names: StoreSettings) -> str:
    """Return the address of the server that has the store of DATA_DIR open, or "" if none has."""
    if names.qdrant_url or not (names.embedded / LOCK_FILE).is_file():
        return ""
    try:
        with locked(names.embedded / LOCK_FILE):
            return ""
    except BlockingIOError:
        return holder_of(names.embedded).url


def holder(names: StoreSettings) -> Holder:
    """Return the process that has the locked store of DATA_DIR open. Raises OSError."""
    return holder_of(names.embedded)
