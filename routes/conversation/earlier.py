"""POST /api/v1/chat, as the earlier chat system had it: the same turn as everywhere, told in its events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractContextManager, aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from api.turn.stream import ContentEvent, DoneEvent, ErrorEvent, Event, SessionEvent, ThinkEvent, TurnStream
from core.conversation.turns import TurnRequest
from routes.dependencies import ContainerDep, Owner, body_schema, json_body
from routes.errors import request_id
from routes.openapi import EARLIER_STREAM, WireRoute, errors
from routes.stream import EventStreamResponse, json_line
from routes.wire.earlier import EarlierChatBody
from routes.wire.fields import text_of

router = APIRouter(tags=["conversation"], route_class=WireRoute)


@router.post(
    "/api/v1/chat",
    status_code=200,
    response_class=EventStreamResponse,
    responses={200: EARLIER_STREAM, **errors(400, 401, 404, 409, 413, 415, 422, 429, 503)},
    openapi_extra=body_schema(EarlierChatBody),
)
async def earlier_chat(
    request: Request,
    container: ContainerDep,
    owner: Owner,
    body: Annotated[EarlierChatBody, Depends(json_body(EarlierChatBody))],
) -> Response:
    """Ask as clients of the earlier chat system do; sources and progress are told by the other doors."""
    session_id = text_of(body.session_id)
    asked = TurnRequest(body.message, owner, request_id(request), session_id=session_id)
    stream = await container.chat.begin_turn(asked)
    translation = Translation(stream.turn_id, is_new=session_id is None)
    frames = _frames(stream, translation, container.chat.reader_seat(owner))
    return EventStreamResponse(frames, container.settings.server.ping_interval_s)


class Translation:
    """The events of one turn as the earlier system named them."""

    def __init__(self, turn_id: str, *, is_new: bool) -> None:
        self._is_new = is_new
        self._done: dict[str, Any] = {"final_message": "", "session_id": "", "turn_id": turn_id}
        self._answer: list[str] = []

    def events(self, event: Event) -> Iterator[tuple[str, str | dict[str, Any]]]:
        match event:
            case SessionEvent(session_id):
                self._done["session_id"] = session_id
                if self._is_new:
                    yield "session_created", {"session_id": session_id}
            case ThinkEvent(text):
                yield "thinking", text
            case ContentEvent(text):
                self._answer.append(text)
                yield "text", text
            case ErrorEvent(message):
                self._done["error"] = message
            case DoneEvent():
                yield "done", {**self._done, "final_message": "".join(self._answer)}


async def _frames(
    stream: TurnStream, translation: Translation, seat: AbstractContextManager[None]
) -> AsyncGenerator[bytes, None]:
    with seat:
        async with aclosing(stream.follow(0)) as batches:
            async for batch in batches:
                events = [each for _, event in batch for each in translation.events(event)]
                frames = [json_line({"type": kind, "data": data}) for kind, data in events]
                if frames:
                    yield "".join(f"data: {frame}\n\n" for frame in frames).encode()
