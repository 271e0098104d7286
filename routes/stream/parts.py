"""The parts of a turn's events that are objects: progress, citations, warnings."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from core.citing.citations import KnownDocuments
from core.conversation.events import SourceEvent, StatusEvent
from core.conversation.turns import TurnWarning
from core.knowledge import Citation
from routes.wire import turns

_CITED = tuple(field.name for field in fields(Citation))  # asdict copies them one by one: twice the time


def status_object(event: StatusEvent) -> dict[str, Any]:
    return {"stage": event.stage, "message": event.message, **event.fields}


def citation_objects(event: SourceEvent) -> list[dict[str, Any]]:
    """As JSON objects, for a frame."""
    return [
        citation_reply(citation, event.documents).model_dump(exclude_unset=True)
        for citation in event.citations
    ]


def citation_reply(citation: Citation, documents: KnownDocuments | None = None) -> turns.Citation:
    """`cited`, `removed` and `outdated` are set only when they are true.

    The last two need the `documents` that are stored.
    """
    body: dict[str, Any] = {name: getattr(citation, name) for name in _CITED}
    if not citation.cited:
        del body["cited"]
    if documents is not None and documents.lack(citation):
        body["removed"] = True
    if documents is not None and documents.changed(citation):
        body["outdated"] = True
    return turns.Citation(**body)


def warning_reply(warning: TurnWarning) -> turns.TurnWarning:
    """As the STATUS event had it, but for its stage."""
    return turns.TurnWarning(code=warning.code, message=warning.message, **warning.counts)
