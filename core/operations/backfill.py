"""Repair of stored turns: diagnose what is missing or broken in a session, by kind, and plan what it should
be.

The order of a session is (time, seq, turn id), turns without a readable time last. A parent is valid if it is
an earlier turn of the session in that order, so the result has no cycles. Planning again on the applied
result changes nothing, even if the run was interrupted half-way.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from uuid import NAMESPACE_URL, uuid5

from core.conversation.turns import TURN_SCHEMA, TurnStatus
from core.dates import is_moment, names_zone, parse_time, rfc3339
from core.operations.backfill_turns import (
    Finding,
    PointId,
    Repair,
    SessionPlan,
    StoredTurn,
    Trouble,
    TurnChange,
    name_of,
)
from core.text import canonical_uuid

_FIELDS = (Repair.TIME, Repair.TIMESTAMP, Repair.SEQ, Repair.OWNER, Repair.STATUS, Repair.SCHEMA)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One session in its order: `names` maps what turns are called to ids, `finals` is how they should be.

    `duplicates` are points whose turn id belongs to another turn; `twins` maps duplicate turns to the one to
    keep, whose final id is in `ids`.
    """

    finals: Sequence[TurnChange]
    names: Mapping[str, str]
    ids: Mapping[PointId, str]
    duplicates: Sequence[PointId]
    twins: Mapping[PointId, PointId]


def diagnose(session: Diagnosis) -> tuple[Finding, ...]:
    """Return the findings, sorted by kind, then in the order of the session."""
    on_cycle = turns_on_cycles(session.finals, session.names)
    findings = [
        *_about_ids(session),
        *(each for final in session.finals if (each := _about_parent(final, session.names, on_cycle))),
        *_about_times(session.finals),
        *_about_fields(session.finals),
    ]
    kinds = list(Trouble)
    return tuple(sorted(findings, key=lambda finding: kinds.index(finding.trouble)))


def turns_on_cycles(finals: Sequence[TurnChange], names: Mapping[str, str]) -> set[str]:
    """Return ids of turns whose stored parents lead back to them, in at most two steps per turn."""
    parents = {final.turn_id: names.get(name_of(final.before.parent_turn_id or "")) for final in finals}
    visited: dict[str, str] = {}  # turn → the walk that visited it
    on_cycle: set[str] = set()
    for start in parents:
        turn: str | None = start
        while turn is not None and turn not in visited:
            visited[turn] = start
            turn = parents.get(turn)
        if turn is None or visited[turn] != start:
            continue
        while turn is not None and turn not in on_cycle:
            on_cycle.add(turn)
            turn = parents[turn]
    return on_cycle


def _about_ids(session: Diagnosis) -> Iterator[Finding]:
    duplicates = set(session.duplicates)
    for final in session.finals:
        stored = final.before.turn_id
        if not stored:
            yield Finding(Trouble.MISSING_TURN_ID, final.point_id, stored, final.turn_id)
        elif final.point_id in duplicates:
            yield Finding(Trouble.DUPLICATE_TURN_ID, final.point_id, stored, final.turn_id)
        elif stored != str(final.point_id):
            yield Finding(Trouble.OTHER_TURN_ID, final.point_id, stored, final.turn_id)
    for twin, original in session.twins.items():
        yield Finding(Trouble.DUPLICATE_TURN, twin, None, session.ids[original])


def _about_parent(final: TurnChange, names: Mapping[str, str], on_cycle: set[str]) -> Finding | None:
    before, after = final.before.parent_turn_id, final.parent_turn_id
    if before == after:
        return None
    named = names.get(name_of(before or ""))
    if not before:
        trouble = Trouble.MISSING_PARENT
    elif named is None:
        trouble = Trouble.DANGLING_PARENT
    elif named == after:
        trouble = Trouble.RENAMED_PARENT
    else:
        trouble = Trouble.PARENT_CYCLE if final.turn_id in on_cycle else Trouble.LATER_PARENT
    return Finding(trouble, final.point_id, before, after)


def _about_times(finals: Sequence[TurnChange]) -> Iterator[Finding]:
    zoned = any(names_zone(final.before.timestamp) for final in finals)
    for final in finals:
        before = final.before
        if not final.created_us:
            yield Finding(Trouble.UNPARSABLE_TIME, final.point_id, before.timestamp or None)
        elif _is_naive(before):
            after = rfc3339(final.created_us)
            yield Finding(Trouble.NAIVE_TIME, final.point_id, before.timestamp, after)
            if zoned:
                yield Finding(Trouble.MIXED_ZONES, final.point_id, before.timestamp, after)


