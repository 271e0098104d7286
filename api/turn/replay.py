"""A stored turn as the stream it once was, so that a retry or a late reader gets the same answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from api.messages import say
from api.turn.notes import REWRITING, replayed_warning
from config.prompt_library import Language
from core.citing.citations import KnownDocuments
from core.conversation.events import (
    ContentEvent,
    DoneEvent,
    ErrorEvent,
    Event,
    SessionEvent,
    SourceEvent,
    StatusEvent,
    ThinkEvent,
    laid_out,
)
from core.conversation.turns import Turn, TurnStatus
from services.conversation.stream import TurnStream


def replay(turn: Turn, language: Language, documents: KnownDocuments) -> TurnStream:
    """An ended stream with the turn's texts, notes, sources and last status, under the numbers they had live.

    `documents` are those of its sources that are there. Other progress is not kept, so its numbers are
    skipped; a reader that saw event n goes on with n + 1. Of a turn whose numbers are not known, as one that
    was brought in, the notes come first.
    """
    stream = TurnStream.ended_stream(turn.turn_id)
    failed = turn.status in (TurnStatus.FAILED, TurnStatus.INTERRUPTED, TurnStatus.RUNNING)
    stream.publish(SessionEvent(turn.session_id))
    if turn.layout:
        texts = laid_out(turn.layout[1:], turn.assistant_response, turn.thinking)
        stream.lay(_with_notes(texts, dict(_notes(turn, language))))
        stream.lay([None] if failed else [])  # the STATUS that named the error
    else:
        stream.publish(*(note for _, note in _notes(turn, language)))
        stream.publish(ThinkEvent(turn.thinking))
        stream.publish(ContentEvent(turn.assistant_response))
    if turn.assistant_response or not failed:
        stream.publish(SourceEvent(turn.sources, documents))
    if failed:
        stream.publish(ErrorEvent(say(f"was_{turn.status.value}", language)))
    stream.publish(StatusEvent("finished", say("finished", language), finished_fields(turn)))
    stream.publish(DoneEvent())
    return stream


def _notes(turn: Turn, language: Language) -> Iterator[tuple[int, StatusEvent]]:
    """What was sent beside the answer, each with the number it had."""
    if turn.rewritten is not None:
        fields = {"question": turn.rewritten.text}
        yield turn.rewritten.at, StatusEvent(REWRITING, say("rewritten", language), fields)
    for warning in turn.warnings:
        yield warning.at, replayed_warning(warning)


def _with_notes(texts: Iterable[Event | None], notes: dict[int, StatusEvent]) -> Iterator[Event | None]:
    """`texts` begin with event 2. A number that is a text's stays the text's."""
    for n, text in enumerate(texts, start=2):
        yield notes.get(n) if text is None else text


def finished_fields(turn: Turn) -> dict[str, object]:
    """The fields of the last STATUS of a turn."""
    finish = {"finish_reason": turn.finish_reason} if turn.finish_reason else {}
    return {
        "turn_id": turn.turn_id,
        "parent_turn_id": turn.parent_turn_id,
        "status": turn.status.value,
        "usage": {
            "prompt_tokens": turn.usage.prompt_tokens,
            "completion_tokens": turn.usage.completion_tokens,
            "estimated": turn.usage.estimated,
        },
        "timings_ms": dict(turn.timings_ms),
        **finish,
    }
