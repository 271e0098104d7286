"""Which id each turn of a session gets, which point is a copy of which, and what children call a turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from uuid import NAMESPACE_URL, uuid5

from core.backfill_turns import PointId, StoredTurn, canonical_uuid, name_of


def claimed_ids(turns: Iterable[StoredTurn]) -> set[str]:
    """Turn ids that differ from their point's id: the caller finds out which of them are points already."""
    wanted = ((turn, canonical_uuid(turn.turn_id)) for turn in turns)
    return {turn_id for turn, turn_id in wanted if turn_id is not None and turn_id != str(turn.point_id)}


def own_id(turn: StoredTurn) -> str:
    """The turn id that the point itself gives: its UUID, or one made of its number."""
    return canonical_uuid(str(turn.point_id)) or str(uuid5(NAMESPACE_URL, f"wenmai:{turn.point_id}"))


def find_leftovers(turns: Sequence[StoredTurn]) -> dict[PointId, None]:
    """Points whose copy, under the id they would move to, is there and says where it came from."""
    copies = {turn.legacy_point_id: str(turn.point_id) for turn in turns if turn.legacy_point_id is not None}
    kept = set(copies.values())
    return {
        turn.point_id: None
        for turn in turns
        if turn.point_id in copies
        and copies[turn.point_id] in (canonical_uuid(turn.turn_id), own_id(turn))
        and str(turn.point_id) not in kept
    }


def find_twins(turns: Iterable[StoredTurn], times: Mapping[PointId, int]) -> dict[PointId, PointId]:
    """Duplicate turns → the one to keep: of equal text and time, that which has its own id, else the first.

    A turn that is still running, or whose time is not known, is nobody's duplicate.
    """
    alike: dict[tuple[int, str], list[StoredTurn]] = defaultdict(list)
    for turn in turns:
        if turn.text_digest and times[turn.point_id] and turn.status != "running":
            alike[times[turn.point_id], turn.text_digest].append(turn)
    twins: dict[PointId, PointId] = {}
    for group in alike.values():
        kept = next((turn for turn in group if turn.turn_id == str(turn.point_id)), group[0])
        twins |= {turn.point_id: kept.point_id for turn in group if turn is not kept}
    return twins


def assign_ids(
    turns: Sequence[StoredTurn], taken: Container[str], beside: Iterable[PointId] = ()
) -> tuple[dict[PointId, str], list[PointId]]:
    """The id of each turn, and the points whose stored one belongs to another turn.

    `beside` are points of the session that are not among the turns, `taken` those of other sessions.
    """
    used = {str(turn.point_id) for turn in turns} | {str(point) for point in beside}
    ids: dict[PointId, str] = {}
    duplicates: list[PointId] = []
    for turn in turns:
        own = own_id(turn)
        wanted = canonical_uuid(turn.turn_id) or own
        if wanted != str(turn.point_id) and (wanted in used or wanted in taken):
            duplicates.append(turn.point_id)
            wanted = own
        used.add(wanted)
        ids[turn.point_id] = wanted
    return ids, duplicates


def names_of_turns(turns: Sequence[StoredTurn], ids: Mapping[PointId, str]) -> dict[str, str]:
    """What children may call a turn → its id.

    An id that a turn has afterwards means that turn, so a parent that is right stays; then come stored turn
    ids, point ids and former ids.
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
