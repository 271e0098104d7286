"""Domain objects as the JSON that goes over the wire."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from core.branch import TurnNode
from core.knowledge import Candidate, Chunk
from core.turns import Turn
from routes.sse import citation_object
from services.sessions import Session


def session_object(session: Session, turn_count: int | None = None) -> dict[str, Any]:
    body: dict[str, Any] = {
        "session_id": session.session_id,
        "title": session.title,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
        "hold": session.hold,
    }
    return body if turn_count is None else {**body, "turn_count": turn_count}


def turn_object(turn: Turn) -> dict[str, Any]:
    return {
        "turn_id": turn.turn_id,
        "session_id": turn.session_id,
        "parent_turn_id": turn.parent_turn_id,
        "user_query": turn.user_query,
        "assistant_response": turn.assistant_response,
        "thinking": turn.thinking,
        "sources": [citation_object(citation) for citation in turn.sources],
        "status": turn.status.value,
        "timestamp": turn.timestamp,
        "seq": turn.seq,
        "model_id": turn.model_id,
        "token_count": turn.token_count,
        "usage": asdict(turn.usage),
        "timings_ms": turn.timings_ms,
    }


def node_object(node: TurnNode) -> dict[str, Any]:
    return {"turn_id": node.turn_id, "parent_turn_id": node.parent_turn_id, "status": node.status.value}


def chunk_object(chunk: Chunk) -> dict[str, Any]:
    return asdict(chunk)


def candidate_object(candidate: Candidate, dropped_by: str | None) -> dict[str, Any]:
    """A candidate with its rank and score at each stage, and the stage that dropped it."""
    body = asdict(candidate)
    return {
        **chunk_object(candidate.chunk),
        **{key: body[key] for key in body if key != "chunk"},
        "dropped_by": dropped_by,
    }
