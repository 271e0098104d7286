"""Repair of stored turns: what is missing or broken in a session, and what it should be.

The order of a session is (time, seq, turn id), turns without a readable time last. A parent is valid
when it is an earlier turn of the session in that order, so what comes out has no cycle. Planning again
on the applied result changes nothing, also when the work was cut half-way.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from enum import StrEnum
from uuid import NAMESPACE_URL, UUID, uuid5

from core.moments import is_moment, parse_time
from core.turns import TURN_SCHEMA, TurnStatus, rfc3339

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


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """A turn as it was found; None is missing. Ids and the status are as written, valid or not."""

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

    @property
    def rehomed(self) -> bool:
        """The point must move: its id is to be the turn id."""
        return str(self.point_id) != self.turn_id


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """`leftovers` were copied to their new id before, by a run that was cut, and only need deleting.

    `unparsable` and `duplicates` (another turn has their id) are point ids, reported and kept.
    `created_us` and `updated_us` are of the first and the last turn, 0 when no time is known.
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


def canonical_uuid(text: str | None) -> str | None:
    """Lower case with hyphens, as the store gives ids back; None when it is no UUID."""
    try:
        return str(UUID(text)) if text else None
    except ValueError:
        return None


def claimed_ids(turns: Iterable[StoredTurn]) -> set[str]:
    """Turn ids that differ from their point's id: the caller finds out which of them are points already."""
    wanted = ((turn, canonical_uuid(turn.turn_id)) for turn in turns)
    return {turn_id for turn, turn_id in wanted if turn_id is not None and turn_id != str(turn.point_id)}


def plan_session(
    session_id: str,
    turns: Sequence[StoredTurn],
    *,
    owner: str = "local",
    zone: tzinfo = UTC,
    taken: Container[str] = frozenset(),
) -> SessionPlan:
    """Plan the repair of one session of one owner. `taken` are ids that other points have or will get.

    Raises ValueError when there are no turns.
    """
    if not turns:
        raise ValueError("a session without turns has nothing to repair")
    leftovers = _leftovers(turns)
    kept = [turn for turn in turns if turn.point_id not in leftovers]
    times = {turn.point_id: _time_of(turn, zone) for turn in kept}
    by_point = sorted(kept, key=lambda turn: _order(turn, times[turn.point_id], str(turn.point_id)))
    ids, duplicates = _assign_ids(by_point, taken)
    ordered = sorted(kept, key=lambda turn: _order(turn, times[turn.point_id], ids[turn.point_id]))
    finals = _final_turns(ordered, times, ids, owner)
    known = [time for time in times.values() if time]
    return SessionPlan(
        session_id=session_id,
        owner=finals[0].owner,
        turns=len(kept),
        first_turn_id=finals[0].turn_id,
        created_us=min(known, default=0),
        updated_us=max(known, default=0),
        changes=tuple(change for change in finals if change.repairs or change.rehomed),
        leftovers=tuple(leftovers),
        unparsable=tuple(turn.point_id for turn in ordered if not times[turn.point_id]),
        duplicates=tuple(duplicates),
    )


def _own_id(turn: StoredTurn) -> str:
    """The turn id that the point itself gives: its UUID, or one made of its number."""
    return canonical_uuid(str(turn.point_id)) or str(uuid5(NAMESPACE_URL, f"wenmai:{turn.point_id}"))


def _leftovers(turns: Sequence[StoredTurn]) -> dict[PointId, None]:
    """Points whose copy, under the id they would move to, is there and says where it came from."""
    copies = {turn.legacy_point_id: str(turn.point_id) for turn in turns if turn.legacy_point_id is not None}
    kept = set(copies.values())
    return {
        turn.point_id: None
        for turn in turns
        if turn.point_id in copies
        and copies[turn.point_id] in (canonical_uuid(turn.turn_id), _own_id(turn))
        and str(turn.point_id) not in kept
    }


def _time_of(turn: StoredTurn, zone: tzinfo) -> int:
    """UTC microseconds, 0 when neither field tells."""
    if turn.created_us is not None and is_moment(turn.created_us):
        return turn.created_us
    return parse_time(turn.timestamp, zone) or 0