def _is_naive(turn: StoredTurn) -> bool:
    """Whether the turn's time depends on the assumed zone."""
    known = turn.created_us is not None and is_moment(turn.created_us)
    return not known and names_zone(turn.timestamp) is False


def _about_fields(finals: Sequence[TurnChange]) -> Iterator[Finding]:
    for final in finals:
        fields = [repair.value for repair in final.repairs if repair in _FIELDS]
        if fields:
            yield Finding(Trouble.MISSING_FIELDS, final.point_id, None, ", ".join(fields))


# Assign each turn of a session its id, find points that are copies, and resolve what children call a turn.


def claimed_ids(turns: Iterable[StoredTurn]) -> set[str]:
    """Return turn ids that differ from their point's id; the caller checks which of them exist as points."""
    claims = ((turn, canonical_uuid(turn.turn_id)) for turn in turns)
    return {turn_id for turn, turn_id in claims if turn_id is not None and turn_id != str(turn.point_id)}


def own_id(turn: StoredTurn) -> str:
    """Return the turn id that follows from the point: its UUID, or one derived from its number."""
    return canonical_uuid(str(turn.point_id)) or str(uuid5(NAMESPACE_URL, f"wenmai:{turn.point_id}"))


def find_leftovers(turns: Sequence[StoredTurn]) -> dict[PointId, None]:
    """Return points that already have a copy under their new id, which names them as its origin."""
    copies = {turn.legacy_point_id: str(turn.point_id) for turn in turns if turn.legacy_point_id is not None}
    originals = set(copies.values())
    return {
        turn.point_id: None
        for turn in turns
        if turn.point_id in copies
        and copies[turn.point_id] in (canonical_uuid(turn.turn_id), own_id(turn))
        and str(turn.point_id) not in originals
    }


def find_twins(turns: Iterable[StoredTurn], times: Mapping[PointId, int]) -> dict[PointId, PointId]:
    """Map duplicate turns to the one to keep: of equal text and time, the one with its own id or the first.

    A turn that is still running, or whose time is unknown, is not a duplicate.
    """
    alike: dict[tuple[int, str], list[StoredTurn]] = defaultdict(list)
    for turn in turns:
        if turn.text_digest and times[turn.point_id] and turn.status != "running":
            alike[times[turn.point_id], turn.text_digest].append(turn)
    twins: dict[PointId, PointId] = {}
    for group in alike.values():
        original = next((turn for turn in group if turn.turn_id == str(turn.point_id)), group[0])
        twins |= {turn.point_id: original.point_id for turn in group if turn is not original}
    return twins


def assign_ids(
    turns: Sequence[StoredTurn], taken: Container[str], beside: Iterable[PointId]
) -> tuple[dict[PointId, str], list[PointId]]:
    """Return each turn's id, and the points whose stored id belongs to another turn.

    `beside` are points of the session that are not among the turns, `taken` those of other sessions.
    """
    used = {str(turn.point_id) for turn in turns} | {str(point) for point in beside}
    ids: dict[PointId, str] = {}
    duplicates: list[PointId] = []
    for turn in turns:
        own = own_id(turn)
        target = canonical_uuid(turn.turn_id) or own
        if target != str(turn.point_id) and (target in used or target in taken):
            duplicates.append(turn.point_id)
            target = own
        used.add(target)
        ids[turn.point_id] = target
    return ids, duplicates


def turn_names(turns: Sequence[StoredTurn], ids: Mapping[PointId, str]) -> dict[str, str]:
    """Map what children may call a turn to its id.

    An id that a turn will have always means that turn, so a correct parent stays; then come stored turn ids,
    point ids and former ids.
    """
    spoken: list[tuple[PointId | None, StoredTurn]] = [
        *((ids[turn.point_id], turn) for turn in turns),
        *((turn.turn_id, turn) for turn in turns),
        *((turn.point_id, turn) for turn in turns),
        *((turn.legacy_turn_id, turn) for turn in turns),
        *((turn.legacy_point_id, turn) for turn in turns),
    ]
    names: dict[str, str] = {}
    for name, turn in spoken:
        if name is not None:
            names.setdefault(name_of(str(name)), ids[turn.point_id])
    return names


