"""A running turn's events: numbered, kept for replay, followed by any number of readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable

from core.conversation.events import ContentEvent, DoneEvent, Event, layout_of, line_safe

FIRST_READER_S = 0.5  # even with no grace, a reader gets this long to open the stream it asked for


class TurnStream:
    """Events count from 1. The last event is always DONE; after it nothing is published.

    `on_abandoned` is called, once at most, when nobody has read for `grace_s` seconds while the turn runs.
    Every event is kept until the turn's end, about 110 bytes for a token: MAX_ANSWER_CHARS bounds the text,
    and so the number of events. Publishing never waits for a reader.
    """

    def __init__(self, turn_id: str, grace_s: float, on_abandoned: Callable[[], None]) -> None:
        self.turn_id = turn_id
        self._events: list[Event | None] = []  # None: a number whose event is not kept
        self._ended = False
        self._waiting: list[asyncio.Future[None]] = []  # one for each reader that has seen everything
        self._readers = 0
        self._grace_s = grace_s
        self._on_abandoned = on_abandoned
        self._abandoned = False
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def ended_stream(cls, turn_id: str) -> TurnStream:
        """For a turn that runs no more: nothing happens when its readers leave."""
        return cls(turn_id, 0, lambda: None)

    def expect_reader(self) -> None:
        """Start waiting for the first reader: a client that left before it read must not run a model."""
        if not self._readers:
            self._arm(max(self._grace_s, FIRST_READER_S))

    @property
    def length(self) -> int:
        """How many numbers are given so far."""
        return len(self._events)

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def layout(self) -> tuple[int, ...]:
        """How the events so far followed each other: what a later replay needs to keep their numbers."""
        return layout_of(self._events)

    def lay(self, events: Iterable[Event | None]) -> None:
        """Take over the events of a stored turn under their old numbers; None skips one."""
        self._events.extend(events)

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
        """Yield what is new as (n, event) in lists, from n = after + 1 to DONE.

        A list holds all that waits, so that a fast model costs one write per wake-up, not one per
        token; between lists the loop gets a turn, whoever else waits for it.
        """
        self._readers += 1
        self._disarm()
        try:
            while True:
                news = self._events[after:]
                fresh = [(n, event) for n, event in enumerate(news, start=after + 1) if event is not None]
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

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
