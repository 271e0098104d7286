"""A turn as it is stored: the payload of one point in the conversation collection."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

import structlog
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from core.conversation.turns import (
    MAX_WARNINGS,
    TURN_SCHEMA,
    AskedWith,
    Feedback,
    RewrittenQuestion,
    Summary,
    Turn,
    TurnStatus,
    TurnWarning,
    Usage,
)
from core.knowledge import Citation, KnowledgeFilter
from core.limits import NO_LIMITS
from core.prompt.manifest import PromptManifest
from core.relevance.query import SparseTerms
from services.store.dialect import SparseVector
from services.store.lenient import read_leniently

log = structlog.get_logger()
T = TypeVar("T")

SKELETON_FIELDS = ["turn_id", "parent_turn_id", "created_us", "seq", "status", "command", "summary_start"]
_MANIFEST = TypeAdapter(PromptManifest)
_SUMMARY = TypeAdapter(Summary)
_CITATION = TypeAdapter(Citation)
_USAGE = TypeAdapter(Usage)
_FILTERS = TypeAdapter(KnowledgeFilter)
_REQUEST = TypeAdapter(AskedWith)
_FEEDBACK = TypeAdapter(Feedback)
_WARNING = TypeAdapter(TurnWarning)
_REWRITTEN = TypeAdapter(RewrittenQuestion)
_Finite = Annotated[float, Field(allow_inf_nan=False)]


class TurnPayload(BaseModel):
    """The stored form. The first eight fields keep the names that earlier versions wrote."""

    model_config = ConfigDict(extra="ignore")

    session_id: str
    user_query: str
    assistant_response: str = ""
    timestamp: str = ""
    context_docs: list[Any] = Field(default_factory=list)
    token_count: int = 0
    turn_id: str
    parent_turn_id: str | None = None
    owner: str = ""
    status: TurnStatus = TurnStatus.COMPLETED
    model_id: str = "default"
    thinking: str = ""
    sources: list[Any] = Field(default_factory=list)
    seq: int = 0
    created_us: int = 0
    prompt: Any = None
    summary: Any = None
    summary_start: str | None = None
    command: str = ""
    usage: Any = None
    timings_ms: dict[str, _Finite] = Field(default_factory=dict)
    request_hash: str = ""
    layout: list[int] = Field(default_factory=list)
    finish_reason: str = ""
    filters: Any = None
    request: Any = None
    feedback: Any = None
    warnings: list[Any] = Field(default_factory=list)
    rewritten_question: Any = None
    schema_version: int = Field(TURN_SCHEMA, alias="schema")


def to_payload(turn: Turn) -> dict[str, Any]:
    """The JSON object that is stored; `context_docs` names the chunks shown to the model, best first."""
    payload = TurnPayload(
        session_id=turn.session_id,
        user_query=turn.user_query,
        assistant_response=turn.assistant_response,
        timestamp=turn.timestamp,
        context_docs=[citation.chunk_id for citation in turn.sources],
        token_count=turn.token_count,
        turn_id=turn.turn_id,
        parent_turn_id=turn.parent_turn_id,
        owner=turn.owner,
        status=turn.status,
        model_id=turn.model_id,
        thinking=turn.thinking,
        sources=[asdict(citation) for citation in turn.sources],
        seq=turn.seq,
        created_us=turn.created_us,
        prompt=asdict(turn.prompt) if turn.prompt else None,
        command=turn.command,
        usage=asdict(turn.usage),
        timings_ms=turn.timings_ms,
        request_hash=turn.request_hash,
        layout=list(turn.layout),
        finish_reason=turn.finish_reason,
        filters=None if turn.filters.limits_nothing else asdict(turn.filters),
        request=asdict(turn.request) if turn.request else None,
        **feedback_payload(turn.feedback),
        warnings=[asdict(warning) for warning in turn.warnings],
        **rewritten_payload(turn.rewritten),
        schema=TURN_SCHEMA,
    )
    summary = summary_payload(turn.summary) if turn.summary else {}
    return {**payload.model_dump(mode="json", by_alias=True), **summary}


def summary_payload(summary: Summary | None) -> dict[str, Any]:
    """The fields of a turn that hold its summary; None takes it away."""
    start = summary.start if summary else None
    return {"summary": asdict(summary) if summary else None, "summary_start": start}


def feedback_payload(feedback: Feedback | None) -> dict[str, Any]:
    """The field of a turn that holds its feedback; None, or what says nothing, takes it away."""
    return {"feedback": asdict(feedback) if feedback and not feedback.says_nothing else None}


def rewritten_payload(rewritten: RewrittenQuestion | None) -> dict[str, Any]:
    """The field of a turn that holds its rewritten question; None takes it away."""
    return {"rewritten_question": asdict(rewritten) if rewritten else None}


def from_payload(stored: Mapping[str, Any], turn_id: str) -> Turn:
    """Read a stored payload back. `turn_id` is the point's, which counts whatever the payload says.

    What cannot be read takes its default; unreadable sources are dropped. Raises pydantic.ValidationError
    when there is no session or no question.
    """
    payload = read_leniently(TurnPayload, {**stored, "turn_id": turn_id}, turn_id)
    return Turn(
        turn_id=turn_id,
        session_id=payload.session_id,
        owner=payload.owner,
        user_query=payload.user_query,
        created_us=payload.created_us,
        status=payload.status,
        parent_turn_id=payload.parent_turn_id,
        assistant_response=payload.assistant_response,
        thinking=payload.thinking,
        sources=_sources(payload.sources, turn_id),
        seq=payload.seq,
        model_id=payload.model_id,
        token_count=payload.token_count,
        usage=_read(_USAGE, payload.usage, turn_id) or Usage(),
        timings_ms=payload.timings_ms,
        prompt=_read(_MANIFEST, payload.prompt, turn_id),
        summary=_read(_SUMMARY, payload.summary, turn_id),
        command=payload.command,
        request_hash=payload.request_hash,
        layout=tuple(payload.layout),
        finish_reason=payload.finish_reason,
        filters=_read(_FILTERS, payload.filters, turn_id) or NO_LIMITS,
        request=_read(_REQUEST, payload.request, turn_id),
        feedback=_read(_FEEDBACK, payload.feedback, turn_id),
        warnings=_warnings(payload.warnings, turn_id),
        rewritten=_read(_REWRITTEN, payload.rewritten_question, turn_id),
    )


def _read(form: TypeAdapter[T], stored: Any, turn_id: str) -> T | None:
    """What accompanies a turn is not worth losing the turn for."""
    if not stored:
        return None
    try:
        return form.validate_python(stored)
    except ValidationError as error:
        log.warning("part_of_turn_unreadable", turn_id=turn_id, errors=error.error_count())
        return None


def _sources(stored: Sequence[Any], turn_id: str) -> tuple[Citation, ...]:
    read = [_read(_CITATION, source, turn_id) for source in stored]
    return tuple([source for source in read if source is not None and math.isfinite(source.score)])


def _warnings(stored: Sequence[Any], turn_id: str) -> tuple[TurnWarning, ...]:
    read = [_read(_WARNING, warning, turn_id) for warning in stored[:MAX_WARNINGS]]
    return tuple([warning for warning in read if warning is not None])


def sparse_vector(terms: SparseTerms) -> SparseVector:
    return SparseVector(indices=terms.indices, values=terms.values)
