"""Which store a command acts on: whether there is one, what is in it, and which server has it open."""

from __future__ import annotations

from dataclasses import dataclass

from api.wiring.parts import folders_of, open_source, refuse_foreign
from config.settings import StoreSettings
from core.errors import StartRefusedError
from services.store.dialect import VectorStore
from services.store.durable import Holder, holder_of, store_id


@dataclass(frozen=True, slots=True)
class StoreContents:
    """`place` is a folder or an address; `store_id` "" of a Qdrant server's, or where no server was yet."""

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
        return f"Store {self.place}{called}: {self.turns} turns, {self.documents} documents"


def refuse_missing(names: StoreSettings) -> None:
    """For a command that makes no store: a folder's must be there, and whole. Raises StartRefusedError."""
    if names.qdrant_url:
        return
    folders = folders_of(names)
    folders.refuse_interrupted()
    if not folders.store.is_dir():
        raise StartRefusedError(
            f"there is no store in {names.data_dir}: set DATA_DIR to the folder that the server uses, or "
            "name a running server with --url"
        )


async def contents_of(store: VectorStore, names: StoreSettings) -> StoreContents:
    """Raises StartRefusedError where there are no conversations, StoreUnavailableError."""
    await refuse_foreign(store, names)
    counts = [
        (await store.count(name)).count if await store.collection_exists(name) else 0
        for name in (names.conversation_collection, names.document_collection, names.session_collection)
    ]
    return StoreContents(names.qdrant_url or str(names.embedded), id_of(names), *counts)


async def look(names: StoreSettings) -> StoreContents:
    """As `contents_of`, of the store that is opened for it. Raises StoreLockedError, too."""
    async with open_source(names) as store:
        return await contents_of(store, names)


def id_of(names: StoreSettings) -> str:
    return "" if names.qdrant_url else store_id(names.embedded)


def holder(names: StoreSettings) -> Holder:
    """Who has the locked store of DATA_DIR open. Raises OSError."""
    return holder_of(names.embedded)
