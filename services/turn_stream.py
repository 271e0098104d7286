"""A running turn's events: numbered, kept for replay, followed by any number of readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable

from core.events import DoneEvent, Event
from core.frames import layout_of, line_safe

FIRST_READER_S = 1.0  # even with no grace, a reader gets this long to open the stream it asked for


class TurnStream:
    """Events count from 1. The last event is always DONE; after it nothing is published.

    `on_abandoned` is called once nobody has read for `grace_s` seconds while the turn still runs.
    """

    def __init__(self, turn_id: str, grace_s: float, on_abandoned: Callable[[], None]) -> None:
        self.turn_id = turn_id
        self._events: list[Event | None] = []  # None: a number whose event is not kept
        self._changed = asyncio.Event()
        self._readers = 0
        self._grace_s = grace_s
        self._on_abandoned = on_abandoned
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def ended_stream(cls, turn_id: str) -> TurnStream:
        """For a turn that runs no more: nobody needs to be told when its readers leave."""
        return cls(turn_id, 0, lambda: None)

    def expect_reader(self) -> None:
        """Start waiting for the first reader: a client that left before it read must not run a model."""
        self._arm(max(self._grace_s, FIRST_READER_S))

    @property
    def ended(self) -> bool:
        return bool(self._events) and isinstance(self._events[-1], DoneEvent)

    @property
    def layout(self) -> tuple[int, ...]:
        """How the events so far followed each other: what a later replay needs to keep their numbers."""
        return layout_of(self._events)

    def lay(self, events: Iterable[Event | None]) -> None:
        """Take over the events of a stored turn under their old numbers; None skips one."""
        self._events.extend(events)

    def publish(self, event: Event) -> None:
        """Append the event and wake the readers. Raises RuntimeError after DONE."""
        if self.ended:
            raise RuntimeError("nothing may follow DONE")
        self._events.extend(line_safe(event))
        if self.ended:
            self._disarm()
        self._changed.set()
        self._changed = asyncio.Event()

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
                if self.ended and after >= len(self._events):
                    return
                await (self._changed.wait() if after >= len(self._events) else asyncio.sleep(0))
        finally:
            self._readers -= 1
            if not self._readers and not self.ended:
                self._arm(self._grace_s)

    def _arm(self, delay_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_abandoned)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
