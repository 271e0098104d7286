"""What a turn's stream carries beside its answer and the turn keeps: warnings, the rewritten question."""

from __future__ import annotations

from core.conversation.events import StatusEvent
from core.conversation.turns import (
    MAX_REWRITTEN_CHARS,
    MAX_WARNING_CHARS,
    MAX_WARNING_COUNTS,
    MAX_WARNINGS,
    RewrittenQuestion,
    TurnWarning,
)

WARNING, REWRITING = "warning", "rewriting"


class TurnNotes:
    """Hears every STATUS event of one turn, with its number in the stream."""

    def __init__(self) -> None:
        self._warnings: list[TurnWarning] = []
        self._rewritten: tuple[str, int] | None = None

    @property
    def warnings(self) -> tuple[TurnWarning, ...]:
        """The first ones, in the order sent."""
        return tuple(self._warnings)

    def rewritten(self, turn_ids: tuple[str, ...]) -> RewrittenQuestion | None:
        """The rewritten question, made of these turns; None when none was sent."""
        if self._rewritten is None:
            return None
        text, at = self._rewritten
        return RewrittenQuestion(text, turn_ids, at)

    def hear(self, event: StatusEvent, at: int) -> None:
        if event.stage == WARNING and len(self._warnings) < MAX_WARNINGS:
            self._warnings.append(_warning(event, at))
        elif event.stage == REWRITING and (question := event.fields.get("question")):
            self._rewritten = str(question)[:MAX_REWRITTEN_CHARS], at


def replayed_warning(warning: TurnWarning) -> StatusEvent:
    """The event that it was."""
    return StatusEvent(WARNING, warning.message, {**warning.counts, "code": warning.code})


def _warning(event: StatusEvent, at: int) -> TurnWarning:
    counts = {name: value for name, value in event.fields.items() if isinstance(value, int)}
    first = dict(list(counts.items())[:MAX_WARNING_COUNTS])
    return TurnWarning(str(event.fields.get("code", "")), event.message[:MAX_WARNING_CHARS], first, at)
