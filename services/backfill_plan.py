"""What a repair of the stored conversations would do, and the report of what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from core.backfill import PointId, Repair, SessionPlan, TurnChange, canonical_uuid
from services.sessions import Session


def is_listable(session_id: str) -> bool:
    """A route names a session by its UUID, in lower case with hyphens."""
    return canonical_uuid(session_id) == session_id


@dataclass(frozen=True, slots=True)
class BackfillReport:
    """What was found, and in a run that is not dry, done. `repairs` counts turns by the field that changes.

    `unreadable` points have no session and are left alone; `unlisted` sessions have an id that is no
    UUID, so that no route can name them; `unparsable` times and `duplicates` (turns that shared an id)
    are kept. `gone` were deleted between plan and run.
    """

    dry_run: bool
    sessions: int
    turns: int
    changed: int
    rehomed: int
    leftovers: int
    unparsable: int
    duplicates: int
    unreadable: int
    unlisted: int
    sessions_created: int
    gone: int = 0
    repairs: dict[str, int] = field(default_factory=dict)

    @property
    def nothing_to_do(self) -> bool:
        return not (self.changed or self.leftovers or self.sessions_created)


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """`new_sessions` are the session records to make; `unreadable` are point ids."""

    sessions: tuple[SessionPlan, ...] = ()
    new_sessions: tuple[Session, ...] = ()
    unreadable: tuple[PointId, ...] = ()

    @property
    def changes(self) -> Iterator[TurnChange]:
        return (change for session in self.sessions for change in session.changes)

    @property
    def writes(self) -> int:
        """How many turns `apply` goes through."""
        return sum(len(session.changes) + len(session.leftovers) for session in self.sessions)

    def report(
        self, *, dry_run: bool = True, sessions_created: int | None = None, gone: int = 0
    ) -> BackfillReport:
        repairs = Counter(repair.value for change in self.changes for repair in change.repairs)
        names = {session.session_id for session in self.sessions}
        return BackfillReport(
            dry_run=dry_run,
            sessions=len(names),
            turns=sum(session.turns for session in self.sessions),
            changed=sum(len(session.changes) for session in self.sessions),
            rehomed=sum(change.rehomed for change in self.changes),
            leftovers=sum(len(session.leftovers) for session in self.sessions),
            unparsable=sum(len(session.unparsable) for session in self.sessions),
            duplicates=sum(len(session.duplicates) for session in self.sessions),
            unreadable=len(self.unreadable),
            unlisted=sum(not is_listable(name) for name in names),
            sessions_created=len(self.new_sessions) if sessions_created is None else sessions_created,
            gone=gone,
            repairs={repair.value: repairs[repair.value] for repair in Repair if repairs[repair.value]},
        )
