"""Build wire replies from sessions and turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeVar

from fastapi.responses import StreamingResponse

from api.sessions.shown_prompt import ShownPart, ShownPrompt
from api.turn.running import RunningTurns
from core.citing.citations import KnownDocuments
from core.conversation.sessions import CHOICES, Session, TurnMatch
from core.conversation.turns import Summary, Turn, settled_calls
from core.knowledge import KnowledgeFilter
from routes.stream import citation_reply, warning_reply
from routes.wire import sessions, turns
from routes.wire.fields import Reply

T = TypeVar("T")

AT_ONCE = 500  # small replies: some milliseconds


def session_reply(session: Session, **known: Any) -> sessions.Session:
    """`known`: its `turn_count`, `state` and `match`, absent if not known."""
    always = {each.name: getattr(session, each.name) for each in fields(session) if each.name not in CHOICES}
    return sessions.Session.model_validate(always | session.choices | known)


def whole_session(
    running: RunningTurns, session: Session, turn_count: int, match: TurnMatch | None = None
) -> sessions.Session:
    """`match`: where it contains the search text."""
    pending = running.is_pending(session.session_id, session.owner)
    found = {"match": sessions.TurnMatch(turn_id=match.turn_id, text=match.text)} if match else {}
    return session_reply(session, turn_count=turn_count, state="pending" if pending else "idle", **found)


def turn_reply(turn: Turn, documents: KnownDocuments) -> turns.Turn:
    """`documents` are those of its sources that are stored. Fields that only some turns have are absent from
    the others."""
    shaped: dict[str, Any] = {
        "sources": [citation_reply(citation, documents) for citation in turn.sources],
        "summary": _summary(turn.summary) if turn.summary else None,
        "filters": None if turn.filters.limits_nothing else limits_reply(turn.filters),
        "warnings": [warning_reply(warning) for warning in turn.warnings],
        "rewritten_question": turn.rewritten.text if turn.rewritten else None,
        "memory_ids": list(turn.prompt.memory_ids) if turn.prompt else None,
        "tool_calls": [turns.ToolUse.model_validate(use) for use in settled_calls(turn)],
        "images": [turns.QuestionImage.model_validate(image) for image in turn.images],
    }
    body = {
        name: value
        for name, field in turns.Turn.model_fields.items()
        if (value := shaped[name] if name in shaped else getattr(turn, name)) or field.is_required()
    }
    return turns.Turn(**body)


async def streamed(name: str, batches: AsyncIterator[Sequence[Reply]]) -> StreamingResponse:
    """Return an object whose only field is a list, written batch by batch: of a session with tens of
    thousands of turns the whole is a hundred megabytes, and nobody else would be answered meanwhile. Raises
    as the first batch does.
    """

    async def pieces() -> AsyncIterator[str]:
        before = f'{{"{name}":['
        async for batch in batches:
            if batch:
                yield before + _listed(batch)
                before = ","
        yield "]}" if before == "," else before + "]}"

    return await begun(pieces(), "application/json")


async def begun(
    pieces: AsyncIterator[str], media_type: str, headers: Mapping[str, str] | None = None
) -> StreamingResponse:
    """Respond with the pieces, the first of which is made before: its errors still get their status."""
    first = await anext(pieces)

    async def every() -> AsyncIterator[str]:
        yield first
        async for piece in pieces:
            yield piece

    return StreamingResponse(every(), media_type=media_type, headers=headers)


async def in_batches(items: Sequence[T], reply: Callable[[T], Reply]) -> AsyncIterator[list[Reply]]:
    """Yield the items' replies; others are answered between two batches."""
    for start in range(0, len(items), AT_ONCE):
        yield [reply(item) for item in items[start : start + AT_ONCE]]
        await asyncio.sleep(0)


def _listed(replies: Sequence[Reply]) -> str:
    return ",".join([reply.model_dump_json(exclude_unset=True) for reply in replies])


def _summary(summary: Summary) -> turns.Summary:
    return turns.Summary(text=summary.text, start=summary.start, covers=len(summary.covers))


def _part_reply(shown: ShownPart) -> turns.PromptPart:
    fields = {**asdict(shown.part), "text": shown.text}
    fields |= {name: list(fields[name]) for name in ("memory_ids", "call_ids")}
    for name in ("memory_ids", "call_ids", "images"):
        if not fields[name]:
            del fields[name]
    return turns.PromptPart(**fields, removed=shown.removed)


def limits_reply(filters: KnowledgeFilter) -> turns.Limits:
    """Include only filters that limit."""
    return turns.Limits(**{name: value for name, value in asdict(filters).items() if value})


def prompt_reply(shown: ShownPrompt) -> turns.Prompt:
    """`parts` is null if no record was kept (PROMPT_KEEP_DAYS), `request.body` if it cannot be shown."""
    manifest = shown.manifest
    if manifest is None:
        return turns.Prompt(turn_id=shown.turn.turn_id, model_id=shown.turn.model_id, parts=None)
    return turns.Prompt(
        turn_id=shown.turn.turn_id,
        model_id=manifest.model,
        layout=manifest.layout,
        window=manifest.window,
        answer_tokens=manifest.answer_tokens,
        prompt_tokens=manifest.prompt_tokens,
        filters=limits_reply(shown.turn.filters),
        parts=[_part_reply(part) for part in shown.parts],
        request=turns.PromptRequest(body=shown.body, sha256=manifest.request_sha256, exact=shown.exact),
        response=manifest.response,
    )
