"""What is kept of what a stream told beside the answer, and how a replay tells it."""

from __future__ import annotations

from api.turn.notes import TurnNotes, replayed_warning
from api.turn.replay import replay
from core.citing.citations import KnownDocuments
from core.conversation.events import ContentEvent, Event, StatusEvent, ThinkEvent
from core.conversation.turns import (
    MAX_REWRITTEN_CHARS,
    MAX_WARNING_CHARS,
    MAX_WARNING_COUNTS,
    MAX_WARNINGS,
    RewrittenQuestion,
    Turn,
    TurnStatus,
    TurnWarning,
)

DROPPED = StatusEvent("warning", "too much", {"code": "context_dropped", "recent": 2})
REWRITTEN = StatusEvent("rewriting", "m", {"question": "What does it cost?"})


def notes_of(*events: StatusEvent) -> TurnNotes:
    notes = TurnNotes()
    for at, event in enumerate(events, 2):
        notes.hear(event, at)
    return notes


def turn(**more: object) -> Turn:
    whole = Turn(
        "t", "s", "local", "Why?", 1, TurnStatus.COMPLETED, assistant_response="One two", thinking="hm"
    )
    for name, value in more.items():
        object.__setattr__(whole, name, value)
    return whole


async def replayed(stored: Turn, after: int = 0) -> list[tuple[int, Event]]:
    stream = replay(stored, "en", KnownDocuments())
    return [each async for batch in stream.follow(after) for each in batch]


def test_warnings_and_the_rewritten_question_are_kept_and_no_other_progress() -> None:
    notes = notes_of(StatusEvent("retrieving", "m"), StatusEvent("rewriting", "m"), REWRITTEN, DROPPED)
    assert notes.warnings == (TurnWarning("context_dropped", "too much", {"recent": 2}, 5),)
    assert notes.rewritten(("a", "b")) == RewrittenQuestion("What does it cost?", ("a", "b"), 4)
    assert notes_of(StatusEvent("rewriting", "m")).rewritten(("a",)) is None
    assert replayed_warning(notes.warnings[0]) == DROPPED


def test_what_is_kept_is_bounded_in_number_and_length() -> None:
    counts = {f"c{n}": n for n in range(100)}
    long = StatusEvent("warning", "x" * 10_000, {"code": "a", **counts})
    question = StatusEvent("rewriting", "m", {"question": "x" * 10_000})
    notes = notes_of(*[long] * 100, question)
    assert len(notes.warnings) == MAX_WARNINGS
    assert len(notes.warnings[0].message) == MAX_WARNING_CHARS
    assert len(notes.warnings[0].counts) == MAX_WARNING_COUNTS
    rewritten = notes.rewritten(("a",))
    assert rewritten is not None
    assert len(rewritten.text) == MAX_REWRITTEN_CHARS


async def test_a_replay_has_them_where_they_were_and_leaves_the_texts_alone() -> None:
    """Discriminates: notes that take a text's number, or that shift the texts."""
    layout = (0, 0, 0, 0, -2, 3, 4, 0)
    warnings = (TurnWarning("a", "m", {}, 4), TurnWarning("b", "m", {}, 6), TurnWarning("c", "m", {}, 8))
    stored = turn(layout=layout, warnings=warnings, rewritten=RewrittenQuestion("What?", ("x",), 3))
    events = dict(await replayed(stored))
    assert [n for n, event in events.items() if isinstance(event, StatusEvent)] == [3, 4, 8, 10]
    assert (events[5], events[6], events[7]) == (ThinkEvent("hm"), ContentEvent("One"), ContentEvent(" two"))
    assert [n for n, _ in await replayed(stored, 4)] == [5, 6, 7, 8, 9, 10, 11]


async def test_a_replay_without_numbers_tells_them_before_the_answer() -> None:
    stored = turn(warnings=(TurnWarning("a", "m"),), rewritten=RewrittenQuestion("What?", ("x",)))
    events = [event for _, event in await replayed(stored)]
    assert [type(event).__name__ for event in events] == [
        "SessionEvent", "StatusEvent", "StatusEvent", "ThinkEvent", "ContentEvent", "SourceEvent",
        "StatusEvent", "DoneEvent",
    ]  # fmt: skip
