"""Figures: what Prometheus collects, and how much is stored."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from routes.dependencies import Admin, ContainerDep, Owner
from routes.openapi import WireRoute, errors
from routes.wire.operations import Statistics
from services.operations.metrics import CONTENT_TYPE

router = APIRouter(route_class=WireRoute)


@router.get("/metrics", tags=["health"], response_class=PlainTextResponse, responses=errors(401))
async def metrics(container: ContainerDep, owner: Owner) -> PlainTextResponse:
    """Counters and gauges of this process, in Prometheus' text format. It waits for no other part: what only
    the store knows is as old as the scrape before."""
    container.look.begin()
    return PlainTextResponse(container.metrics.exposition(), media_type=CONTENT_TYPE)


@router.get("/admin/stats", tags=["admin"], responses=errors(401, 403, 503))
async def stats(container: ContainerDep, admin: Admin) -> Statistics:
    """How much is stored, and what runs just now. `bytes_on_disk` is null where the engine does not say."""
    store = container.settings.store
    names = {
        "turns": store.conversation_collection,
        "sessions": store.session_collection,
        "documents": store.document_collection,
        "chunks": store.knowledge_collection,
        "memories": store.memory_collection,
    }
    counts = {name: (await container.store.count(collection)).count for name, collection in names.items()}
    size = await container.space.size_bytes() if container.space else None
    return Statistics(
        stored=counts,
        chunks_made_for=None if store.qdrant_url else container.knowledge.size.most_chunks,
        bytes_on_disk=size,
        running_turns=len(container.running),
        tasks=len(asyncio.all_tasks()),
    )
