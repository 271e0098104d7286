"""The events of one streamed turn: a closed union; docs/guide/en/api.md shows them on the wire."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from core.citing.citations import KnownDocuments
from core.knowledge import Citation
from core.text import scrub


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
    """`documents` says, when a stored turn is replayed, which of the citations' documents are left."""

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

_PIECE = re.compile(r"[^\n]*\n+|[^\n]+")


def line_safe(event: Event) -> Iterator[Event]:
    """The same event, or several whose texts have newlines only at their end: in the prefix format each line
    of an event is a line of its own. Nothing for an empty text.

    Text that nobody scrubbed is, so that no other line break is left.
    """
    if not isinstance(event, ContentEvent | ThinkEvent):
        yield event
        return
    if event.text and event.text.isprintable():
        yield event
        return
    for piece in _PIECE.findall(scrub(event.text)):
        yield type(event)(piece)


def layout_of(events: Iterable[Event | None]) -> tuple[int, ...]:
    """One number per event: the length of its answer text, minus that of its thinking, 0 for all others."""
    return tuple(_signed_length(event) for event in events)


def _signed_length(event: Event | None) -> int:
    match event:
        case ContentEvent(text):
            return len(text)
        case ThinkEvent(text):
            return -len(text)
        case _:
            return 0


def laid_out(layout: Iterable[int], content: str, thinking: str) -> Iterator[Event | None]:
    """The texts cut again as `layout` records; None where another kind of event had its number.

    None also where the text is not kept: thinking that turned out to be the answer was sent as both.
    """
    answered = thought = 0
    for length in layout:
        if length > 0:
            text = content[answered : answered + length]
            answered += length
            yield ContentEvent(text) if text else None
        else:
            text = thinking[thought : thought - length]
            thought -= length
            yield ThinkEvent(text) if text else None
