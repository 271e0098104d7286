"""One chunk with what stands around it in its document."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query

from routes.dependencies import ContainerDep, Owner
from routes.document_routes import readable
from routes.openapi import errors
from routes.wire import chunk_object
from services.retrieval.surroundings import Neighbours, Surroundings

router = APIRouter(tags=["documents"], responses=errors(401, 404, 422))

Number = Annotated[int, Query(ge=0, le=10)]


@router.get("/documents/{document_id}/chunks/{chunk_id}")
async def get_chunk(
    document_id: UUID,
    chunk_id: UUID,
    container: ContainerDep,
    owner: Owner,
    before: Number = 1,
    after: Number = 1,
    section: bool = True,
) -> dict[str, Any]:
    """A chunk, its neighbours, and the section it is of: the chunks under the same heading, in order."""
    neighbours = Neighbours(container.store, container.settings.store.knowledge_collection)
    owners = readable(owner)
    chunk = await neighbours.get(str(document_id), str(chunk_id), owners)
    return surroundings_object(
        await neighbours.surroundings(chunk, owners, before=before, after=after, section=section)
    )


def surroundings_object(found: Surroundings) -> dict[str, Any]:
    return {
        **chunk_object(found.chunk),
        "neighbours": {
            "before": [chunk_object(chunk) for chunk in found.before],
            "after": [chunk_object(chunk) for chunk in found.after],
        },
        "section": [chunk_object(chunk) for chunk in found.section],
    }
