"""The store a command acts on: whether it exists, what it holds; opened for reading or filling."""

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
    """For a command that creates no store: an embedded one must exist whole. Raises StartRefusedError."""
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
    """Raises StartRefusedError if it holds no conversations, StoreUnavailableError."""
    await refuse_foreign(store, names)
    counts = [
        (await store.count(name)).count if await store.collection_exists(name) else 0
        for name in (names.conversation_collection, names.document_collection, names.session_collection)
    ]
    return StoreContents(names.qdrant_url or str(names.embedded), id_of(names), *counts)


async def look(names: StoreSettings) -> StoreContents:
    """Open the store for `contents_of`. Also raises StoreLockedError."""
    async with open_source(names) as store:
        return await contents_of(store, names)


@asynccontextmanager
async def open_source(settings: StoreSettings) -> AsyncIterator[VectorStore]:
    """Open the store as it is: nothing is created, only its presence and wholeness are checked.

    Raises StartRefusedError, StoreLockedError when a server has the embedded store open.
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
    """Open a store for the body to fill; whoever starts finds it empty or whole, or is refused.

    Raises StoreNotEmptyError, StoreLockedError when a server has the embedded store open.
    """
    if settings.qdrant_url:
        async with open_store(settings) as store:
            yield Target(store, settings)
        return
    folders = folders_of(settings)
    await asyncio.to_thread(settings.data_dir.mkdir, mode=0o700, parents=True, exist_ok=True)
    async with _open_unfinished(settings, folders) as target:
        yield target
    await asyncio.to_thread(folders.replace)


@asynccontextmanager
async def _open_unfinished(settings: StoreSettings, folders: RestoreFolders) -> AsyncIterator[Target]:
    """Keep the existing empty store open, so that no server takes it meanwhile."""
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
