"""What Prometheus collects."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from routes.dependencies import ContainerDep, Owner
from routes.openapi import errors
from services.operations.metrics import CONTENT_TYPE

router = APIRouter()


@router.get("/metrics", tags=["health"], response_class=PlainTextResponse, responses=errors(401))
async def metrics(container: ContainerDep, owner: Owner) -> PlainTextResponse:
    """Counters and gauges of this process, in Prometheus' text format. It waits for no other part: what only
    the store knows is as old as the scrape before."""
    container.look.begin()
    return PlainTextResponse(container.metrics.exposition(), media_type=CONTENT_TYPE)
