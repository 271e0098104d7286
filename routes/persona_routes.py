"""A session's own system prompt."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends

from routes.dependencies import ContainerDep, Owner
from routes.json_body import body_schema, json_body
from routes.openapi import errors
from routes.schemas import PersonaBody
from routes.wire import session_object

router = APIRouter(tags=["sessions"], responses=errors(401, 404, 422, 503))


@router.put(
    "/sessions/{session_id}/persona", openapi_extra=body_schema(PersonaBody), responses=errors(400, 413, 415)
)
async def set_persona(
    session_id: UUID,
    container: ContainerDep,
    owner: Owner,
    body: Annotated[PersonaBody, Depends(json_body(PersonaBody))],
) -> dict[str, Any]:
    """Set or replace the session's persona: one at a time, from the next turn on."""
    return session_object(await container.sessions.set_persona(str(session_id), owner, body.to_draft()))


@router.delete("/sessions/{session_id}/persona")
async def clear_persona(session_id: UUID, container: ContainerDep, owner: Owner) -> dict[str, Any]:
    """Clear the persona, from the next turn on."""
    return session_object(await container.sessions.clear_persona(str(session_id), owner))
