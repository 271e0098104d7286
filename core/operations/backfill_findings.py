"""What is wrong with the turns of one session, each kind of trouble named by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.dates import is_moment, names_zone, rfc3339
from core.operations.backfill_turns import Finding, PointId, Repair, StoredTurn, Trouble, TurnChange, name_of

_FIELDS = (Repair.TIME, Repair.TIMESTAMP, Repair.SEQ, Repair.OWNER, Repair.STATUS, Repair.SCHEMA)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One session in its order: `names` is what turns are called → their ids, `finals` how they should be.

    `duplicates` are points whose turn id is another's; `twins` are duplicate turns → the one to keep, whose
    final id is `ids` of it.
    """

    finals: Sequence[TurnChange]
    names: Mapping[str, str]
    ids: Mapping[PointId, str]
    duplicates: Sequence[PointId]
    twins: Mapping[PointId, PointId]


def diagnose(session: Diagnosis) -> tuple[Finding, ...]:
    """Sorted by kind, then in the order of the session."""
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
    """Ids of turns whose stored parents lead back to them, in at most two steps for each turn."""
    parents = {final.turn_id: names.get(name_of(final.before.parent_turn_id or "")) for final in finals}
    visited: dict[str, str] = {}  # turn → the walk that came by
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
    """What it means depends on the zone that is assumed."""
    known = turn.created_us is not None and is_moment(turn.created_us)
    return not known and names_zone(turn.timestamp) is False


def _about_fields(finals: Sequence[TurnChange]) -> Iterator[Finding]:
    for final in finals:
        fields = [repair.value for repair in final.repairs if repair in _FIELDS]
        if fields:
            yield Finding(Trouble.MISSING_FIELDS, final.point_id, None, ", ".join(fields))
