"""Rebuild a stored turn's prompt from what is stored, and compare it with what was sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo

import structlog

from core.conversation.turns import ManifestPart, PromptManifest, Turn
from core.images import ImageData
from core.knowledge import Candidate, Chunk, Citation
from core.memory.record import Memory
from core.prompt.exchange import is_fielded, messages_key, rebuild_body, rebuild_fielded, wire_messages
from core.prompt.fence import memory_lines, render_knowledge
from core.prompt.layouts import lay_out, lay_steps
from core.prompt.messages import (
    LAYOUT_TEXTS,
    Layout,
    Message,
    Part,
    PromptTexts,
    Role,
    ToolCall,
    answer_in_history,
    question_in_history,
    step_messages,
    tool_messages,
)
from core.text import canonical_uuid
from services.conversation.turns import TurnStore

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ShownPart:
    """`text` is None if the part was left out, or has been erased since (`removed`)."""

    part: ManifestPart
    text: str | None
    removed: bool


@dataclass(frozen=True, slots=True)
class ShownPrompt:
    """`body` is the request's JSON text; None if nothing was sent, a part has been erased, or the record
    cannot be read. `exact`: its hash is that of the request that was sent."""

    turn: Turn
    manifest: PromptManifest | None
    parts: tuple[ShownPart, ...] = ()
    body: str | None = None
    exact: bool = False


async def show_prompt(
    turns: TurnStore,
    turn: Turn,
    memories: Sequence[Memory],
    images: Sequence[ImageData],
    zone: tzinfo | None,
) -> ShownPrompt:
    """`memories` are those in its prompt that still exist, `images` those of its question.

    Raises StoreUnavailableError.
    """
    manifest = turn.prompt
    if manifest is None:
        return ShownPrompt(turn, None)
    named = {part.turn_id for part in manifest.parts if part.kept and part.turn_id}
    read = await turns.get_many(sorted(each for each in named if canonical_uuid(each) == each))
    by_id = {each.turn_id: each for each in read if each.owner == turn.owner}
    lines = memory_lines(memories, zone) if len(memories) == len(manifest.memory_ids) else None
    stored = _Stored(turn, by_id, lines, tuple(images))
    shown = _rebuilt(manifest, stored)
    if shown.body is None or shown.exact:
        return shown
    before = _rebuilt(manifest, replace(stored, with_marks=True))
    return before if before.exact else shown


@dataclass(frozen=True, slots=True)
class _Stored:
    """Sources of the parts' texts: the turn, the turns it names, its memory lines (None if one is gone), its
    images. `with_marks`: as earlier versions sent it, with citation marks in earlier answers."""

    turn: Turn
    named: Mapping[str, Turn]
    lines: str | None
    images: tuple[ImageData, ...] = ()
    with_marks: bool = False


def _rebuilt(manifest: PromptManifest, stored: _Stored) -> ShownPrompt:
    turn = stored.turn
    parts = tuple(_shown(part, stored) for part in manifest.parts)
    if not manifest.request_sha256 or any(part.removed for part in parts):
        return ShownPrompt(turn, manifest, parts)
    body = _body(manifest, parts, stored)
    if body is None:
        log.warning("prompt_unreadable", turn_id=turn.turn_id)
        return ShownPrompt(turn, manifest, parts)
    exact = hashlib.sha256(body).hexdigest() == manifest.request_sha256
    shown = body.decode()
    for each in stored.images:  # megabytes that nobody would read
        shown = shown.replace(each.base64, f"[{each.image.size_bytes} bytes]")
    return ShownPrompt(turn, manifest, parts, shown, exact)


def _shown(part: ManifestPart, stored: _Stored) -> ShownPart:
    text = None
    if part.call_ids:
        text = _tool_text(part, stored.named.get(part.turn_id or ""))
    elif part.kept:
        text = stored.lines if part.memory_ids else _text(part, stored)
    is_whole = part.images in (0, len(stored.images))
    return ShownPart(part, text, removed=part.kept and (text is None or not is_whole))


def _tool_text(part: ManifestPart, named: Turn | None) -> str | None:
    """Return a tool's result as it was resent, "" for the message that called it, None if one is missing."""
    messages = [*tool_messages(named.tool_calls, Part.RECENT)] if named else []
    asked = {call.call_id for message in messages for call in message.tool_calls}
    if not asked.issuperset(part.call_ids):
        return None
    if part.role != Role.TOOL:
        return ""
    return next(message.content for message in messages if message.tool_call_id == part.call_ids[0])


def _text(part: ManifestPart, stored: _Stored) -> str | None:
    if part.text is not None:
        return part.text
    turn, named = stored.turn, stored.named.get(part.turn_id or "")
    code = turn.prompt.texts.get("code", "") if turn.prompt else ""
    match part.part:
        case Part.QUESTION:
            return turn.question
        case Part.KNOWLEDGE:
            return render_knowledge([_candidate(citation) for citation in turn.sources], code)
        case Part.SUMMARY:
            return named.summary.text if named and named.summary else None
        case Part.RELEVANT | Part.RECENT if named and part.role == Role.USER:
            return question_in_history(named)
        case Part.RELEVANT | Part.RECENT if named:
            return named.answer if stored.with_marks else answer_in_history(named)
        case _:
            return None


def _candidate(citation: Citation) -> Candidate:
    chunk = Chunk(
        chunk_id=citation.chunk_id,
        document_id=citation.document_id,
        file_name=citation.file_name,
        text=citation.text,
        position=0,
        heading=citation.heading,
    )
    return Candidate(chunk, probability=citation.score)


def _body(manifest: PromptManifest, parts: tuple[ShownPart, ...], stored: _Stored) -> bytes | None:
    """Return None when the record cannot be read: unknown part or layout, or no parameters."""
    turn = stored.turn
    try:
        messages = [_message(shown, stored) for shown in parts if shown.part.kept]
        layout, params = Layout(manifest.layout), json.loads(manifest.params)
        if not messages or not isinstance(params, dict):
            return None
        texts = PromptTexts("", **{name: manifest.texts.get(name, "") for name in LAYOUT_TEXTS})
        steps = list(step_messages(turn.answer, turn.tool_calls))
        laid = lay_steps(lay_out(messages, layout, texts), steps, layout, texts)
        if is_fielded(params):
            return rebuild_fielded(params, laid)
        key = messages_key(params)
        return rebuild_body(params, key, wire_messages(laid, key))
    except (ValueError, RecursionError):
        return None


def _message(shown: ShownPart, stored: _Stored) -> Message:
    """Raises ValueError for an unknown role or part."""
    part = shown.part
    images = stored.images if part.images else ()
    message = Message(Role(part.role), shown.text or "", Part(part.part), part.turn_id, images=images)
    if not part.call_ids:
        return message
    if message.role is Role.TOOL:
        return replace(message, tool_call_id=part.call_ids[0])
    uses = {use.id: use for use in stored.named[part.turn_id or ""].tool_calls}
    called = [uses[call_id] for call_id in part.call_ids]
    calls = tuple(ToolCall(use.id, use.function.name, use.function.arguments) for use in called)
    return replace(message, tool_calls=calls)
