"""Conversations brought in from elsewhere."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from core.conversation.importing import ImportedSession
from routes.conversation.replies import imported_reply
from routes.dependencies import ContainerDep, Owner
from routes.json_body import body_schema, check_headers, read_model
from routes.openapi import WireRoute, errors
from routes.wire.transfer import ImportBody, ImportedConversation

router = APIRouter(
    tags=["sessions"], responses=errors(400, 401, 409, 413, 415, 422, 503), route_class=WireRoute
)


async def _read(request: Request, owner: Owner) -> ImportedSession:
    """Read in a thread: a body may have 20,000 turns."""
    check_headers(request)
    body = await request.body()
    return await asyncio.to_thread(lambda: read_model(ImportBody, body).to_import(owner))


@router.post("/sessions/import", status_code=201, openapi_extra=body_schema(ImportBody))
async def import_session(
    container: ContainerDep, session: Annotated[ImportedSession, Depends(_read)]
) -> ImportedConversation:
    """Bring in a conversation: all of it, or nothing. Its turns are embedded in the background."""
    return imported_reply(await container.sessions.import_session(session))
