"""The CPU time of the longest task of the page's thread, which excludes other processes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from playwright.async_api import Page

TASKS = ["disabled-by-default-devtools.timeline", "__metadata"]


@dataclass
class FrameCosts:
    """Milliseconds of CPU for each task of the page's thread: scripts, style, layout and paint of a frame."""

    tasks_ms: list[float] = field(default_factory=list)

    @property
    def longest_ms(self) -> float:
        return max(self.tasks_ms, default=0.0)

    @property
    def total_ms(self) -> float:
        return sum(self.tasks_ms)


@asynccontextmanager
async def frame_costs(page: Page) -> AsyncIterator[FrameCosts]:
    """The costs are filled in when the block ends."""
    browser = page.context.browser
    assert browser is not None
    costs = FrameCosts()
    await browser.start_tracing(page=page, categories=TASKS)
    yield costs
    events = json.loads(await browser.stop_tracing())["traceEvents"]
    main = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    costs.tasks_ms = [
        event.get("tdur", event["dur"]) / 1000
        for event in events
        if event["name"] == "RunTask" and "dur" in event and (event["pid"], event["tid"]) in main
    ]
