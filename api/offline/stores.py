"""Which store a command acts on: whether there is one, and what is in it."""

from __future__ import annotations

from api.offline.holders import StoreContents, id_of
from api.wiring.parts import folders_of, open_source, refuse_foreign
from config.settings import StoreSettings
from core.errors import StartRefusedError
from services.store.dialect import VectorStore


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
