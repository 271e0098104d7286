"""The store opened for the commands of operators, beside which no server has it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from api.container import EMBEDDED_FOLDER, open_embedding, open_snapshots, open_store
from api.wiring.assembly import make_backfill, make_backups, make_erasure, make_history
from api.wiring.parts import Maintenance, Reembedding
from config.settings import Settings
from services.llm_service import LLMService
from services.operations.reembedding.folders import COPY_SUFFIX
from services.store.collections import ensure_collections


@asynccontextmanager
async def open_maintenance(settings: Settings) -> AsyncIterator[Maintenance]:
    """For work that touches no vector, on an earlier version's collection too.

    Raises StoreLockedError when a server has the embedded store.
    """
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(settings.store))
        embedding = await stack.enter_async_context(open_embedding(settings.models))
        await ensure_collections(
            store,
            settings.store,
            embedding_name=embedding.name,
            dimension=embedding.dimension,
            accept_unnamed=True,
        )
        history = make_history(settings, store, embedding, LLMService({}))
        stack.push_async_callback(history.close)
        snapshots = await stack.enter_async_context(open_snapshots(settings.store))
        backups = make_backups(settings.store, store, snapshots)
        backfill = make_backfill(settings.store, store, embedding, history, backups)
        erasure = make_erasure(settings, store, history)
        yield Maintenance(history.conversations, backfill, history.receipts, history.space, erasure)


@asynccontextmanager
async def open_reembedding(settings: Settings) -> AsyncIterator[Reembedding]:
    """The store as it is, nothing made or checked. Raises StoreLockedError when a server has it open."""
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(open_store(settings.store))
        embedding = await stack.enter_async_context(open_embedding(settings.models))
        open_target = partial(open_store, settings.store, EMBEDDED_FOLDER + COPY_SUFFIX)
        yield Reembedding(source, embedding, open_target)
