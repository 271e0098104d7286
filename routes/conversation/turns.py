"""Single turns: read, rate, erase, and see what was sent to the model."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends

from api.turn.citing import known_documents
from core.operations.erasure import ErasedKind
from routes.conversation.replies import prompt_reply, rated_reply, turn_reply
from routes.dependencies import ContainerDep, Owner, readable
from routes.erasing import Thorough, asked, proof_of
from routes.json_body import body_schema, json_body
from routes.openapi import WireRoute, errors
from routes.wire.turns import ErasedTurn, FeedbackBody, Prompt, RatedTurn, Turn

router = APIRouter(tags=["sessions"], responses=errors(401, 404, 422, 503), route_class=WireRoute)


@router.get("/turns/{turn_id}")
async def get_turn(turn_id: UUID, container: ContainerDep, owner: Owner) -> Turn:
    """One turn with its citations."""
    turn = await container.sessions.turn(str(turn_id), owner)
    documents = await known_documents(container.knowledge.find_documents, [turn], readable(owner))
    return turn_reply(turn, documents)


@router.get("/turns/{turn_id}/prompt")
async def get_prompt(turn_id: UUID, container: ContainerDep, owner: Owner) -> Prompt:
    """The request sent for this turn, part by part and byte for byte, and what the provider said of its
    answer. Parts that were erased since are named and empty."""
    return prompt_reply(await container.sessions.prompt(str(turn_id), owner))


@router.put(
    "/turns/{turn_id}/feedback", openapi_extra=body_schema(FeedbackBody), responses=errors(400, 409, 413, 415)
)
async def rate_turn(
    turn_id: UUID,
    container: ContainerDep,
    owner: Owner,
    body: Annotated[FeedbackBody, Depends(json_body(FeedbackBody))],
) -> RatedTurn:
    """Say what you think of an answer, in place of what was said before."""
    return rated_reply(await container.sessions.rate(str(turn_id), owner, body.to_feedback()))


@router.delete("/turns/{turn_id}")
async def erase_turn(
    turn_id: UUID, container: ContainerDep, owner: Owner, proof: Thorough = None
) -> ErasedTurn:
    """Erase one turn, and prove it; its children become roots."""
    options = asked(ErasedKind.TURN, proof)
    erased = await container.sessions.erasure.turn(str(turn_id), owner, options)
    return ErasedTurn(turn_id=str(turn_id), erased=True, proof=proof_of(erased), receipt_id=erased.receipt_id)
