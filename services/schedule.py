"""The clean-up schedule as the rest of the house sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from services.retention import ExpiryReport


@dataclass(frozen=True, slots=True)
class CleanupState:
    """Times are RFC 3339; None when it has not run yet, or never will again."""

    cron: str
    timezone: str
    next_run: str | None
    last_run: str | None
    last_result: ExpiryReport | None
    last_error: str | None


class CleanupSchedule(Protocol):
    def state(self) -> CleanupState:
        """When the job runs next, and how it went last."""
        ...
