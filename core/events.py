"""The events of one streamed turn: a closed union, in the grammar of PROTOCOL section 2."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from core.citations import KnownDocuments
from core.knowledge import Citation


@dataclass(frozen=True, slots=True)
class SessionEvent:
    session_id: str


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """Progress. `fields` are JSON values added beside `stage` and `message`."""

    stage: str
    message: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ThinkEvent:
    text: str


@dataclass(frozen=True, slots=True)
class ContentEvent:
    text: str


@dataclass(frozen=True, slots=True)
class SourceEvent:
    """`documents` says, when a stored turn is told again, which of the citations' documents are left."""

    citations: tuple[Citation, ...]
    documents: KnownDocuments | None = None


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """`message` is one plain sentence for a person; code and retryable travel in a STATUS `error`."""

    message: str


@dataclass(frozen=True, slots=True)
class DoneEvent:
    pass


Event = SessionEvent | StatusEvent | ThinkEvent | ContentEvent | SourceEvent | ErrorEvent | DoneEvent
