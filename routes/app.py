"""The FastAPI application: routers, error table, edge middleware, and the container's life."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from api.container import open_container
from config.settings import Settings
from routes import (
    admin_routes,
    backup_routes,
    chunk_routes,
    document_routes,
    erasure_routes,
    export_routes,
    health_routes,
    import_routes,
    knowledge_routes,
    metrics_routes,
    page_routes,
    persona_routes,
    prompt_routes,
    reembed_routes,
    repair_routes,
    search_routes,
    session_routes,
    sync_routes,
)
from routes.edge import EdgeMiddleware
from routes.errors import install_error_handlers


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
        openapi_url=None,  # served by health_routes, where a key is asked for
    )
    for module in (
        knowledge_routes,
        session_routes,
        persona_routes,
        prompt_routes,
        import_routes,
        export_routes,
        document_routes,
        search_routes,
        admin_routes,
        erasure_routes,
        repair_routes,
        backup_routes,
        reembed_routes,
        chunk_routes,
        sync_routes,
        health_routes,
        metrics_routes,
        page_routes,
    ):
        app.include_router(module.router)
    install_error_handlers(app)
    app.add_middleware(EdgeMiddleware, settings=settings.server)
    return app
