"""The values of a repair: turns as stored, the kinds of trouble, turns as they should be, plans and
reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from core.conversation.sessions import Session
from core.text import canonical_uuid

PointId = str | int
"""A UUID, or an unsigned integer from earlier versions, which numbered their points."""


class Repair(StrEnum):
    """What is repaired; the value is the field's name in the payload and in TurnChange."""

    TURN_ID = "turn_id"
    PARENT = "parent_turn_id"
    TIME = "created_us"
    TIMESTAMP = "timestamp"
    SEQ = "seq"
    OWNER = "owner"
    STATUS = "status"
    SCHEMA = "schema"


class Trouble(StrEnum):
    """The kinds of trouble, in the order in which they are reported."""

    MISSING_TURN_ID = "missing_turn_id"
    OTHER_TURN_ID = "other_turn_id"
    """The turn id is not the point's id, by which turns are read."""
    DUPLICATE_TURN_ID = "duplicate_turn_id"
    DUPLICATE_TURN = "duplicate_turn"
    """Same session, question, answer and time as another turn, under a different id."""
    MISSING_PARENT = "missing_parent"
    DANGLING_PARENT = "dangling_parent"
    """Only in turns of earlier versions: one of ours becomes a root when its parent has expired."""
    FOREIGN_PARENT = "parent_of_other_session"
    """The parent is in another session, or has another owner."""
    PARENT_CYCLE = "parent_cycle"
    """The parents lead back to the turn itself."""
    LATER_PARENT = "later_parent"
    RENAMED_PARENT = "renamed_parent"
    """The parent is right, but named by a former id or in another spelling."""
    NAIVE_TIME = "naive_timestamp"
    MIXED_ZONES = "mixed_zones"
    """Some times of the session name a zone and others do not: one finding for each that does not."""
    UNPARSABLE_TIME = "unparsable_time"
    MISSING_FIELDS = "missing_fields"
    MISSING_VECTORS = "missing_vectors"
    MISSING_SESSION = "session_without_record"
    NO_SESSION = "no_session"
    """The point names no session: it is left alone."""
    UNSEARCHED_DOCUMENT = "document_not_searched"


@dataclass(frozen=True, slots=True)
class Finding:
    """One trouble of one point; `before` and `after` are the affected value, None if there is none."""

    trouble: Trouble
    point_id: PointId
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """A turn as stored; None means missing. Ids and the status are verbatim, valid or not.

    `text_digest` covers question and answer; "" if no other turn has the same time.
    """

    point_id: PointId
    turn_id: str | None = None
    parent_turn_id: str | None = None
    timestamp: str = ""
    created_us: int | None = None
    seq: int | None = None
    owner: str | None = None
    status: str | None = None
    schema: int | None = None
    legacy_turn_id: str | None = None
    legacy_point_id: PointId | None = None
    text_digest: str = field(default="", compare=False)

    @property
    def ours(self) -> bool:
        """Written or repaired by this version, in which a null parent is a deliberate new root."""
        return self.schema is not None and self.schema >= 1


@dataclass(frozen=True, slots=True)
class TurnChange:
    """How one turn should be; only the fields in `repairs` (and `legacy_turn_id`) are written."""

    point_id: PointId
    turn_id: str
    parent_turn_id: str | None
    created_us: int
    timestamp: str
    seq: int
    owner: str
    status: str
    schema: int
    legacy_turn_id: str | None
    repairs: tuple[Repair, ...]
    before: StoredTurn

    @property
    def rehomed(self) -> bool:
        """The point must move, so that its id is the turn id."""
        return str(self.point_id) != self.turn_id


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """`leftovers` were copied to their new id by an interrupted run, and only need deleting.

    `unparsable` and `duplicates` (another turn has their id) are point ids, reported and kept; `dropped` are
    duplicate turns to delete. `created_us` and `updated_us` are those of the first and the last turn, 0 if no
    time is known.
    """

    session_id: str
    owner: str
    turns: int
    first_turn_id: str
    created_us: int
    updated_us: int
    changes: tuple[TurnChange, ...] = ()
    leftovers: tuple[PointId, ...] = ()
    unparsable: tuple[PointId, ...] = ()
    duplicates: tuple[PointId, ...] = ()
    dropped: tuple[PointId, ...] = ()
    findings: tuple[Finding, ...] = ()


def name_of(turn_id: str) -> str:
    """Normalise an id, so that its spellings become equal."""
    return canonical_uuid(turn_id) or turn_id


# Plans of a repair or an import, and reports of what was done.


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """`assume_timezone` applies to times that name none; turns without an owner become `owner`'s.

    `session_id` limits the run to one session; `drop_duplicates` deletes all but one of duplicate turns.
    """

    assume_timezone: str = "UTC"
    owner: str = "local"
    session_id: str | None = None
    drop_duplicates: bool = False


