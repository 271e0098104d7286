from __future__ import annotations

import asyncio
import time
import tracemalloc
from contextlib import aclosing

import pytest

from core.conversation.events import (
    ContentEvent,
    DoneEvent,
    Event,
    SessionEvent,
    StatusEvent,
    ThinkEvent,
    laid_out,
)
from services.conversation import stream as turn_stream
from services.conversation.stream import TurnStream
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


async def tell(stream: TurnStream) -> None:
    for event in EVENTS:
        stream.publish(event)
        await asyncio.sleep(0)


@pytest.mark.parametrize("after", range(len(NUMBERED) + 1))
async def test_a_reader_goes_on_after_any_number_of_a_turn_that_runs_or_has_ended(
    after: int,
) -> None:
    """Discriminates: numbering what is left, instead of what was said."""
    expected = list(enumerate(NUMBERED, 1))[after:]
    stream = TurnStream("t", 30, Abandoned())
    early = asyncio.create_task(read(stream, after))
    await asyncio.sleep(0)
    await tell(stream)
    assert await early == expected
    assert await read(stream, after) == expected


async def test_a_number_beyond_the_end_gives_nothing() -> None:
    stream = TurnStream("t", 30, Abandoned())
    await tell(stream)
    assert await read(stream, 1_000) == []


async def test_two_readers_see_the_same_and_one_that_leaves_takes_nothing_along() -> None:
    """Discriminates: readers that wait for one future, which the first to leave cancels for all."""
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


async def test_a_reader_that_takes_its_time_holds_nobody() -> None:
    """Discriminates: a bounded queue for each reader, which the publisher waits for."""
    stream = TurnStream("t", 30, Abandoned())
    async with aclosing(stream.follow()) as slow, aclosing(stream.follow()) as fast:
        stream.publish(EVENTS[0])
        await anext(slow)
        for number in range(10_000):
            stream.publish(ContentEvent(str(number)))
        assert len(await anext(fast)) == 10_001
        stream.publish(DoneEvent())
        assert len([each async for batch in slow for each in batch]) == 10_001


async def test_the_loop_gets_a_turn_between_two_lists() -> None:
    """Discriminates: a reader that goes on at once while more waits, for as long as the model is faster."""
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


async def test_a_turn_is_abandoned_once_when_its_last_reader_has_been_gone_for_the_grace() -> None:
    """Discriminates: a timer for each reader that leaves; one that is called again by the next."""
    abandoned = Abandoned()
    stream = TurnStream("t", 0.3, abandoned)
    first, second = stream.follow(), stream.follow()
    stream.publish(EVENTS[0])
    await anext(first)
    await anext(second)
    await first.aclose()
    await asyncio.sleep(0.4)  # over the grace of a turn without readers
    assert abandoned.times == 0
    await second.aclose()
    await asyncio.sleep(0.05)  # within the grace
    assert abandoned.times == 0
    await until(lambda: abandoned.times)
    assert abandoned.times == 1
    late = stream.follow()
    await anext(late)
    await late.aclose()
    await asyncio.sleep(0.4)  # over the grace
    assert abandoned.times == 1


async def test_a_reader_that_comes_back_within_the_grace_keeps_the_turn() -> None:
    abandoned = Abandoned()
    stream = TurnStream("t", 0.4, abandoned)
    stream.publish(EVENTS[0])
    for _ in range(5):
        reader = stream.follow()
        await anext(reader)
        await reader.aclose()
        await asyncio.sleep(0.1)  # within the grace
    back = stream.follow()
    await anext(back)
    await asyncio.sleep(0.5)  # over the grace
    assert abandoned.times == 0
    await back.aclose()


async def test_a_turn_that_ended_is_not_abandoned() -> None:
    abandoned = Abandoned()
    stream = TurnStream("t", 0, abandoned)
    stream.expect_reader()
    await tell(stream)
    await read(stream)
    await asyncio.sleep(0.05)  # a timer that was left would ring
    assert abandoned.times == 0
    assert stream.ended


async def test_without_grace_a_first_reader_that_never_comes_is_waited_for_half_a_second() -> None:
    abandoned = Abandoned()
    stream = TurnStream("t", 0, abandoned)
    stream.expect_reader()
    await asyncio.sleep(0.1)  # within the time for the first reader
    assert abandoned.times == 0
    await asyncio.sleep(turn_stream.FIRST_READER_S)
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
    began = time.process_time()
    for event in events:
        stream.publish(event)
    assert time.process_time() - began < 0.5
