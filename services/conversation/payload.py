"""A turn as it is stored: the payload of one point in the conversation collection."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Annotated, Any, TypeVar, cast

import structlog
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from core.conversation.turns import (
    MAX_WARNINGS,
    TURN_SCHEMA,
    AskedWith,
    Feedback,
    PromptManifest,
    RewrittenQuestion,
    Summary,
    Turn,
    TurnStatus,
    TurnWarning,
    Usage,
)
from core.knowledge import Citation, KnowledgeFilter
from services.store.lenient import read_leniently

log = structlog.get_logger()
T = TypeVar("T")

SKELETON_FIELDS = ["turn_id", "parent_turn_id", "created_us", "seq", "status", "command", "summary_start"]
_CITATION = TypeAdapter(Citation)
_WARNING = TypeAdapter(TurnWarning)
_PARTS: Mapping[str, TypeAdapter[Any]] = {
    "usage": TypeAdapter(Usage),
    "prompt": TypeAdapter(PromptManifest),
    "summary": TypeAdapter(Summary),
    "filters": TypeAdapter(KnowledgeFilter),
    "request": TypeAdapter(AskedWith),
    "feedback": TypeAdapter(Feedback),
    "rewritten": TypeAdapter(RewrittenQuestion),
}
_PLAIN = frozenset(each.name for each in fields(Turn)) - {*_PARTS, "sources", "warnings"}
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
    layout: tuple[int, ...] = ()
    finish_reason: str = ""
    filters: Any = None
    request: Any = None
    feedback: Any = None
    warnings: list[Any] = Field(default_factory=list)
    rewritten: Any = Field(None, alias="rewritten_question")
    schema_version: int = Field(TURN_SCHEMA, alias="schema")


def to_payload(turn: Turn) -> dict[str, Any]:
    """The JSON object that is stored; `context_docs` names the chunks shown to the model, best first."""
    payload = {
        **asdict(turn),
        "timestamp": turn.timestamp,
        "context_docs": [citation.chunk_id for citation in turn.sources],
        "filters": None if turn.filters.limits_nothing else asdict(turn.filters),
        **summary_payload(turn.summary),
        **feedback_payload(turn.feedback),
        **rewritten_payload(turn.rewritten),
        "schema": TURN_SCHEMA,
    }
    del payload["rewritten"]
    return cast(dict[str, Any], to_jsonable_python(payload))


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
    read = {name: _read(form, getattr(payload, name), turn_id) for name, form in _PARTS.items()}
    return Turn(
        **{name: value for name, value in payload if name in _PLAIN},
        **{name: part for name, part in read.items() if part is not None},
        sources=_sources(payload.sources, turn_id),
        warnings=_warnings(payload.warnings, turn_id),
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
