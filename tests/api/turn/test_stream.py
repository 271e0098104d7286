from __future__ import annotations

import asyncio
import tracemalloc
from contextlib import aclosing

import pytest

from api.turn.stream import (
    FIRST_READER_S,
    ContentEvent,
    DoneEvent,
    Event,
    SessionEvent,
    StatusEvent,
    ThinkEvent,
    TurnNotes,
    TurnStream,
    laid_out,
    replay,
    replayed_warning,
)
from core.citing.citations import KnownDocuments
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
from tests.support.machine import at_most
from tests.support.waiting import until

EVENTS: list[Event] = [
    SessionEvent("s"),
    StatusEvent("generating", "…"),
    ThinkEvent("why"),
    ContentEvent("one\ntwo"),
    ContentEvent(" three"),
    DoneEvent(),
]
NUMBERED = [*EVENTS[:3], ContentEvent("one\n"), ContentEvent("two"), *EVENTS[4:]]


class Abandoned:
    """Counts how often a turn was abandoned."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


async def read(stream: TurnStream, after: int = 0) -> list[tuple[int, Event]]:
    async with aclosing(stream.follow(after)) as batches:
        return [each async for batch in batches for each in batch]


async def publish_all(stream: TurnStream) -> None:
    for event in EVENTS:
        stream.publish(event)
        await asyncio.sleep(0)


@pytest.mark.parametrize("after", range(len(NUMBERED) + 1))
async def test_a_reader_resumes_after_any_number_of_a_running_or_finished_turn(
    after: int,
) -> None:
    """Discriminates: numbering what is left instead of what was sent."""
    expected = list(enumerate(NUMBERED, 1))[after:]
    stream = TurnStream("t", 30, Abandoned())
    early = asyncio.create_task(read(stream, after))
    await asyncio.sleep(0)
    await publish_all(stream)
    assert await early == expected
    assert await read(stream, after) == expected


async def test_a_number_beyond_the_end_gives_nothing() -> None:
    stream = TurnStream("t", 30, Abandoned())
    await publish_all(stream)
    assert await read(stream, 1_000) == []


async def test_two_readers_see_the_same_even_when_one_leaves() -> None:
    """Discriminates: readers that wait for the same future, which the first to leave cancels for all."""
    stream = TurnStream("t", 30, Abandoned())
    stays, leaves = asyncio.create_task(read(stream)), asyncio.create_task(read(stream))
    await asyncio.sleep(0)
    stream.publish(EVENTS[0])
    await asyncio.sleep(0.01)  # both have read it
    leaves.cancel()
    await asyncio.wait([leaves])
    stream.publish(*EVENTS[1:])
    assert [event for _, event in await stays] == NUMBERED


async def test_events_published_together_wake_a_reader_once() -> None:
    stream = TurnStream("t", 30, Abandoned())
    async with aclosing(stream.follow()) as batches:
        stream.publish(*EVENTS)
        assert [event for _, event in await anext(batches)] == NUMBERED


async def test_a_slow_reader_blocks_nobody() -> None:
    """Discriminates: a bounded queue for each reader, on which the publisher waits."""
    stream = TurnStream("t", 30, Abandoned())
    async with aclosing(stream.follow()) as slow, aclosing(stream.follow()) as fast:
        stream.publish(EVENTS[0])
        await anext(slow)
        for number in range(10_000):
            stream.publish(ContentEvent(str(number)))
        assert len(await anext(fast)) == 10_001
        stream.publish(DoneEvent())
        assert len([each async for batch in slow for each in batch]) == 10_001


async def test_the_loop_runs_other_tasks_between_two_batches() -> None:
    """Discriminates: a reader that continues at once while more is queued, for as long as the model is
    faster."""
    stream = TurnStream("t", 30, Abandoned())
    stream.publish(EVENTS[0])
    turns = 0

    async def count() -> None:
        nonlocal turns
        while not stream.ended:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    async with aclosing(stream.follow()) as batches:
        for _ in range(50):
            await anext(batches)
            stream.publish(ContentEvent("more"))
        stream.publish(DoneEvent())
    await counting
    assert turns >= 49


async def test_nothing_follows_done() -> None:
    stream = TurnStream("t", 30, Abandoned())
    stream.publish(DoneEvent())
    with pytest.raises(RuntimeError):
        stream.publish(ContentEvent("late"))
    other = TurnStream("t", 30, Abandoned())
    with pytest.raises(RuntimeError):
        other.publish(DoneEvent(), ContentEvent("late"))
    assert [event for _, event in await read(other)] == [DoneEvent()]


async def test_a_turn_is_abandoned_once_after_its_last_reader_has_been_away_for_the_grace_period() -> None:
    """Discriminates: a timer for each reader that leaves; a timer that the next one fires again."""
    abandoned = Abandoned()
    stream = TurnStream("t", 0.3, abandoned)
    first, second = stream.follow(), stream.follow()
    stream.publish(EVENTS[0])
    await anext(first)
    await anext(second)
    await first.aclose()
    await asyncio.sleep(0.4)  # longer than the grace period of a turn without readers
    assert abandoned.times == 0
    await second.aclose()
    await asyncio.sleep(0.05)  # within the grace period
    assert abandoned.times == 0
    await until(lambda: abandoned.times)
    assert abandoned.times == 1
    late = stream.follow()
    await anext(late)
    await late.aclose()
    await asyncio.sleep(0.4)  # longer than the grace period
    assert abandoned.times == 1


async def test_a_reader_that_returns_within_the_grace_period_keeps_the_turn() -> None:
    abandoned = Abandoned()
    stream = TurnStream("t", 0.4, abandoned)
    stream.publish(EVENTS[0])
    for _ in range(5):
        reader = stream.follow()
        await anext(reader)
        await reader.aclose()
        await asyncio.sleep(0.1)  # within the grace period
    back = stream.follow()
    await anext(back)
    await asyncio.sleep(0.5)  # longer than the grace period
    assert abandoned.times == 0
    await back.aclose()


async def test_a_turn_that_ended_is_not_abandoned() -> None:
    abandoned = Abandoned()
    stream = TurnStream("t", 0, abandoned)
    stream.expect_reader()
    await publish_all(stream)
    await read(stream)
    await asyncio.sleep(0.05)  # a timer left behind would fire
    assert abandoned.times == 0
    assert stream.ended


async def test_without_a_grace_period_a_first_reader_is_awaited_for_half_a_second() -> None:
    abandoned = Abandoned()
    stream = TurnStream("t", 0, abandoned)
    stream.expect_reader()
    await asyncio.sleep(0.1)  # within the time for the first reader
    assert abandoned.times == 0
    await asyncio.sleep(FIRST_READER_S)
    assert abandoned.times == 1


async def test_texts_that_are_not_kept_keep_their_numbers() -> None:
    """Thinking that turned out to be the answer. Discriminates: replaying an empty THINK for it."""
    stream = TurnStream("t", 30, Abandoned())
    stream.publish(ThinkEvent("one "), ThinkEvent("two"), ContentEvent("one two"))
    assert list(laid_out(stream.layout, "one two", "")) == [None, None, ContentEvent("one two")]


def test_a_token_costs_little_memory_and_time() -> None:
    """Discriminates: an asyncio.Event for each event; keeping frames in both formats."""
    stream = TurnStream("t", 30, Abandoned())
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(10_000):
        stream.publish(ContentEvent(f"{number:05}"))
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert used / 10_000 < 150
    events = [ContentEvent("hello")] * 100_000
    with at_most(0.5):
        for event in events:
            stream.publish(event)


DROPPED = StatusEvent("warning", "too much", {"code": "context_dropped", "recent": 2})
REWRITTEN = StatusEvent("rewriting", "m", {"question": "What does it cost?"})


def notes_of(*events: StatusEvent) -> TurnNotes:
    notes = TurnNotes()
    for at, event in enumerate(events, 2):
        notes.record(event, at)
    return notes


def turn(**more: object) -> Turn:
    whole = Turn("t", "s", "local", "Why?", 1, TurnStatus.COMPLETED, answer="One two", thinking="hm")
    for name, value in more.items():
        object.__setattr__(whole, name, value)
    return whole


async def replayed(stored: Turn, after: int = 0) -> list[tuple[int, Event]]:
    stream = replay(stored, "en", KnownDocuments())
    return [each async for batch in stream.follow(after) for each in batch]


def test_only_warnings_and_the_rewritten_question_are_kept_of_the_progress() -> None:
    notes = notes_of(StatusEvent("retrieving", "m"), StatusEvent("rewriting", "m"), REWRITTEN, DROPPED)
    assert notes.warnings == (TurnWarning("context_dropped", "too much", {"recent": 2}, 5),)
    assert notes.rewritten(("a", "b")) == RewrittenQuestion("What does it cost?", ("a", "b"), 4)
    assert notes_of(StatusEvent("rewriting", "m")).rewritten(("a",)) is None
    assert replayed_warning(notes.warnings[0]) == DROPPED


def test_kept_notes_are_bounded_in_number_and_length() -> None:
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


async def test_a_replay_has_notes_in_their_place_and_leaves_the_texts_alone() -> None:
    """Discriminates: notes that take a text's number, or that shift the texts."""
    layout = (0, 0, 0, 0, -2, 3, 4, 0)
    warnings = (TurnWarning("a", "m", {}, 4), TurnWarning("b", "m", {}, 6), TurnWarning("c", "m", {}, 8))
    stored = turn(layout=layout, warnings=warnings, rewritten=RewrittenQuestion("What?", ("x",), 3))
    events = dict(await replayed(stored))
    assert [n for n, event in events.items() if isinstance(event, StatusEvent)] == [3, 4, 8, 10]
    assert (events[5], events[6], events[7]) == (ThinkEvent("hm"), ContentEvent("One"), ContentEvent(" two"))
    assert [n for n, _ in await replayed(stored, 4)] == [5, 6, 7, 8, 9, 10, 11]


async def test_a_replay_without_numbers_sends_notes_before_the_answer() -> None:
    stored = turn(warnings=(TurnWarning("a", "m"),), rewritten=RewrittenQuestion("What?", ("x",)))
    events = [event for _, event in await replayed(stored)]
    assert [type(event).__name__ for event in events] == [
        "SessionEvent", "StatusEvent", "StatusEvent", "ThinkEvent", "ContentEvent", "SourceEvent",
        "StatusEvent", "DoneEvent",
    ]  # fmt: skip
