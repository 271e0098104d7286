"""Domain objects as the JSON that goes over the wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from api.search.stages import Judged
from core.citing.citations import KnownDocuments
from core.conversation.branch import TurnNode
from core.conversation.persona import Persona
from core.conversation.turns import RewrittenQuestion, Summary, Turn, TurnStatus, TurnWarning, rfc3339
from core.knowledge import Chunk, KnowledgeFilter
from core.moments import is_moment
from routes.sse import citation_object
from services.conversation.sessions import Session


def session_object(session: Session, turn_count: int | None = None) -> dict[str, Any]:
    body: dict[str, Any] = {
        "session_id": session.session_id,
        "title": session.title,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
        "hold": session.hold,
        "expire_days": session.expire_days,
        "persona": persona_object(session.persona) if session.persona else None,
    }
    return body if turn_count is None else {**body, "turn_count": turn_count}


def persona_object(persona: Persona) -> dict[str, Any]:
    body = asdict(persona)
    del body["updated_us"]
    return {**body, "updated_at": rfc3339(persona.updated_us)}


def turn_object(turn: Turn, documents: KnownDocuments) -> dict[str, Any]:
    """`finish_reason`, `command`, `summary`, `filters`, `request`, `feedback`, `warnings` and
    `rewritten_question` are there only where the turn has one.

    `documents` are those of its sources that are there.
    """
    body: dict[str, Any] = {
        "turn_id": turn.turn_id,
        "session_id": turn.session_id,
        "parent_turn_id": turn.parent_turn_id,
        "user_query": turn.user_query,
        "assistant_response": turn.assistant_response,
        "thinking": turn.thinking,
        "sources": [citation_object(citation, documents) for citation in turn.sources],
        "status": turn.status.value,
        "timestamp": turn.timestamp,
        "seq": turn.seq,
        "model_id": turn.model_id,
        "token_count": turn.token_count,
        "usage": asdict(turn.usage),
        "timings_ms": turn.timings_ms,
    }
    if turn.finish_reason:
        body["finish_reason"] = turn.finish_reason
    if turn.command:
        body["command"] = turn.command
    if turn.summary is not None:
        body["summary"] = summary_object(turn.summary)
    if not turn.filters.limits_nothing:
        body["filters"] = filters_object(turn.filters)
    if turn.request is not None:
        body["request"] = asdict(turn.request)
    if turn.feedback is not None:
        body["feedback"] = asdict(turn.feedback)
    if turn.warnings:
        body["warnings"] = [warning_object(warning) for warning in turn.warnings]
    if turn.rewritten is not None:
        body["rewritten_question"] = turn.rewritten.text
    return body


def warning_object(warning: TurnWarning) -> dict[str, Any]:
    """As the STATUS event had it, but for its stage."""
    return {"code": warning.code, "message": warning.message, **warning.counts}


def filters_object(filters: KnowledgeFilter) -> dict[str, Any]:
    """As a request takes them; only what limits."""
    return {name: value for name, value in asdict(filters).items() if value}


def summary_object(summary: Summary) -> dict[str, Any]:
    """What it says, the first turn it covers, and how many it was made of."""
    return {"text": summary.text, "start": summary.start, "covers": len(summary.covers)}


def node_object(node: TurnNode, question: str) -> dict[str, Any]:
    """A turn of the tree; of its texts only the question, shortened to one line."""
    return {
        "turn_id": node.turn_id,
        "parent_turn_id": node.parent_turn_id,
        "status": node.status.value,
        "created_at": rfc3339(node.created_us),
        "seq": node.seq,
        "command": node.command,
        "has_summary": node.has_summary,
        "question": question,
    }


def chunk_object(chunk: Chunk) -> dict[str, Any]:
    return asdict(chunk)


def candidate_object(judged: Judged) -> dict[str, Any]:
    """A candidate with its rank and score at each stage, and the stage that dropped it."""
    candidate = judged.candidate
    return {
        **chunk_object(candidate.chunk),
        **stages_object(judged),
        "probability": candidate.probability,
        "key_passage": candidate.key_passage,
        "kept": judged.dropped_by is None,
        "dropped_by": judged.dropped_by,
    }


def stages_object(judged: Judged) -> dict[str, Any]:
    """Null where it did not come that far; in a list, a null rank: that list did not bring it."""
    candidate = judged.candidate
    reranked = {"rank": judged.reranked_rank, "probability": candidate.probability}
    return {
        "dense": {"rank": candidate.dense_rank, "score": candidate.dense},
        "sparse": {"rank": candidate.sparse_rank, "score": candidate.sparse},
        "fused": {"rank": judged.fused_rank, "score": candidate.fused},
        "reranked": reranked if judged.reranked_rank is not None else None,
        "budget": {"index": judged.index, "tokens": judged.tokens} if judged.tokens is not None else None,
    }


def exported_session(session: Session) -> dict[str, Any]:
    """What POST /sessions/import takes, but for the turns; a time that is not known is left out."""
    body = session_object(session)
    if session.persona is not None and not is_moment(session.persona.updated_us):
        del body["persona"]["updated_at"]
    times = {"created_at": session.created_us, "updated_at": session.updated_us}
    return {name: value for name, value in body.items() if is_moment(times.get(name, 1))}


def exported_turn(turn: Turn, exported: Callable[[str], bool]) -> dict[str, Any]:
    """A turn as POST /sessions/import takes it; `exported` tells which turns are brought along.

    Its sources as they are stored: whether their documents are still there is no part of a copy.
    """
    running = turn.status is TurnStatus.RUNNING
    return {
        "turn_id": turn.turn_id,
        "parent_turn_id": turn.parent_turn_id,
        **({"timestamp": turn.timestamp} if is_moment(turn.created_us) else {}),
        "status": (TurnStatus.INTERRUPTED if running else turn.status).value,
        "question": turn.user_query,
        "answer": turn.assistant_response,
        "thinking": turn.thinking,
        "sources": [citation_object(citation) for citation in turn.sources],
        "model_id": turn.model_id,
        "command": turn.command,
        "token_count": turn.token_count,
        "usage": asdict(turn.usage),
        "timings_ms": turn.timings_ms,
        "finish_reason": turn.finish_reason,
        "summary": _exported_summary(turn.summary, exported),
        "filters": filters_object(turn.filters),
        "request": asdict(turn.request) if turn.request else None,
        "feedback": asdict(turn.feedback) if turn.feedback else None,
        "warnings": [warning_object(warning) for warning in turn.warnings],
        "rewritten_question": _exported_rewritten(turn.rewritten, exported),
    }


def _exported_summary(summary: Summary | None, exported: Callable[[str], bool]) -> dict[str, Any] | None:
    """None, too, when a turn that it names is gone: it could not be brought in again."""
    if summary is None:
        return None
    body = asdict(summary)
    del body["created_us"]
    named = (summary.start, *summary.covers, summary.previous or summary.start)
    created_at = rfc3339(max(summary.created_us, 1))  # never "not known", which an import refuses
    return {**body, "created_at": created_at} if all(map(exported, named)) else None


def _exported_rewritten(
    rewritten: RewrittenQuestion | None, exported: Callable[[str], bool]
) -> dict[str, Any] | None:
    """None, too, when a turn that it was made of is gone."""
    if rewritten is None or not all(map(exported, rewritten.turn_ids)):
        return None
    return {"text": rewritten.text, "turn_ids": list(rewritten.turn_ids)}
