"""Cut a text event so that text never continues after a line break inside one event (PROTOCOL section 2)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from core.events import ContentEvent, Event, ThinkEvent

_PIECE = re.compile(r"[^\n]*\n+|[^\n]+")


def line_safe(event: Event) -> Iterator[Event]:
    """The same event, or several whose texts have newlines only at their end; nothing for an empty text."""
    if not isinstance(event, ContentEvent | ThinkEvent):
        yield event
        return
    if event.text and "\n" not in event.text:
        yield event
        return
    for piece in _PIECE.findall(event.text):
        yield type(event)(piece)
