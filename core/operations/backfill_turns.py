"""What a repair speaks of: turns as stored, the kinds of trouble, and how turns should be."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

PointId = str | int
"""A UUID, or an unsigned integer where an earlier version counted its points."""


class Repair(StrEnum):
    """What is repaired; the value is the payload's field and TurnChange's."""

    TURN_ID = "turn_id"
    PARENT = "parent_turn_id"
    TIME = "created_us"
    TIMESTAMP = "timestamp"
    SEQ = "seq"
    OWNER = "owner"
    STATUS = "status"
    SCHEMA = "schema"


class Trouble(StrEnum):
    """What is looked for, each kind by itself, in the order in which it is reported."""

    MISSING_TURN_ID = "missing_turn_id"
    OTHER_TURN_ID = "other_turn_id"
    """A turn id that is not its point's id, which is what the turn is read by."""
    DUPLICATE_TURN_ID = "duplicate_turn_id"
    DUPLICATE_TURN = "duplicate_turn"
    """Session, question, answer and time of another turn, under an id of its own."""
    MISSING_PARENT = "missing_parent"
    DANGLING_PARENT = "dangling_parent"
    FOREIGN_PARENT = "parent_of_other_session"
    """Of another session, or of another owner."""
    PARENT_CYCLE = "parent_cycle"
    """The parents lead back to the turn itself."""
    LATER_PARENT = "later_parent"
    RENAMED_PARENT = "renamed_parent"
    """The parent is right, and called by a former id or in another spelling."""
    NAIVE_TIME = "naive_timestamp"
    MIXED_ZONES = "mixed_zones"
    """A session in which some times name a zone and others do not: a finding for each that does not."""
    UNPARSABLE_TIME = "unparsable_time"
    MISSING_FIELDS = "missing_fields"
    MISSING_VECTORS = "missing_vectors"
    MISSING_SESSION = "session_without_record"
    NO_SESSION = "no_session"
    """A point that names no session: it is left alone."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One trouble of one point; `before` and `after` are its value, None where there is none."""

    trouble: Trouble
    point_id: PointId
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """A turn as it is stored; None is missing. Ids and the status are as written, valid or not.

    `text_digest` is of question and answer; "" where no other turn has its time.
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
        """Written or repaired by this version: a null parent is a deliberate new root."""
        return self.schema is not None and self.schema >= 1


@dataclass(frozen=True, slots=True)
class TurnChange:
    """How one turn should be; only the fields named in `repairs` (and `legacy_turn_id`) are written."""

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
        """The point must move: its id is to be the turn id."""
        return str(self.point_id) != self.turn_id


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """`leftovers` were copied to their new id before, by a run that was cut, and only need deleting.

    `unparsable` and `duplicates` (another turn has their id) are point ids, reported and kept; `dropped`
    are duplicate turns that are to be deleted. `created_us` and `updated_us` are of the first and the last
    turn, 0 when no time is known.
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


def canonical_uuid(text: str | None) -> str | None:
    """Lower case with hyphens, as the store gives ids back; None when it is no UUID."""
    try:
        return str(UUID(text)) if text else None
    except ValueError:
        return None


def name_of(turn_id: str) -> str:
    """What two spellings of one id have in common."""
    return canonical_uuid(turn_id) or turn_id
