"""POST /knowledge_chat_conversation, and the streams of turns: resume and stop."""

from __future__ import annotations

from contextlib import aclosing
from typing import Annotated, Any
from uuid import UUID

import anyio
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import JSONResponse

from routes.dependencies import ContainerDep, Owner
from routes.errors import RETRY_AFTER_S, request_id
from routes.json_body import body_schema, json_body
from routes.openapi import EVENT_STREAM, errors
from routes.schemas import ChatBody
from routes.sse import StreamFormat, stream_response
from routes.whole_turn import WholeTurn
from services.conversation.stream import TurnStream

router = APIRouter(tags=["conversation"])


@router.post(
    "/knowledge_chat_conversation",
    response_model=None,
    responses={200: EVENT_STREAM, **errors(400, 401, 404, 409, 413, 415, 422, 429, 503)},
    openapi_extra=body_schema(ChatBody),
)
async def knowledge_chat_conversation(
    request: Request,
    container: ContainerDep,
    owner: Owner,
    body: Annotated[ChatBody, Depends(json_body(ChatBody))],
) -> Response:
    """Ask a question; the answer streams as Server-Sent Events, or comes whole with `stream: false`."""
    stream = await container.chat.begin_turn(body.to_request(owner, request_id(request)))
    seat = container.chat.reader_seat(owner)
    if body.stream:
        return stream_response(stream, container.settings.server, body.stream_format, seat=seat)
    with seat:
        return await _whole(stream, request)


@router.get(
    "/turns/{turn_id}/stream",
    response_model=None,
    responses={
        200: EVENT_STREAM,
        204: {"description": "There is nothing left to tell"},
        **errors(401, 404, 422, 429),
    },
)
async def resume_turn(
    turn_id: UUID,
    container: ContainerDep,
    owner: Owner,
    after: Annotated[int | None, Query(ge=0)] = None,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
    stream_format: StreamFormat = "prefix",
) -> Response:
    """Replay a turn's events from the one after Last-Event-ID (or else `after`), and follow while it runs.

    204 when there is nothing left to tell.
    """
    stream = await container.chat.stream_of(str(turn_id), owner)
    seen = _number(last_event_id, str(turn_id)) or after or 0
    if stream.ended and seen >= stream.length:
        return Response(status_code=204)  # which tells an EventSource not to come again
    seat = container.chat.reader_seat(owner)
    return stream_response(stream, container.settings.server, stream_format, seen, seat)


@router.post("/turns/{turn_id}/stop", responses=errors(401, 404, 422))
async def stop_turn(turn_id: UUID, container: ContainerDep, owner: Owner) -> dict[str, Any]:
    """Stop a running turn; what was said is kept as cancelled. `stopped` is false when it had ended."""
    stopped = await container.chat.stop(str(turn_id), owner)
    if not stopped:
        await container.chat.stream_of(str(turn_id), owner)
    return {"turn_id": str(turn_id), "stopped": stopped}


def _number(last_event_id: str | None, turn_id: str) -> int:
    prefix, _, number = (last_event_id or "").rpartition(":")
    return (
        int(number) if prefix == turn_id and number.isascii() and number.isdigit() and len(number) < 10 else 0
    )


async def _whole(stream: TurnStream, request: Request) -> Response:
    """Every part of the stream in one object; a failed turn answers 503 with the error beside them.

    A client that leaves counts as a reader that leaves: the turn waits for the grace and is then cut.
    """
    whole = WholeTurn()
    async with anyio.create_task_group() as group:
        group.start_soon(_cancel_when_gone, request, group.cancel_scope)
        async with aclosing(stream.follow()) as batches:
            async for batch in batches:
                if group.cancel_scope.cancel_called:  # in a flood no cancellation is ever delivered
                    break
                for _, event in batch:
                    whole.add(event)
        group.cancel_scope.cancel()
    if "error" not in whole.body:
        return JSONResponse(whole.body)
    headers = {"Retry-After": RETRY_AFTER_S[503]} if whole.body["error"]["retryable"] else None
    return JSONResponse(whole.body, status_code=503, headers=headers)


async def _cancel_when_gone(request: Request, scope: anyio.CancelScope) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue
    scope.cancel()
