"""Conversations brought in from elsewhere."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from core.conversation.importing import GivenSession
from routes.dependencies import ContainerDep, Owner
from routes.import_schemas import ImportBody
from routes.json_body import body_schema, check_headers, read_model
from routes.openapi import errors

router = APIRouter(tags=["sessions"], responses=errors(400, 401, 409, 413, 415, 422, 503))


async def _given(request: Request, owner: Owner) -> GivenSession:
    """Read in a thread: a body may have 20,000 turns."""
    check_headers(request)
    body = await request.body()
    return await asyncio.to_thread(lambda: read_model(ImportBody, body).to_given(owner))


@router.post("/sessions/import", status_code=201, openapi_extra=body_schema(ImportBody))
async def import_session(
    container: ContainerDep, given: Annotated[GivenSession, Depends(_given)]
) -> dict[str, Any]:
    """Bring in a conversation: all of it, or nothing. Its turns are embedded in the background."""
    imported = await container.sessions.import_session(given)
    return {
        "session_id": imported.session_id,
        "turns": list(imported.turn_ids),
        "indexing": imported.indexing,
    }
