"""Decide from a turn's stored time alone whether it has expired; and the report of a clean-up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from core.dates import LATEST_ZONE, parse_time

DAY_US = 86_400_000_000
MAX_DAYS = 36_500
GUARDED_TURNS = 50
STILL_DAYS = 7


class Age(StrEnum):
    EXPIRED = "expired"
    CURRENT = "current"
    UNPARSABLE = "unparsable"


def cutoff_of(now_us: int, days: int) -> int:
    """Turns that began earlier have expired. Raises ValueError if days < 1: 0 would empty the store."""
    if days < 1:
        raise ValueError("days must be at least 1")
    return now_us - days * DAY_US


def moment_of(created_us: object, timestamp: object) -> int | None:
    """Return UTC microseconds. Turns of earlier versions have no `created_us`: their `timestamp` counts and,
    without a zone, means its latest possible instant. None: no readable time."""
    if isinstance(created_us, int | float) and not isinstance(created_us, bool) and created_us > 0:
        return int(min(created_us, 2**62))
    return parse_time(timestamp, LATEST_ZONE) if isinstance(timestamp, str) else None


def age_of(created_us: object, timestamp: object, cutoff_us: int) -> Age:
    """Expired is strictly before the cutoff; a time in the future is current."""
    moment_us = moment_of(created_us, timestamp)
    if moment_us is None:
        return Age.UNPARSABLE
    return Age.EXPIRED if moment_us < cutoff_us else Age.CURRENT


@dataclass(frozen=True, slots=True)
class AgeLimits:
    """How old a session's turns may become. `own` maps sessions to their own limits in days, longer or
    shorter than `days`; `held` never expire, whatever their limit."""

    now_us: int
    days: int
    own: Mapping[str, int] = field(default_factory=dict)
    held: frozenset[str] = frozenset()

    @property
    def cutoff_us(self) -> int:
        """The cutoff of sessions without their own limit. Raises ValueError if days < 1."""
        return cutoff_of(self.now_us, self.days)

    def cutoff_of(self, session_id: str) -> int:
        return cutoff_of(self.now_us, self.own.get(session_id, self.days))

    def stricter(self) -> list[str]:
        """Return the sessions whose turns expire earlier than others', sorted by limit."""
        return sorted((each for each in self.own if self.own[each] < self.days), key=self._place)

    def longer(self) -> frozenset[str]:
        """Return the sessions that keep turns which others lose."""
        return self.held.union(each for each, days in self.own.items() if days > self.days)

    def _place(self, session_id: str) -> tuple[int, str]:
        return self.own[session_id], session_id


def trusts_clock(now_us: int, days: int, matched: int, last_run_us: int | None, lately: int) -> bool:
    """Whether a run that would delete `matched` turns may trust the clock.

    A clock that has jumped ahead makes every turn old. It looks the same as a server that was down for long,
    or a restored backup, so one rule covers all three: if the last clean-up is longer ago than the limit
    (`days`, at least STILL_DAYS), everything from that time would go at once, and a person has to confirm it.
    Before the first clean-up the turns themselves decide: `lately` is how many began within that time. Few
    turns (GUARDED_TURNS) are not worth the question. A server whose nightly run works never asks, however
    little it is used, so nothing is stored longer than allowed.
    """
    if matched <= GUARDED_TURNS:
        return True
    if last_run_us is None:
        return lately > 0
    return last_run_us >= still_since(now_us, days)


def still_since(now_us: int, days: int) -> int:
    """A store without a sign of life since this time was down, or the clock has jumped."""
    return now_us - max(days, STILL_DAYS) * DAY_US


@dataclass(frozen=True, slots=True)
class ExpiryReport:
    """`matched` turns are older than `cutoff` (RFC 3339, UTC), or than their session's own limit; `deleted`
    is 0 in a dry run.

    `sessions` counts the matched turns by session. `unparsable` turns have no readable time, and are kept
    (`unparsable_ids`: the first of them); so are the `held` ones, old turns of a session on hold.
    `sessions_removed` had no turn left; `memories_matched` were neither learned nor used for longer than
    allowed. Bytes are None if the engine does not report them. `refusal` is why an unattended run would
    delete nothing.
    """

    cutoff: str
    days: int
    dry_run: bool
    total_before: int
    matched: int
    deleted: int
    sessions: dict[str, int] = field(default_factory=dict)
    total_after: int = 0
    unparsable: int = 0
    held: int = 0
    sessions_removed: int = 0
    unparsable_ids: list[str] = field(default_factory=list)
    memories_matched: int = 0
    memories_removed: int = 0
    summaries_removed: int = 0
    bytes_before: int | None = None
    bytes_after: int | None = None
    receipt_id: str = ""
    refusal: str = ""
