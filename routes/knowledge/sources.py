"""The folders that are followed, as everybody sees them."""

from __future__ import annotations

from fastapi import APIRouter

from routes.dependencies import ContainerDep, Owner, readable
from routes.knowledge.replies import source_reply
from routes.openapi import WireRoute, errors
from routes.wire.documents import SourceList

router = APIRouter(tags=["documents"], responses=errors(401, 503), route_class=WireRoute)


@router.get("/sources")
async def list_sources(container: ContainerDep, owner: Owner) -> SourceList:
    """The folders that are followed, whose documents you may read. A question can be limited to them."""
    summaries = await container.sync.summaries(readable(owner))
    return SourceList(sources=[source_reply(summary) for summary in summaries])