def plan_session(
    session_id: str,
    turns: Sequence[StoredTurn],
    *,
    owner: str = "local",
    zone: tzinfo = UTC,
    taken: Container[str] = frozenset(),
    drop_duplicates: bool = False,
) -> SessionPlan:
    """Plan the repair of one session of one owner. `taken` are ids that other points have or will get.

    With `drop_duplicates`, one of duplicate turns is kept, and becomes the parent of the others' children.
    Raises ValueError if there are no turns.
    """
    if not turns:
        raise ValueError("a session without turns has nothing to repair")
    leftovers = find_leftovers(turns)
    remaining = [turn for turn in turns if turn.point_id not in leftovers]
    times = {turn.point_id: _time_of(turn, zone) for turn in remaining}
    by_point = sorted(remaining, key=lambda turn: _order(turn, times[turn.point_id], str(turn.point_id)))
    twins = find_twins(by_point, times)
    dropped = twins if drop_duplicates else {}
    ids, duplicates = assign_ids([turn for turn in by_point if turn.point_id not in dropped], taken, dropped)
    ids |= {twin: ids[original] for twin, original in dropped.items()}
    ordered = sorted(remaining, key=lambda turn: _order(turn, times[turn.point_id], ids[turn.point_id]))
    names = turn_names(sorted(ordered, key=lambda turn: turn.point_id in dropped), ids)
    staying = [turn for turn in ordered if turn.point_id not in dropped]
    finals = _final_turns(staying, times, ids, names, owner)
    known = [time for time in times.values() if time]
    return SessionPlan(
        session_id=session_id,
        owner=finals[0].owner,
        turns=len(remaining),
        first_turn_id=finals[0].turn_id,
        created_us=min(known, default=0),
        updated_us=max(known, default=0),
        changes=tuple(change for change in finals if change.repairs or change.rehomed),
        leftovers=tuple(leftovers),
        unparsable=tuple(turn.point_id for turn in staying if not times[turn.point_id]),
        duplicates=tuple(duplicates),
        dropped=tuple(dropped),
        findings=diagnose(Diagnosis(finals, names, ids, duplicates, twins)),
    )


def possible_twins(turns: Sequence[StoredTurn], zone: tzinfo) -> list[PointId]:
    """Return points that share their time with another: the only ones whose texts need comparing."""
    times = {turn.point_id: _time_of(turn, zone) for turn in turns}
    count = Counter(times.values())
    return [point for point, created_us in times.items() if created_us and count[created_us] > 1]


def _time_of(turn: StoredTurn, zone: tzinfo) -> int:
    """Return UTC microseconds, 0 if neither field has a time."""
    if turn.created_us is not None and is_moment(turn.created_us):
        return turn.created_us
    return parse_time(turn.timestamp, zone) or 0


def _order(turn: StoredTurn, created_us: int, turn_id: str) -> tuple[bool, int, bool, int, str]:
    return (created_us == 0, created_us, turn.seq is None, turn.seq or 0, turn_id)


def _final_turns(
    ordered: Sequence[StoredTurn],
    times: Mapping[PointId, int],
    ids: Mapping[PointId, str],
    names: Mapping[str, str],
    owner: str,
) -> list[TurnChange]:
    earlier: dict[str, None] = {}
    finals: list[TurnChange] = []
    for index, turn in enumerate(ordered):
        turn_id, created_us = ids[turn.point_id], times[turn.point_id]
        before = finals[-1] if finals else None
        # Equal times are ordered by seq: a new one must not sort before the turns it follows.
        least = before.seq + 1 if before and before.created_us == created_us else 0
        replaced = turn.turn_id is not None and name_of(turn.turn_id) != turn_id
        change = TurnChange(
            point_id=turn.point_id,
            turn_id=turn_id,
            parent_turn_id=_parent(turn, names, earlier),
            created_us=created_us,
            timestamp=turn.timestamp or (rfc3339(created_us) if created_us else ""),
            seq=max(index, least) if turn.seq is None else turn.seq,
            owner=turn.owner or owner,
            status=_status(turn),
            schema=TURN_SCHEMA if not turn.ours else turn.schema or TURN_SCHEMA,
            legacy_turn_id=turn.turn_id if replaced else None,
            repairs=(),
            before=turn,
        )
        changed = [each for each in Repair if getattr(turn, each) != getattr(change, each)]
        finals.append(replace(change, repairs=tuple(changed)) if changed else change)
        earlier[turn_id] = None
    return finals


def _parent(turn: StoredTurn, names: Mapping[str, str], earlier: dict[str, None]) -> str | None:
    """Return the named parent if it is an earlier turn, None for our own roots, else the preceding turn."""
    if turn.parent_turn_id is None and turn.ours:
        return None
    named = names.get(name_of(turn.parent_turn_id or ""))
    return named if named in earlier else next(reversed(earlier), None)


def _status(turn: StoredTurn) -> str:
    known = {status.value for status in TurnStatus}
    return turn.status if turn.status and turn.status in known else TurnStatus.COMPLETED.value
