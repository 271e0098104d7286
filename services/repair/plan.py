"""What a repair of the stored conversations would do, and the report of what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from core.backfill_turns import Finding, PointId, Repair, SessionPlan, Trouble, TurnChange, canonical_uuid
from services.sessions import Session


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """`assume_timezone` is for times that name none; turns without an owner become `owner`'s.

    `session_id` is the only session to look at; `drop_duplicates` deletes all but one of duplicate turns.
    """

    assume_timezone: str = "UTC"
    owner: str = "local"
    session_id: str | None = None
    drop_duplicates: bool = False


def is_listable(session_id: str) -> bool:
    """A route names a session by its UUID, in lower case with hyphens."""
    return canonical_uuid(session_id) == session_id


@dataclass(frozen=True, slots=True)
class BackfillReport:
    """What was found, and in a run that is not dry, done. `repairs` counts turns by the field that changes,
    `troubles` turns (or sessions) by the kind of trouble that was found before.

    `unreadable` points have no session and are left alone; `unlisted` sessions have an id that is no
    UUID, so that no route can name them; `unparsable` times and `duplicates` (turns that shared an id)
    are kept; `dropped` duplicate turns are deleted. `gone` were deleted between plan and run, `skipped`
    changed in between: they are left to the next run. `lacking` turns had no vectors, `embedded` got them;
    `foreign_vectors`: the collection's vectors are not the configured embedding's, so none are made.
    `undo_file` is the name of the file that puts everything back. `plan` is there when it was asked for.
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
    troubles: dict[str, int] = field(default_factory=dict)
    dropped: int = 0
    skipped: int = 0
    lacking: int = 0
    embedded: int = 0
    foreign_vectors: bool = False
    undo_file: str = ""
    plan: BackfillPlan | None = None

    @property
    def nothing_to_do(self) -> bool:
        return not (self.changed or self.leftovers or self.sessions_created or self.dropped)


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """`new_sessions` are the session records to make; `unreadable` are point ids.

    `lacking` are the points of completed turns that have not all their vectors.
    """

    sessions: tuple[SessionPlan, ...] = ()
    new_sessions: tuple[Session, ...] = ()
    unreadable: tuple[PointId, ...] = ()
    lacking: tuple[PointId, ...] = ()
    foreign_vectors: bool = False
    options: BackfillOptions = field(default_factory=BackfillOptions)

    @property
    def changes(self) -> Iterator[TurnChange]:
        return (change for session in self.sessions for change in session.changes)

    @property
    def removed(self) -> Iterator[PointId]:
        """Points that are deleted: copies that a cut run left, and duplicate turns."""
        return (point for each in self.sessions for point in (*each.leftovers, *each.dropped))

    @property
    def writes(self) -> int:
        """How many turns `apply` goes through, embedding aside."""
        return sum(len(session.changes) for session in self.sessions) + len(list(self.removed))

    @property
    def findings(self) -> Iterator[Finding]:
        return (finding for session in self.sessions for finding in session.findings)

    @property
    def troubles(self) -> dict[str, int]:
        """By kind, in the order of Trouble, those that there are none of left out."""
        found = Counter(finding.trouble for finding in self.findings)
        found[Trouble.MIXED_ZONES] = sum(
            any(finding.trouble is Trouble.MIXED_ZONES for finding in session.findings)
            for session in self.sessions
        )
        found[Trouble.MISSING_VECTORS] = len(self.lacking)
        found[Trouble.MISSING_SESSION] = len(self.new_sessions)
        found[Trouble.NO_SESSION] = len(self.unreadable)
        return {trouble.value: found[trouble] for trouble in Trouble if found[trouble]}

    def report(self) -> BackfillReport:
        """Of a dry run."""
        repairs = Counter(repair.value for change in self.changes for repair in change.repairs)
        names = {session.session_id for session in self.sessions}
        return BackfillReport(
            dry_run=True,
            sessions=len(names),
            turns=sum(session.turns for session in self.sessions),
            changed=sum(len(session.changes) for session in self.sessions),
            rehomed=sum(change.rehomed for change in self.changes),
            leftovers=sum(len(session.leftovers) for session in self.sessions),
            unparsable=sum(len(session.unparsable) for session in self.sessions),
            duplicates=sum(len(session.duplicates) for session in self.sessions),
            unreadable=len(self.unreadable),
            unlisted=sum(not is_listable(name) for name in names),
            sessions_created=len(self.new_sessions),
            repairs={repair.value: repairs[repair.value] for repair in Repair if repairs[repair.value]},
            troubles=self.troubles,
            dropped=sum(len(session.dropped) for session in self.sessions),
            lacking=len(self.lacking),
            foreign_vectors=self.foreign_vectors,
        )