def _order(turn: StoredTurn, created_us: int, turn_id: str) -> tuple[bool, int, bool, int, str]:
    return (created_us == 0, created_us, turn.seq is None, turn.seq or 0, turn_id)


def _assign_ids(
    turns: Sequence[StoredTurn], taken: Container[str]
) -> tuple[dict[PointId, str], list[PointId]]:
    """The id of each turn, and the points whose stored one belongs to another turn."""
    used = {str(turn.point_id) for turn in turns}
    ids: dict[PointId, str] = {}
    duplicates: list[PointId] = []
    for turn in turns:
        own = _own_id(turn)
        wanted = canonical_uuid(turn.turn_id) or own
        if wanted != str(turn.point_id) and (wanted in used or wanted in taken):
            duplicates.append(turn.point_id)
            wanted = own
        used.add(wanted)
        ids[turn.point_id] = wanted
    return ids, duplicates


def _name(turn_id: str) -> str:
    return canonical_uuid(turn_id) or turn_id


def _names(turns: Sequence[StoredTurn], ids: Mapping[PointId, str]) -> dict[str, str]:
    """What children may call a turn → its id: its stored turn id before a point id before a former id."""
    spoken: list[tuple[PointId | None, StoredTurn]] = [
        *((turn.turn_id, turn) for turn in turns),
        *((turn.point_id, turn) for turn in turns),
        *((turn.legacy_turn_id, turn) for turn in turns),
        *((turn.legacy_point_id, turn) for turn in turns),
    ]
    names: dict[str, str] = {}
    for name, turn in spoken:
        if name is not None:
            names.setdefault(_name(str(name)), ids[turn.point_id])
    return names


def _final_turns(
    ordered: Sequence[StoredTurn], times: Mapping[PointId, int], ids: Mapping[PointId, str], owner: str
) -> list[TurnChange]:
    names = _names(ordered, ids)
    earlier: dict[str, None] = {}
    finals: list[TurnChange] = []
    for index, turn in enumerate(ordered):
        turn_id, created_us = ids[turn.point_id], times[turn.point_id]
        before = finals[-1] if finals else None
        # Equal times are told apart by seq: a new one must not sort before those it was placed after.
        least = before.seq + 1 if before and before.created_us == created_us else 0
        final = _Final(
            turn_id=turn_id,
            parent_turn_id=_parent(turn, names, earlier),
            created_us=created_us,
            seq=max(index, least) if turn.seq is None else turn.seq,
        )
        finals.append(_change(turn, final, owner))
        earlier[turn_id] = None
    return finals


@dataclass(frozen=True, slots=True)
class _Final:
    turn_id: str
    parent_turn_id: str | None
    created_us: int
    seq: int


def _parent(turn: StoredTurn, names: Mapping[str, str], earlier: dict[str, None]) -> str | None:
    """The named parent when it is an earlier turn, none for our own roots, else the turn just before."""
    if turn.parent_turn_id is None and turn.ours:
        return None
    named = names.get(_name(turn.parent_turn_id or ""))
    return named if named in earlier else next(reversed(earlier), None)


def _status(turn: StoredTurn) -> str:
    known = {status.value for status in TurnStatus}
    return turn.status if turn.status and turn.status in known else TurnStatus.COMPLETED.value


def _change(turn: StoredTurn, final: _Final, owner: str) -> TurnChange:
    replaced = turn.turn_id is not None and _name(turn.turn_id) != final.turn_id
    change = TurnChange(
        point_id=turn.point_id,
        turn_id=final.turn_id,
        parent_turn_id=final.parent_turn_id,
        created_us=final.created_us,
        timestamp=turn.timestamp or (rfc3339(final.created_us) if final.created_us else ""),
        seq=final.seq,
        owner=turn.owner or owner,
        status=_status(turn),
        schema=TURN_SCHEMA if not turn.ours else turn.schema or TURN_SCHEMA,
        legacy_turn_id=turn.turn_id if replaced else None,
        repairs=(),
    )
    changed = (repair for repair in Repair if getattr(turn, repair.value) != getattr(change, repair.value))
    return replace(change, repairs=tuple(changed))
