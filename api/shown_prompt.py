"""The prompt of a stored turn, put together again from what is stored, and held against what was sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from core.exchange import MESSAGES, PROMPT, rebuild_body, wire_messages
from core.knowledge import Candidate, Chunk, Citation
from core.knowledge_context import render_knowledge
from core.layouts import lay_out
from core.manifest import ManifestPart, PromptManifest
from core.messages import Layout, Message, Part, PromptTexts, Role
from core.turns import Turn
from services.turn_store import TurnStore


@dataclass(frozen=True, slots=True)
class ShownPart:
    """`text` is None for what was left out, and for what was erased since (`removed`)."""

    part: ManifestPart
    text: str | None
    removed: bool


@dataclass(frozen=True, slots=True)
class ShownPrompt:
    """`body` is the request's JSON text, None when nothing was sent or a part of it is gone; `exact` says
    whether its hash is that of the request that was sent."""

    turn: Turn
    manifest: PromptManifest | None
    parts: tuple[ShownPart, ...] = ()
    body: str | None = None
    exact: bool = False


async def show_prompt(turns: TurnStore, turn: Turn) -> ShownPrompt:
    """Raises StoreUnavailableError."""
    manifest = turn.prompt
    if manifest is None:
        return ShownPrompt(turn, None)
    named = {part.turn_id for part in manifest.parts if part.kept and part.turn_id}
    told = {each.turn_id: each for each in await turns.get_many(sorted(named)) if each.owner == turn.owner}
    parts = tuple(_shown(part, turn, told) for part in manifest.parts)
    if not manifest.request_sha256 or any(part.removed for part in parts):
        return ShownPrompt(turn, manifest, parts)
    body = _body(manifest, parts)
    exact = hashlib.sha256(body).hexdigest() == manifest.request_sha256
    return ShownPrompt(turn, manifest, parts, body.decode(), exact)


def _shown(part: ManifestPart, turn: Turn, told: Mapping[str, Turn]) -> ShownPart:
    text = _text(part, turn, told.get(part.turn_id or "")) if part.kept else None
    return ShownPart(part, text, removed=part.kept and text is None)


def _text(part: ManifestPart, turn: Turn, named: Turn | None) -> str | None:
    if part.text is not None:
        return part.text
    match Part(part.part):
        case Part.QUESTION:
            return turn.user_query
        case Part.KNOWLEDGE:
            return render_knowledge([_candidate(citation) for citation in turn.sources])
        case Part.SUMMARY:
            return named.summary.text if named and named.summary else None
        case Part.RELEVANT | Part.RECENT if named:
            return named.user_query if part.role == Role.USER else named.assistant_response
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


def _body(manifest: PromptManifest, parts: tuple[ShownPart, ...]) -> bytes:
    told = [
        Message(Role(shown.part.role), shown.text or "", Part(shown.part.part), shown.part.turn_id)
        for shown in parts
        if shown.part.kept
    ]
    laid = lay_out(told, Layout(manifest.layout), PromptTexts(system="", **_introductions(manifest)))
    params = json.loads(manifest.params)
    key = PROMPT if PROMPT in params else MESSAGES
    return rebuild_body(params, key, wire_messages(laid, key))


def _introductions(manifest: PromptManifest) -> dict[str, str]:
    names = ("relevant_intro", "knowledge_intro", "summary_intro", "question_intro")
    return {name: manifest.texts.get(name, "") for name in names}
