"""POST /search: retrieval alone, for those who want to see why something was found or not."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import Field

from api.search_handler import SearchRequest
from routes.dependencies import ContainerDep, Owner
from routes.json_body import body_schema, json_body
from routes.openapi import errors
from routes.schemas import Uuid, WireModel
from routes.wire import candidate_object

router = APIRouter(tags=["search"], responses=errors(400, 401, 413, 415, 422, 503))


class SearchBody(WireModel):
    """What POST /search takes."""

    question: str = Field(max_length=8_000)
    top_n: int = Field(10, ge=1, le=50)
    document_id: Uuid | None = Field(None, description="Only this document: why was it not found?")


@router.post("/search", openapi_extra=body_schema(SearchBody))
async def search(
    container: ContainerDep, owner: Owner, body: Annotated[SearchBody, Depends(json_body(SearchBody))]
) -> dict[str, Any]:
    """Every candidate with its rank and score at each stage, best first, and the stage that dropped it."""
    document_id = str(body.document_id) if body.document_id else None
    report = await container.search.search(SearchRequest(body.question, owner, body.top_n, document_id))
    return {"candidates": [candidate_object(one.candidate, one.dropped_by) for one in report.candidates]}
