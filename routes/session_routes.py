"""Sessions and turns: list, read, rename, hold, erase."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query

from api.turn.citing import known_documents
from core.operations.erasure import ErasedKind
from routes.dependencies import ContainerDep, Owner
from routes.document_routes import readable
from routes.erasure_routes import Thorough, asked, proof_object
from routes.fields import AtMost, PlainText
from routes.json_body import body_schema, json_body
from routes.openapi import errors
from routes.schemas import MAX_TITLE_CHARS, FeedbackBody, SessionBody, SessionChanges
from routes.wire import node_object, session_object, turn_object

router = APIRouter(tags=["sessions"], responses=errors(401, 404, 422))


@router.get("/sessions")
async def list_sessions(
    container: ContainerDep,
    owner: Owner,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[int | None, Query(ge=0, le=2**62, description="`next` of the page before")] = None,
    q: Annotated[
        PlainText,
        AtMost(MAX_TITLE_CHARS),
        Query(description="What the title has in it; case and width differ."),
    ] = "",
) -> dict[str, Any]:
    """Newest first, paged. With `q`, a page may have few sessions or none and still name a `next`: a request
    looks at 10,000 titles at most."""
    page = await container.sessions.newest(owner, limit, before, q.strip())
    sessions = [session_object(session, count) for session, count in page.sessions]
    return {"sessions": sessions, "next": page.next_before_us}


@router.post("/sessions", status_code=201, openapi_extra=body_schema(SessionBody))
async def create_session(
    container: ContainerDep, owner: Owner, body: Annotated[SessionBody, Depends(json_body(SessionBody))]
) -> dict[str, Any]:
    """An empty session; usually one is made by asking without a session_id."""
    return session_object(await container.sessions.create(owner, body.title), 0)


@router.get("/sessions/{session_id}")
async def get_session(session_id: UUID, container: ContainerDep, owner: Owner) -> dict[str, Any]:
    """One session."""
    return session_object(*await container.sessions.get(str(session_id), owner))


@router.patch("/sessions/{session_id}", openapi_extra=body_schema(SessionChanges))
async def change_session(
    session_id: UUID,
    container: ContainerDep,
    owner: Owner,
    body: Annotated[SessionChanges, Depends(json_body(SessionChanges))],
) -> dict[str, Any]:
    """Rename, hold (kept from expiry), or give it an age limit of its own."""
    return session_object(await container.sessions.change(str(session_id), owner, body.to_change()))


@router.delete("/sessions/{session_id}")
async def erase_session(
    session_id: UUID, container: ContainerDep, owner: Owner, proof: Thorough = None
) -> dict[str, Any]:
    """Erase the session with all its turns, and prove it."""
    options = asked(ErasedKind.SESSION, proof)
    erased = await container.sessions.erasure.session(str(session_id), owner, options)
    told = {"session_id": str(session_id), "turns_erased": erased.counts.get("turns", 0)}
    return {**told, **proof_object(erased)}


@router.get("/sessions/{session_id}/turns")
async def list_turns(
    session_id: UUID, container: ContainerDep, owner: Owner, leaf: UUID | None = None
) -> dict[str, Any]:
    """The branch that ends in `leaf` (the newest turn when absent), from its root on."""
    turns = await container.sessions.branch(str(session_id), owner, str(leaf) if leaf else None)
    documents = await known_documents(container.knowledge.find_documents, turns, readable(owner))
    return {"turns": [turn_object(turn, documents) for turn in turns]}


@router.get("/sessions/{session_id}/tree")
async def get_tree(session_id: UUID, container: ContainerDep, owner: Owner) -> dict[str, Any]:
    """Every turn of the session with its parent and the beginning of its question, in time order."""
    turns = await container.sessions.tree(str(session_id), owner)
    return {"turns": [node_object(node, question) for node, question in turns]}


@router.get("/turns/{turn_id}")
async def get_turn(turn_id: UUID, container: ContainerDep, owner: Owner) -> dict[str, Any]:
    """One turn with its citations."""
    turn = await container.sessions.turn(str(turn_id), owner)
    documents = await known_documents(container.knowledge.find_documents, [turn], readable(owner))
    return turn_object(turn, documents)


@router.put(
    "/turns/{turn_id}/feedback", openapi_extra=body_schema(FeedbackBody), responses=errors(400, 409, 413, 415)
)
async def rate_turn(
    turn_id: UUID,
    container: ContainerDep,
    owner: Owner,
    body: Annotated[FeedbackBody, Depends(json_body(FeedbackBody))],
) -> dict[str, Any]:
    """Say what you think of an answer, in place of what was said before."""
    turn = await container.sessions.rate(str(turn_id), owner, body.to_feedback())
    return {"turn_id": turn.turn_id, "feedback": asdict(turn.feedback) if turn.feedback else None}


@router.delete("/turns/{turn_id}")
async def erase_turn(
    turn_id: UUID, container: ContainerDep, owner: Owner, proof: Thorough = None
) -> dict[str, Any]:
    """Erase one turn, and prove it; its children become roots."""
    options = asked(ErasedKind.TURN, proof)
    erased = await container.sessions.erasure.turn(str(turn_id), owner, options)
    return {"turn_id": str(turn_id), "erased": True, **proof_object(erased)}
