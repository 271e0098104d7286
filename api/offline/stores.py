"""Which store a command acts on: whether there is one, what is in it; opened to be read or to be
filled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from api.offline.holders import StoreContents, id_of
from api.wiring.parts import folders_of, open_store, refuse_foreign
from config.settings import StoreSettings
from core.errors import StartRefusedError
from services.operations.backup.filling import RestoreFolders, Target, check_empty, refuse_half_filled
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


@asynccontextmanager
async def open_source(settings: StoreSettings) -> AsyncIterator[VectorStore]:
    """The store as it is, nothing made or checked but that it is there and whole.

    Raises StartRefusedError, StoreLockedError when a server has the embedded store.
    """
    folders = folders_of(settings)
    if not settings.qdrant_url:
        folders.refuse_interrupted()
        if not folders.store.is_dir():
            raise StartRefusedError(f"there is no store in {settings.data_dir}")
    async with open_store(settings) as store:
        await refuse_half_filled(store, settings.operations_collection)
        yield store


@asynccontextmanager
async def open_target(settings: StoreSettings) -> AsyncIterator[Target]:
    """To be filled by the body; whoever starts finds it empty or whole, or is refused.

    Raises StoreNotEmptyError, StoreLockedError when a server has the embedded store.
    """
    if settings.qdrant_url:
        async with open_store(settings) as store:
            yield Target(store, settings)
        return
    folders = folders_of(settings)
    await asyncio.to_thread(settings.data_dir.mkdir, mode=0o700, parents=True, exist_ok=True)
    async with _beside(settings, folders) as target:
        yield target
    await asyncio.to_thread(folders.replace)


@asynccontextmanager
async def _beside(settings: StoreSettings, folders: RestoreFolders) -> AsyncIterator[Target]:
    """The empty store that is there stays open, so that no server takes it meanwhile."""
    try:
        async with AsyncExitStack() as stack:
            receipts = []
            if folders.store.is_dir():
                present = await stack.enter_async_context(open_store(settings))
                receipts = await check_empty(present, settings)
            await asyncio.to_thread(folders.discard_unfinished)
            store = await stack.enter_async_context(open_store(settings, folders.unfinished.name))
            yield Target(store, settings, receipts)
    except BaseException:
        await asyncio.to_thread(folders.discard_unfinished)
        raise
