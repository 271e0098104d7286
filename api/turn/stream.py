"""A turn's stream: numbered events (a closed union; docs/guide/en/api.md shows them on the wire) that any
number of readers follow, what of them the turn stores, and the replay of a stored turn as the stream it once
was, so that a retry or a late reader gets the same answer."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from api.messages import say
from core.citing.citations import KnownDocuments
from core.conversation.turns import (
    MAX_REWRITTEN_CHARS,
    MAX_WARNING_CHARS,
    MAX_WARNING_COUNTS,
    MAX_WARNINGS,
    RewrittenQuestion,
    Turn,
    TurnStage,
    TurnStatus,
    TurnWarning,
    WarnCode,
)
from core.errors import UnavailableError, WenmaiError
from core.knowledge import Citation
from core.memory.record import Memory
from core.text import Language, scrub


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
    """In a replay, `documents` says which of the citations' documents still exist."""

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

Report = Callable[..., None]
"""Publishes a STATUS event: takes its stage, `message` (a text's key, None for the stage's) and fields."""


def warn(report: Report, code: WarnCode, **counts: int) -> None:
    report(TurnStage.WARNING, message=code, code=code, **counts)


_PIECE = re.compile(r"[^\n]*\n+|[^\n]+")


def line_safe(event: Event) -> Iterator[Event]:
    """Yield the event, or several whose texts have newlines only at their end: in the prefix format each line
    of an event is a separate line. Nothing for an empty text.

    Unscrubbed text is scrubbed, so that no other kind of line break is left.
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
    """Return a number per event: the length of its answer text, minus that of its thinking, 0 for others."""
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
    """Cut the texts as `layout` records; None where another kind of event had the number.

    Also None where the text is not stored: thinking that turned out to be the answer was sent as both.
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


FIRST_READER_S = 0.5  # even without grace, a reader has this long to open its stream


class TurnStream:
    """Events count from 1. The last event is always DONE; nothing is published after it.

    `on_abandoned` is called, at most once, when nobody has read for `grace_s` seconds while the turn runs.
    Every event is kept until the turn's end, about 110 bytes per token: MAX_ANSWER_CHARS bounds the text, and
    so the number of events. Publishing never waits for a reader.
    """

    def __init__(self, turn_id: str, grace_s: float, on_abandoned: Callable[[], None]) -> None:
        self.turn_id = turn_id
        self._events: list[Event | None] = []  # None: a number whose event is not stored
        self._ended = False
        self._repeats_after: int | None = None
        self._waiting: list[asyncio.Future[None]] = []  # one for each reader that has seen everything
        self._readers = 0
        self._grace_s = grace_s
        self._on_abandoned = on_abandoned
        self._abandoned = False
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def ended_stream(cls, turn_id: str) -> TurnStream:
        """A stream of a turn that no longer runs: nothing happens when its readers leave."""
        return cls(turn_id, 0, lambda: None)

    def expect_reader(self) -> None:
        """Start waiting for the first reader: a client that leaves before reading must not run a model."""
        if not self._readers:
            self._arm(max(self._grace_s, FIRST_READER_S))

    @property
    def length(self) -> int:
        """The number of events numbered so far."""
        return len(self._events)

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def layout(self) -> tuple[int, ...]:
        """How the events so far follow each other, which a later replay needs to keep their numbers."""
        return layout_of(self._events)

    def lay(self, events: Iterable[Event | None]) -> None:
        """Add the events of a stored turn under their old numbers; None skips a number."""
        self._events.extend(events)

    def repeat_from_here(self) -> None:
        """Send what follows to every reader, numbered after the last event that reader has read."""
        self._repeats_after = self.length

    def is_read(self, after: int) -> bool:
        """Whether a reader that has read event `after` has read everything."""
        return self._ended and after - self._shift(after) >= self.length

    def publish(self, *events: Event) -> None:
        """Append the events and wake the readers once. Raises RuntimeError after DONE."""
        for event in events:
            if self._ended:
                raise RuntimeError("nothing may follow DONE")
            if type(event) is ContentEvent and event.text.isprintable() and event.text:
                self._events.append(event)
            else:
                self._append(event)
        if self._waiting:
            self._wake()

    async def follow(self, after: int = 0) -> AsyncGenerator[list[tuple[int, Event]], None]:
        """Yield new events as lists of (n, event), from n = after + 1 to DONE.

        A list holds everything waiting, so that a fast model costs one write per wake-up, not one per token;
        between lists the event loop gets a turn.
        """
        shift = self._shift(after)
        after -= shift
        self._readers += 1
        self._disarm()
        try:
            while True:
                news = self._events[after:]
                first = after + shift + 1
                fresh = [(n, event) for n, event in enumerate(news, start=first) if event is not None]
                after += len(news)
                if fresh:
                    yield fresh
                if after < len(self._events):
                    await asyncio.sleep(0)
                elif self._ended:
                    return
                else:
                    waiter = asyncio.get_running_loop().create_future()
                    self._waiting.append(waiter)
                    await waiter
        finally:
            self._readers -= 1
            if not self._readers:
                self._arm(self._grace_s)

    def _shift(self, after: int) -> int:
        return 0 if self._repeats_after is None else max(0, after - self._repeats_after)

    def _append(self, event: Event) -> None:
        self._events.extend(line_safe(event))
        if type(event) is DoneEvent:
            self._ended = True
            self._disarm()

    def _wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():  # its reader has left
                waiter.set_result(None)
        self._waiting.clear()

    def _arm(self, delay_s: float) -> None:
        self._disarm()
        if not self._ended and not self._abandoned:
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._abandon)

    def _abandon(self) -> None:
        self._timer = None
        self._abandoned = True
        self._on_abandoned()

    def release(self) -> None:
        """Drop the callback, after the end."""
        self._on_abandoned = lambda: None

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class TurnNotes:
    """Records every STATUS event of one turn with its number in the stream."""

    def __init__(self) -> None:
        self._warnings: list[TurnWarning] = []
        self._rewritten: tuple[str, int] | None = None

    @property
    def warnings(self) -> tuple[TurnWarning, ...]:
        """The first MAX_WARNINGS, in the order sent."""
        return tuple(self._warnings)

    def rewritten(self, turn_ids: tuple[str, ...]) -> RewrittenQuestion | None:
        """Return the rewritten question, drawn from these turns; None if none was sent."""
        if self._rewritten is None:
            return None
        text, at = self._rewritten
        return RewrittenQuestion(text, turn_ids, at)

    def record(self, event: StatusEvent, at: int) -> None:
        if event.stage == TurnStage.WARNING and len(self._warnings) < MAX_WARNINGS:
            self._warnings.append(_warning(event, at))
        elif event.stage == TurnStage.REWRITING and (question := event.fields.get("question")):
            self._rewritten = str(question)[:MAX_REWRITTEN_CHARS], at