def is_listable(session_id: str) -> bool:
    """Whether a route can name the session: by its UUID, in lower case with hyphens."""
    return canonical_uuid(session_id) == session_id


@dataclass(frozen=True, slots=True)
class BackfillReport:
    """What was found and, unless it was a dry run, done. `repairs` counts turns by changed field, `troubles`
    turns (or sessions) by the kind of trouble found before.

    `unreadable` points have no session and are left alone; `unlisted` sessions have an id that is not a UUID,
    so that no route can name them; `unparsable` times and `duplicates` (turns that shared an id) are kept;
    `dropped` duplicate turns are deleted. `deleted` disappeared between plan and run, `skipped` changed in
    between: they are left to the next run. `lacking` turns had no vectors, `embedded` got them;
    `foreign_vectors`: the collection's vectors are not from the configured embedding, so none are made.
    `documents` were marked ready but not searched. `backup` is the archive written first. `plan` is set on
    request.
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
    deleted: int = 0
    repairs: dict[str, int] = field(default_factory=dict)
    troubles: dict[str, int] = field(default_factory=dict)
    dropped: int = 0
    skipped: int = 0
    lacking: int = 0
    embedded: int = 0
    foreign_vectors: bool = False
    documents: int = 0
    backup: str = ""
    plan: BackfillPlan | None = None

    @property
    def nothing_to_do(self) -> bool:
        done = (self.changed, self.leftovers, self.sessions_created, self.dropped, self.documents)
        return not any(done)


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """`new_sessions` are the session records to create; `unreadable` are point ids.

    `lacking` are points of completed turns that miss vectors, `unsearched` documents that are marked ready
    but not searched.
    """

    sessions: tuple[SessionPlan, ...] = ()
    new_sessions: tuple[Session, ...] = ()
    unreadable: tuple[PointId, ...] = ()
    lacking: tuple[PointId, ...] = ()
    unsearched: tuple[str, ...] = ()
    foreign_vectors: bool = False
    options: BackfillOptions = field(default_factory=BackfillOptions)

    @property
    def changes(self) -> Iterator[TurnChange]:
        return (change for session in self.sessions for change in session.changes)

    @property
    def removed(self) -> Iterator[PointId]:
        """Points to delete: copies left by an interrupted run, and duplicate turns."""
        return (point for each in self.sessions for point in (*each.leftovers, *each.dropped))

    @property
    def writes(self) -> int:
        """How many turns `apply` processes, embedding aside."""
        return sum(len(session.changes) for session in self.sessions) + len(list(self.removed))

    @property
    def findings(self) -> Iterator[Finding]:
        return (finding for session in self.sessions for finding in session.findings)

    @property
    def troubles(self) -> dict[str, int]:
        """Counts by kind, in the order of Trouble, without zeros."""
        counts = Counter(finding.trouble for finding in self.findings)
        counts[Trouble.MIXED_ZONES] = sum(
            any(finding.trouble is Trouble.MIXED_ZONES for finding in session.findings)
            for session in self.sessions
        )
        counts[Trouble.MISSING_VECTORS] = len(self.lacking)
        counts[Trouble.MISSING_SESSION] = len(self.new_sessions)
        counts[Trouble.NO_SESSION] = len(self.unreadable)
        counts[Trouble.UNSEARCHED_DOCUMENT] = len(self.unsearched)
        return {trouble.value: counts[trouble] for trouble in Trouble if counts[trouble]}

    def report(self) -> BackfillReport:
        """Report of a dry run."""
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
            documents=len(self.unsearched),
            foreign_vectors=self.foreign_vectors,
        )


@dataclass(frozen=True, slots=True)
class ImportReport:
    """`turns` can be copied, `existing` are in the store already, under their id; `added` were copied.

    `unreadable` points have no session or no question, `left_out` are what an interrupted repair or a
    repeated write left in the old collection. `troubles` are repaired on the way. `backup` is the archive
    written first.
    """

    dry_run: bool
    source: str
    sessions: int
    turns: int
    existing: int
    unreadable: int
    left_out: int
    added: int = 0
    embedded: int = 0
    sessions_created: int = 0
    troubles: dict[str, int] = field(default_factory=dict)
    backup: str = ""


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """`ids` maps the readable turns' old point ids to their new ids."""

    source: str
    repair: BackfillPlan
    ids: Mapping[PointId, str]
    existing: frozenset[str]
    unreadable: int

    @property
    def writes(self) -> int:
        return len(set(self.ids.values()) - self.existing)

    def report(self) -> ImportReport:
        return ImportReport(
            dry_run=True,
            source=self.source,
            sessions=len({session.session_id for session in self.repair.sessions}),
            turns=len(self.ids),
            existing=len(self.existing),
            unreadable=self.unreadable,
            left_out=len(set(self.repair.removed)),
            sessions_created=len(self.repair.new_sessions),
            troubles=self.repair.troubles,
        )
