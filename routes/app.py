"""The FastAPI application: routers, error table, edge middleware, and the container's life."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI

from api.wiring.assembly import open_container
from config.settings import Settings
from routes import knowledge_routes
from routes.admin import backups, cleanup, erasure, health, metrics, reembedding, repair, sync
from routes.conversation import exports, imports, sessions, turns
from routes.edge import EdgeMiddleware
from routes.errors import install_error_handlers
from routes.knowledge import documents, jobs, search, sources
from routes.openapi import describe
from routes.web import page


def create_app(settings: Settings) -> FastAPI:
    """The application; its container opens with the lifespan, so nothing is loaded before."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_container(settings) as container:
            app.state.container = container
            app.state.metrics = container.metrics
            yield

    app = FastAPI(
        title="Wenmai 问脉",
        version="0.1.0",
        summary="A self-hosted RAG conversation server",
        lifespan=lifespan,
        docs_url=None,  # the built-in pages load scripts from another origin
        redoc_url=None,
        openapi_url=None,  # served by admin.health, where a key is asked for
        generate_unique_id_function=lambda route: route.name,
    )
    for module in (
        knowledge_routes,
        sessions,
        turns,
        imports,
        exports,
        documents,
        jobs,
        search,
        sources,
        cleanup,
        erasure,
        repair,
        backups,
        reembedding,
        sync,
        health,
        metrics,
        page,
    ):
        app.include_router(module.router)
    app.openapi = partial(describe, app)  # type: ignore[method-assign]
    install_error_handlers(app)
    app.add_middleware(EdgeMiddleware, settings=settings.server)
    return app