def remembered_fields(memory: Memory) -> dict[str, Any]:
    """Return a memory's fields for the STATUS event: its content and the turn it is from."""
    return {
        "memory_id": memory.memory_id,
        "content": memory.content,
        "type": memory.type.value,
        "session_id": memory.session_id,
        "turn_id": memory.turn_ids[0] if memory.turn_ids else "",
        "created_at": memory.created_at,
    }


def replayed_warning(warning: TurnWarning) -> StatusEvent:
    """Return the original event."""
    return StatusEvent(TurnStage.WARNING, warning.message, {**warning.counts, "code": warning.code})


def _warning(event: StatusEvent, at: int) -> TurnWarning:
    counts = {name: value for name, value in event.fields.items() if isinstance(value, int)}
    first = dict(list(counts.items())[:MAX_WARNING_COUNTS])
    return TurnWarning(str(event.fields.get("code", "")), event.message[:MAX_WARNING_CHARS], first, at)


def replay(turn: Turn, language: Language, documents: KnownDocuments) -> TurnStream:
    """Return an ended stream of the turn's texts, notes, sources and last status, numbered as they were live.

    `documents` are those of its sources that still exist. Other progress is not stored, so its numbers are
    skipped; a reader that saw event n continues with n + 1. If the numbers are not known, as in an imported
    turn, the notes come first; if the turn failed, every reader gets its ERROR.
    """
    stream = TurnStream.ended_stream(turn.turn_id)
    failed = turn.status in (TurnStatus.FAILED, TurnStatus.INTERRUPTED, TurnStatus.RUNNING)
    stream.publish(SessionEvent(turn.session_id))
    if turn.layout:
        texts = laid_out(turn.layout[1:], turn.answer, turn.thinking)
        stream.lay(_with_notes(texts, dict(_notes(turn, language))))
        stream.lay([None] if failed else [])  # the STATUS that named the error
    else:
        stream.publish(*(note for _, note in _notes(turn, language)))
        stream.publish(ThinkEvent(turn.thinking))
        stream.publish(ContentEvent(turn.answer))
    if turn.answer or not failed:
        stream.publish(SourceEvent(turn.sources, documents))
    if failed and not turn.layout:  # a crash: its readers may have read more events than were stored
        stream.repeat_from_here()
    if failed:
        stream.publish(ErrorEvent(say(f"was_{turn.status.value}", language)))
    stream.publish(StatusEvent(TurnStage.FINISHED, say("finished", language), finished_fields(turn)))
    stream.publish(DoneEvent())
    return stream


def _notes(turn: Turn, language: Language) -> Iterator[tuple[int, StatusEvent]]:
    """Yield the events sent beside the answer, each with its number."""
    if turn.rewritten is not None:
        fields = {"question": turn.rewritten.text}
        yield turn.rewritten.at, StatusEvent(TurnStage.REWRITING, say("rewritten", language), fields)
    for warning in turn.warnings:
        yield warning.at, replayed_warning(warning)


def _with_notes(texts: Iterable[Event | None], notes: dict[int, StatusEvent]) -> Iterator[Event | None]:
    """`texts` begin with event 2. A text keeps its number even if a note has the same one."""
    for n, text in enumerate(texts, start=2):
        yield notes.get(n) if text is None else text


MAX_WAIT_S = 86_400  # asked of a client, whatever the model's server says


def error_fields(failure: WenmaiError) -> dict[str, object]:
    """Return the fields of the STATUS that names why an answer failed."""
    wait = {}
    if failure.retryable and failure.retry_after_s:
        wait = {"retry_after_s": math.ceil(min(failure.retry_after_s, MAX_WAIT_S))}
    model = failure.failure if isinstance(failure, UnavailableError) else None
    cause = {"cause": "rate_limited" if model.status == 429 else model.cause.value} if model else {}
    return {"code": failure.code, "retryable": failure.retryable, **cause, **wait}


def finished_fields(turn: Turn) -> dict[str, object]:
    """Return the fields of a turn's last STATUS."""
    finish = {"finish_reason": turn.finish_reason} if turn.finish_reason else {}
    return {
        "turn_id": turn.turn_id,
        "parent_turn_id": turn.parent_turn_id,
        "status": turn.status.value,
        "usage": asdict(turn.usage),
        "timings_ms": dict(turn.timings_ms),
        **finish,
    }
