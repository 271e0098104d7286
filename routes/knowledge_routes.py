"""POST /knowledge_chat_conversation, and the streams of turns: resume, stop, decide tool calls."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractContextManager, aclosing
from dataclasses import fields
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response

from api.turn.stream import ContentEvent, DoneEvent, ErrorEvent, Event, SessionEvent, ThinkEvent, TurnStream
from core.conversation.sessions import CHOICES
from core.conversation.turns import UNSET, AskedWith, TurnRequest
from core.text import Language
from routes.dependencies import ContainerDep, Owner, accepted_language, json_body
from routes.errors import failed_turn_headers, request_id
from routes.openapi import EARLIER_STREAM, TURN_STREAM, Responses, WireRoute, errors
from routes.stream import EventStreamResponse, WholeTurn, events_of, json_line, read_whole, stream_response
from routes.wire.chat import Answer, ChatBody, EarlierChatBody, StreamFormat
from routes.wire.fields import ErrorResponse, filter_of, text_of
from routes.wire.turns import DecidedCall, StoppedTurn, ToolDecision

router = APIRouter(tags=["conversation"], route_class=WireRoute)

HOW = {each.name for each in fields(AskedWith)}
WHOLE_OR_ERROR: Responses = {
    503: {
        "model": ErrorResponse | Answer,
        "description": "The turn failed, or a required part is unavailable.",
    }
}


@router.post(
    "/knowledge_chat_conversation",
    response_model=Answer,
    responses={200: TURN_STREAM, **errors(400, 401, 404, 409, 413, 415, 422, 429), **WHOLE_OR_ERROR},
)
async def knowledge_chat_conversation(
    request: Request,
    container: ContainerDep,
    owner: Owner,
    body: Annotated[ChatBody, Depends(json_body(ChatBody))],
    accept_language: Annotated[
        str, Header(description="The reader's language, zh or en, in which commands are answered.")
    ] = "",
) -> Response:
    """Ask a question; the answer streams as Server-Sent Events, or comes whole with `stream: false`."""
    stream = await container.chat.begin_turn(
        _turn_request(body, owner, request_id(request), accepted_language(accept_language))
    )
    slot = container.chat.reader_slot(owner)
    if body.stream:
        return stream_response(stream, container.settings.server, body.stream_format, slot=slot)
    with slot:
        return await _whole(stream, request)


@router.get(
    "/turns/{turn_id}/stream",
    status_code=200,
    response_class=EventStreamResponse,
    responses={
        200: TURN_STREAM,
        204: {"description": "Every event has been read."},
        **errors(401, 404, 422, 429, 503),
    },
)
async def resume_turn(
    turn_id: UUID,
    container: ContainerDep,
    owner: Owner,
    after: Annotated[int | None, Query(ge=0, description="The number of the last event read.")] = None,
    last_event_id: Annotated[
        str | None, Header(max_length=100, description="The id of the last event read.")
    ] = None,
    stream_format: Annotated[StreamFormat, Query(description="How the events are written.")] = "prefix",
) -> Response:
    """Replay a turn's events after Last-Event-ID (or else `after`), and follow it while it runs.

    204 if every event has been read.
    """
    stream = await container.chat.stream_of(str(turn_id), owner)
    after_n = _number(last_event_id, str(turn_id)) or after or 0
    if stream.is_read(after_n):
        return Response(status_code=204)  # tells an EventSource not to reconnect
    slot = container.chat.reader_slot(owner)
    return stream_response(stream, container.settings.server, stream_format, after_n, slot)


@router.post("/turns/{turn_id}/stop", responses=errors(401, 404, 422, 503))
async def stop_turn(turn_id: UUID, container: ContainerDep, owner: Owner) -> StoppedTurn:
    """Stop a running turn; its text so far is stored as cancelled. `stopped` is false if it had ended."""
    stopped = await container.chat.stop(str(turn_id), owner)
    if not stopped:
        await container.chat.stream_of(str(turn_id), owner)
    return StoppedTurn(turn_id=str(turn_id), stopped=stopped)


@router.post("/turns/{turn_id}/tools/{call_id}", responses=errors(400, 401, 404, 413, 415, 422, 503))
async def decide_tool_call(
    turn_id: UUID,
    call_id: Annotated[str, Path(max_length=64, description="The call, as its STATUS event names it.")],
    container: ContainerDep,
    owner: Owner,
    body: Annotated[ToolDecision, Depends(json_body(ToolDecision))],
) -> DecidedCall:
    """Approve or refuse a tool call that waits for approval; undecided, it is refused after a while."""
    await container.chat.decide_call(str(turn_id), call_id, owner, approve=body.approve)
    return DecidedCall(turn_id=str(turn_id), call_id=call_id, approved=body.approve)


def _turn_request(body: ChatBody, owner: str, request_id: str, language: Language | None) -> TurnRequest:
    names_parent = "parent_turn_id" in body.model_fields_set
    return TurnRequest(
        question=body.text,
        sent_images=body.images,
        owner=owner,
        request_id=request_id,
        session_id=text_of(body.session_id),
        turn_id=text_of(body.turn_id),
        parent_turn_id=text_of(body.parent_turn_id) if names_parent else UNSET,
        model_id=body.model_id,
        how=AskedWith(**{**body.model_dump(include=HOW), "tools": tuple(body.tools)}),
        filters=filter_of(body.filters),
        language=language,
        begins_session=body.begin_session,
        left_open=frozenset(CHOICES) - body.model_fields_set,
        switches_thinking=True,
    )


def _number(last_event_id: str | None, turn_id: str) -> int:
    prefix, _, number = (last_event_id or "").rpartition(":")
    return (
        int(number) if prefix == turn_id and number.isascii() and number.isdigit() and len(number) < 10 else 0
    )


async def _whole(stream: TurnStream, request: Request) -> Response:
    """Return every part of the stream as one object; a failed turn answers 503 with the error in it."""
    whole = WholeTurn()
    await read_whole(events_of(stream), request.receive, whole.add)
    if not whole.ended:
        return Response(status_code=499)  # client closed the request, by nginx's convention
    answer = whole.answer()
    content = answer.model_dump_json(exclude_unset=True)
    if answer.error is None:
        return Response(content, media_type="application/json")
    headers = failed_turn_headers(answer.error.retryable, answer.error.retry_after_s)
    return Response(content, 503, headers, "application/json")


# The earlier chat system's protocol: the same turn, as its events.


@router.post(
    "/api/v1/chat",
    status_code=200,
    response_class=EventStreamResponse,
    responses={200: EARLIER_STREAM, **errors(400, 401, 404, 409, 413, 415, 422, 429, 503)},
)
async def earlier_chat(
    request: Request,
    container: ContainerDep,
    owner: Owner,
    body: Annotated[EarlierChatBody, Depends(json_body(EarlierChatBody))],
) -> Response:
    """Ask as clients of the earlier chat system do; this protocol has no events for sources and progress."""
    session_id = text_of(body.session_id)
    asked = TurnRequest(
        body.message, owner, request_id(request), session_id=session_id, left_open=frozenset(CHOICES)
    )
    stream = await container.chat.begin_turn(asked)
    translation = Translation(stream.turn_id, is_new=session_id is None)
    frames = _earlier_frames(stream, translation, container.chat.reader_slot(owner))
    return EventStreamResponse(frames, container.settings.server.ping_interval_s)


class Translation:
    """Translates the events of one turn into the earlier system's."""

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


async def _earlier_frames(
    stream: TurnStream, translation: Translation, slot: AbstractContextManager[None]
) -> AsyncGenerator[bytes, None]:
    with slot:
        async with aclosing(stream.follow(0)) as batches:
            async for batch in batches:
                events = [each for _, event in batch for each in translation.events(event)]
                frames = [json_line({"type": kind, "data": data}) for kind, data in events]
                if frames:
                    yield "".join(f"data: {frame}\n\n" for frame in frames).encode()
