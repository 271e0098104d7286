"""Export a whole session as Markdown to read, or as JSON to import again; import conversations."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import StreamingResponse

from api.sessions.transfer import SessionCopy
from core.conversation.importing import ImportedSession
from core.conversation.sessions import CHOICES, Session
from core.conversation.transcript import MarkdownTranscript, parents_first, stretches
from core.conversation.turns import RewrittenQuestion, Summary, Turn, TurnStatus, settled_calls
from core.dates import is_moment, rfc3339
from core.images import ImageData, data_url
from core.text import is_mostly_chinese
from routes.conversation.replies import limits_reply, session_reply
from routes.dependencies import ContainerDep, Owner, check_headers, file_body, read_model
from routes.openapi import Responses, WireRoute, body_schema, errors
from routes.stream import citation_reply, warning_reply
from routes.wire.fields import Reply
from routes.wire.imports import ForeignImport, ImportBody, ImportedConversation, PlannedConversation
from routes.wire.transfer import AS_STORED

router = APIRouter(tags=["sessions"], route_class=WireRoute)

NAME_CHARS = 80
MEDIA_TYPES = {"md": "text/markdown", "json": "application/json"}
# Separators, what Windows refuses, control characters, and invisible or direction-changing characters.
_NOT_IN_NAMES = re.compile(
    '[<>:"/\\\\|?*\\x00-\\x1f\\x7f-\\x9f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ud800-\\udfff]+'
)

COPY: Responses = {
    **errors(401, 404, 422, 503),
    200: {
        "description": "The session as a file.",
        "content": {
            MEDIA_TYPES["md"]: {"schema": {"type": "string", "description": "Markdown, to read."}},
            MEDIA_TYPES["json"]: {"schema": {"$ref": "#/components/schemas/ImportBody"}},
        },
    },
}


@router.get("/sessions/{session_id}/export", response_class=StreamingResponse, responses=COPY)
async def export_session(
    session_id: UUID,
    container: ContainerDep,
    owner: Owner,
    form: Annotated[Literal["md", "json"], Query(alias="format", description="Markdown or JSON.")] = "md",
) -> StreamingResponse:
    """The whole tree as a file: Markdown to read, or JSON that POST /sessions/import accepts."""
    copy = await container.sessions.copy(str(session_id), owner)
    pieces = _markdown(copy) if form == "md" else _json(copy)
    headers = {"Content-Disposition": attachment(copy.session.title, str(session_id), form)}
    return StreamingResponse(pieces, media_type=f"{MEDIA_TYPES[form]}; charset=utf-8", headers=headers)


@router.post(
    "/sessions/import/file",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
    responses=errors(401, 409, 413, 415, 422, 503),
)
async def import_foreign(
    request: Request,
    container: ContainerDep,
    owner: Owner,
    apply: Annotated[
        bool, Query(description="true: import; false: only report what would be imported.")
    ] = False,
) -> ForeignImport:
    """Import conversations from an export of ChatGPT (also its zip), Claude, Open WebUI or LibreChat, or
    lists of OpenAI messages. Stored turns are left alone: sending a file again adds only what is new."""
    plan = await container.foreign.run(await file_body(request), owner, apply=apply)
    listed = [
        PlannedConversation(
            session_id=each.session_id,
            title=each.title,
            turns=each.turns,
            fresh=len(each.fresh),
            branches=each.branches,
            persona=bool(each.foreign.persona),
            attachments=each.foreign.attachments,
            orphans=each.foreign.orphans,
            left_out=each.foreign.left_out,
        )
        for each in plan.conversations
    ]
    return ForeignImport(product=plan.product, applied=apply, conversations=listed)


def attachment(title: str, session_id: str, extension: str) -> str:
    """Return the Content-Disposition (RFC 6266): a plain name for old clients, the title for others."""
    name = " ".join(_NOT_IN_NAMES.sub(" ", title).split())[:NAME_CHARS].strip(" .") or "wenmai"
    plain = f"wenmai-{session_id[:8]}.{extension}"
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(f'{name}.{extension}', safe='')}"


async def _markdown(copy: SessionCopy) -> AsyncIterator[str]:
    session = copy.session
    transcript = MarkdownTranscript("zh" if is_mostly_chinese(session.title) else "en")
    yield transcript.head(
        session.session_id, session.title, session.created_us, len(copy.nodes), session.persona
    )
    for stretch in stretches(copy.nodes, copy.parents):
        numbers = {turn_id: stretch.first + at for at, turn_id in enumerate(stretch.turn_ids)}
        yield transcript.heading(stretch)
        async for turns in copy.turns(stretch.turn_ids):
            yield "".join([transcript.turn(numbers[turn.turn_id], turn) for turn in turns])


async def _json(copy: SessionCopy) -> AsyncIterator[str]:
    head = json.dumps(exported_session(copy.session), ensure_ascii=False, indent=1)
    yield head.removesuffix("\n}") + ',\n "turns": ['
    between = "\n"
    async for turns in copy.turns(parents_first(copy.nodes, copy.parents)):
        for turn in turns:
            images = await copy.images(turn)
            yield between + json.dumps(exported_turn(turn, copy.has, images), ensure_ascii=False)
            between = ",\n"
    yield "\n]}\n"


def exported_session(session: Session) -> dict[str, Any]:
    """Return what POST /sessions/import takes, without the turns; unknown times are left out."""
    body = _dumped(session_reply(session))
    for name in CHOICES:  # they name things that exist on this server only
        body.pop(name, None)
    if session.persona is not None and not is_moment(session.persona.updated_us):
        del body["persona"]["updated_at"]
    times = {"created_at": session.created_us, "updated_at": session.updated_us}
    return {name: value for name, value in body.items() if is_moment(times.get(name, 1))}


def exported_turn(
    turn: Turn, exported: Callable[[str], bool], images: Sequence[ImageData] = ()
) -> dict[str, Any]:
    """Return a turn as POST /sessions/import takes it; `exported` says which turns are in the export.

    Its sources are as stored: a copy does not say whether their documents still exist.
    """
    running = turn.status is TurnStatus.RUNNING
    return {
        "turn_id": turn.turn_id,
        "parent_turn_id": turn.parent_turn_id,
        **({"timestamp": turn.timestamp} if is_moment(turn.created_us) else {}),
        "status": (TurnStatus.INTERRUPTED if running else turn.status).value,
        **{name: getattr(turn, name) for name in AS_STORED},
        "sources": [_dumped(citation_reply(citation)) for citation in turn.sources],
        "usage": asdict(turn.usage),
        "summary": _exported_summary(turn.summary, exported),
        "filters": _dumped(limits_reply(turn.filters)),
        "request": asdict(turn.request) if turn.request else None,
        "feedback": asdict(turn.feedback) if turn.feedback else None,
        "warnings": [_dumped(warning_reply(warning)) for warning in turn.warnings],
        "rewritten_question": _exported_rewritten(turn.rewritten, exported),
        "tool_calls": [asdict(use) for use in settled_calls(turn)],
        "images": [data_url(image) for image in images],
    }


def _exported_summary(summary: Summary | None, exported: Callable[[str], bool]) -> dict[str, Any] | None:
    """Also None if a turn it names has been erased: it could not be imported again."""
    if summary is None:
        return None
    body = asdict(summary)
    del body["created_us"]
    named = (summary.start, *summary.covers, summary.previous or summary.start)
    created_at = rfc3339(max(summary.created_us, 1))  # never "unknown", which an import refuses
    return {**body, "created_at": created_at} if all(map(exported, named)) else None


def _exported_rewritten(
    rewritten: RewrittenQuestion | None, exported: Callable[[str], bool]
) -> dict[str, Any] | None:
    """Also None if a turn it draws on has been erased."""
    if rewritten is None or not all(map(exported, rewritten.turn_ids)):
        return None
    return {"text": rewritten.text, "turn_ids": list(rewritten.turn_ids)}


def _dumped(reply: Reply) -> dict[str, Any]:
    return reply.model_dump(mode="json", exclude_unset=True)


async def _read(request: Request, owner: Owner) -> ImportedSession:
    """Parse in a thread: a body may have 20,000 turns."""
    check_headers(request)
    body = await request.body()
    return await asyncio.to_thread(lambda: read_model(ImportBody, body).to_import(owner))


@router.post(
    "/sessions/import",
    status_code=201,
    openapi_extra=body_schema(ImportBody),
    responses=errors(400, 401, 409, 413, 415, 422, 503),
)
async def import_session(
    container: ContainerDep, session: Annotated[ImportedSession, Depends(_read)]
) -> ImportedConversation:
    """Import a conversation, completely or not at all. Its turns are embedded in the background."""
    imported = await container.sessions.importer.run(session)
    return ImportedConversation(
        session_id=imported.session_id, turns=list(imported.turn_ids), indexing=imported.indexing
    )
