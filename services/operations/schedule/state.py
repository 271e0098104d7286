"""The clean-up schedule as the rest of the house sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from services.operations.retention.report import ExpiryReport


@dataclass(frozen=True, slots=True)
class CleanupState:
    """Times are RFC 3339; None when it has not run yet, or never will again.

    `last_run` ended with `last_result` (which names no session or turn) or `last_error`, the error's kind;
    it was a run by the schedule, of whatever worker. `last_slot` is the newest time of the schedule that is
    done. `skipped` says why a later one was not run. `holder` is the worker that runs it now.
    """

    cron: str
    timezone: str
    next_run: str | None
    last_run: str | None
    last_result: ExpiryReport | None
    last_error: str | None
    last_slot: str | None = None
    skipped: str | None = None
    running: bool = False
    holder: str | None = None


class CleanupSchedule(Protocol):
    def state(self) -> CleanupState:
        """When the job runs next, and how it went last, as this worker saw it last (within half a minute)."""
        ...

    async def current(self) -> CleanupState:
        """The same, asked of the store; what was seen last when the store is away."""
        ...
