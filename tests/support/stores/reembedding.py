"""Re-embedding on the real embedded engine, wired as in the container."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

from api.admin.reembedding import StoreReembedding
from api.wiring.parts import load_class
from config.settings import ModelSettings, StoreSettings
from services.adapters.edge.client import open_edge_client
from services.models.embedding import EmbeddingService
from services.operations.reembedding.beside import switch_if_prepared
from services.store.clock import Activity
from services.store.dialect import VectorStore
from tests.support.models.hashing_embedding import HashingEmbedding
from tests.support.servers.app import HASHING, App, make_settings, open_app


@asynccontextmanager
async def opened_embedding(models: ModelSettings) -> AsyncIterator[EmbeddingService]:
    model = load_class(models.embedding, HashingEmbedding, {})
    dimension = len(model.get_text_embedding("dimension"))
    service = EmbeddingService(model, models.embedding.partition(":")[2], dimension)
    try:
        yield service
    finally:
        await service.close()


def open_beside(data_dir: Path, name: str) -> AbstractAsyncContextManager[VectorStore]:
    return open_edge_client(data_dir / name)


def make_job(app: App, data_dir: Path, activity: Activity | None = None) -> StoreReembedding:
    settings = app.container.settings
    return StoreReembedding(
        settings.store,
        settings.models,
        app.container.store,
        activity or Activity(),
        opened_embedding,
        partial(open_beside, data_dir),
        data_dir / "store",
    )


async def switch(data_dir: Path, embedding: str) -> Path | None:
    """Do what a start with this EMBEDDING does before it opens the store."""
    settings = StoreSettings(data_dir=data_dir)
    async with opened_embedding(ModelSettings(embedding=embedding)) as opened:
        return await switch_if_prepared(data_dir / "store", settings, opened, partial(open_beside, data_dir))


@asynccontextmanager
async def started(data_dir: Path, embedding: str = HASHING) -> AsyncIterator[App]:
    """Yield the application after a start with this EMBEDDING."""
    await switch(data_dir, embedding)
    async with open_app(make_settings(data_dir, models={"embedding": embedding})) as app:
        yield app
