"""Conversations to keep: the whole session as Markdown to read, or as JSON that an import takes back."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Annotated, Literal
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from api.sessions.export import SessionCopy
from core.conversation.transcript import MarkdownTranscript, parents_first, stretches
from core.text import is_mostly_chinese
from routes.dependencies import ContainerDep, Owner
from routes.openapi import Responses, errors
from routes.wire import exported_session, exported_turn

router = APIRouter(tags=["sessions"], responses=errors(401, 404, 422, 503))

NAME_CHARS = 80
MEDIA_TYPES = {"md": "text/markdown", "json": "application/json"}
# Separators, what Windows refuses, controls, and characters that turn the text around or cannot be seen.
_NOT_IN_NAMES = re.compile(
    '[<>:"/\\\\|?*\\x00-\\x1f\\x7f-\\x9f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ud800-\\udfff]+'
)

COPY: Responses = {
    200: {
        "description": "The session as a file.",
        "content": {name: {"schema": {"type": "string"}} for name in MEDIA_TYPES.values()},
    }
}


@router.get("/sessions/{session_id}/export", response_class=StreamingResponse, responses=COPY)
async def export_session(
    session_id: UUID,
    container: ContainerDep,
    owner: Owner,
    form: Annotated[Literal["md", "json"], Query(alias="format")] = "md",
) -> StreamingResponse:
    """The whole tree as a file: Markdown to read, or JSON that POST /sessions/import takes back."""
    copy = await container.sessions.copy(str(session_id), owner)
    pieces = _markdown(copy) if form == "md" else _json(copy)
    headers = {"Content-Disposition": attachment(copy.session.title, str(session_id), form)}
    return StreamingResponse(pieces, media_type=f"{MEDIA_TYPES[form]}; charset=utf-8", headers=headers)


def attachment(title: str, session_id: str, extension: str) -> str:
    """The Content-Disposition (RFC 6266): a plain name for old clients, the title for the others."""
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
            yield between + json.dumps(exported_turn(turn, copy.has), ensure_ascii=False)
            between = ",\n"
    yield "\n]}\n"
