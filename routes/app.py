"""The FastAPI application: routers, error table, edge middleware, and the container's lifespan."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI

from api.wiring.assembly import open_container
from config.settings import VERSION, Settings
from routes import knowledge_routes
from routes.admin import cleanup, health, store
from routes.conversation import library, memories, sessions, shares, transfer
from routes.errors import EdgeMiddleware, install_error_handlers
from routes.knowledge import documents, search
from routes.mcp import door
from routes.mcp.door import open_door
from routes.openai import door as openai_door
from routes.openapi import describe
from routes.web import page

ROUTERS = (
    knowledge_routes.router,  # these two first: routes are tried in this order
    openai_door.router,
    sessions.router,
    transfer.router,
    shares.router,
    shares.page_router,
    memories.router,
    library.router,
    documents.router,
    documents.job_router,
    search.router,
    door.router,
    cleanup.router,
    store.router,
    health.router,
    page.router,
)


def create_app(settings: Settings) -> FastAPI:
    """Build the application; its container opens with the lifespan, so nothing loads earlier."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_container(settings) as container:
            app.state.container = container
            app.state.count_refused = container.metrics.refused
            agents = open_door(app, container)
            yield
            await agents.close()

    app = FastAPI(
        title="Wenmai 问脉",
        version=VERSION,
        summary="A self-hosted RAG conversation server",
        lifespan=lifespan,
        docs_url=None,  # the built-in pages load scripts from another origin
        redoc_url=None,
        openapi_url=None,  # served by admin.health, which requires a key
        generate_unique_id_function=lambda route: route.name,
    )
    for router in ROUTERS:
        app.include_router(router)
    app.state.root_path = settings.server.root_path
    app.openapi = partial(describe, app)  # type: ignore[method-assign]
    install_error_handlers(app, ROUTERS)
    app.add_middleware(EdgeMiddleware, settings=settings.server)
    return app
