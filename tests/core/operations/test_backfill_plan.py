"""The plan of a repair (RELIABILITY P9, P11, B104–B109), without a store.

Discriminates: a parent that may be later than its child; an alias that shadows a real id; a valid parent that
is replaced; children of a dropped duplicate left behind; one id for two turns when one of them is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID, uuid5
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.dates import parse_time
from core.operations.backfill import claimed_ids, plan_session
from core.operations.backfill_turns import Repair, SessionPlan, StoredTurn, Trouble, TurnChange

UNREADABLE = "yesterday"
PARENT_TROUBLES = {
    Trouble.MISSING_PARENT,
    Trouble.DANGLING_PARENT,
    Trouble.PARENT_CYCLE,
    Trouble.LATER_PARENT,
    Trouble.RENAMED_PARENT,
}
SPACE = UUID(int=7)


def uid(number: int) -> str:
    return str(uuid5(SPACE, str(number)))


def plan(turns: Sequence[StoredTurn], **options: object) -> SessionPlan:
    return plan_session("s", turns, **options)  # type: ignore[arg-type]


def applied(turns: Sequence[StoredTurn], changes: SessionPlan) -> list[StoredTurn]:
    """Return what the store holds afterwards."""
    by_point = {change.point_id: change for change in changes.changes}
    deleted = {*changes.leftovers, *changes.dropped}
    remaining = [turn for turn in turns if turn.point_id not in deleted]
    return [_written(turn, by_point.get(turn.point_id)) for turn in remaining]


def _written(turn: StoredTurn, change: TurnChange | None) -> StoredTurn:
    if change is None:
        return turn
    values = {repair.value: getattr(change, repair.value) for repair in change.repairs}
    if change.legacy_turn_id is not None:
        values["legacy_turn_id"] = change.legacy_turn_id
    if change.rehomed:
        values |= {"point_id": change.turn_id, "legacy_point_id": turn.point_id}
    return replace(turn, **values)


def order(turn: StoredTurn) -> tuple[bool, int, int, str]:
    created_us = turn.created_us or 0
    return (created_us == 0, created_us, turn.seq or 0, turn.turn_id or "")


point_ids = st.one_of(st.integers(0, 9).map(uid), st.integers(0, 5))
names = st.one_of(
    st.none(), st.integers(0, 9).map(uid), st.sampled_from(["", "1", "2", "first", uid(3).upper()])
)
stamps = st.sampled_from(
    ["", UNREADABLE, "2024-05-01T10:00:00Z", "2024-05-01T18:00:00+08:00", "2024-05-01 10:00:00", "2024-05-02"]
)
stored_turns = st.builds(
    StoredTurn,
    point_id=point_ids,
    turn_id=names,
    parent_turn_id=names,
    timestamp=stamps,
    created_us=st.sampled_from([None, 0, 10, 20, 1_714_557_600_000_000]),
    seq=st.one_of(st.none(), st.integers(0, 4)),
    owner=st.sampled_from([None, "local"]),
    status=st.sampled_from([None, "completed", "failed", "done"]),
    schema=st.sampled_from([None, 1]),
    text_digest=st.sampled_from(["", "", "a", "b"]),
)
sessions = st.lists(stored_turns, min_size=1, max_size=9, unique_by=lambda turn: str(turn.point_id))


@settings(max_examples=150, deadline=None)
@given(sessions)
def test_any_session_becomes_a_tree_and_stays_the_same_on_the_next_run(turns: list[StoredTurn]) -> None:
    """Red when a parent may be later than its child, or when an alias shadows a real id."""
    after = applied(turns, plan(turns))
    by_id = {str(turn.turn_id): turn for turn in after}
    assert len(by_id) == len(after) == len(turns)
    for turn in after:
        assert str(turn.point_id) == turn.turn_id
        assert turn.schema == 1
        assert turn.status in {"completed", "failed"}
        if turn.parent_turn_id is not None:
            assert order(by_id[turn.parent_turn_id]) < order(turn)
    again = plan(after)
    assert (again.changes, again.leftovers) == ((), ())


@settings(max_examples=150, deadline=None)
@given(sessions, st.integers(0, 9), st.integers(0, 9))
def test_an_interrupted_repair_is_finished_by_the_next_run(
    turns: list[StoredTurn], done: int, copied: int
) -> None:
    """Red when a half-repaired session is ordered or named differently from an untouched one.

    `done` changes are written; of the next ones `copied` are moves whose originals still exist.
    """
    whole = plan(turns)
    half = applied(turns, replace(whole, changes=whole.changes[:done], leftovers=()))
    originals = {turn.point_id: turn for turn in turns}
    moving = [change for change in whole.changes[done : done + copied] if change.rehomed]
    half += [_written(originals[change.point_id], change) for change in moving]
    finished = applied(half, plan(half))
    assert len({turn.turn_id for turn in finished}) == len(turns)
    assert plan(finished).changes == ()


@settings(max_examples=150, deadline=None)
@given(sessions)
def test_a_valid_parent_is_kept_and_every_changed_parent_has_a_reason(turns: list[StoredTurn]) -> None:
    result = plan(turns)
    ids = {
        turn.point_id: str(turn.turn_id) for turn in applied(turns, result) if turn.legacy_point_id is None
    }
    place = {turn.turn_id: turn for turn in applied(turns, result)}
    changed = {change.point_id: change for change in result.changes if Repair.PARENT in change.repairs}
    for turn in turns:
        parent = place.get(turn.parent_turn_id)
        stays = parent is not None and str(parent.point_id) in ids and parent.legacy_turn_id is None
        if stays and turn.point_id in ids and order(parent) < order(place[ids[turn.point_id]]):  # type: ignore[arg-type]
            assert place[ids[turn.point_id]].parent_turn_id == turn.parent_turn_id
    points = {finding.point_id for finding in result.findings if finding.trouble in PARENT_TROUBLES}
    assert points == set(changed)


@settings(max_examples=150, deadline=None)
@given(sessions)
def test_dropping_duplicates_leaves_one_of_each_and_a_tree(turns: list[StoredTurn]) -> None:
    result = plan(turns, drop_duplicates=True)
    after = applied(turns, result)
    ids = {str(turn.point_id) for turn in after}
    assert len(after) == len(turns) - len(result.dropped) == len(ids)
    assert all(turn.parent_turn_id is None or turn.parent_turn_id in ids for turn in after)
    times = [(turn.created_us, turn.text_digest) for turn in after if turn.text_digest and turn.created_us]
    assert len(times) == len(set(times))
    again = plan(after, drop_duplicates=True)
    assert (again.changes, again.dropped) == ((), ())


@settings(max_examples=100, deadline=None)
@given(sessions)
def test_after_a_repair_only_irreparable_faults_are_reported_again(turns: list[StoredTurn]) -> None:
    results = {finding.trouble for finding in plan(applied(turns, plan(turns))).findings}
    assert results <= {Trouble.UNPARSABLE_TIME, Trouble.DUPLICATE_TURN}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=12))
def test_the_search_for_cycles_ends_on_any_links(parents: list[int]) -> None:
    """Turn n names turn parents[n], itself, one in a cycle, or one that does not exist."""
    turns = [StoredTurn(uid(n), uid(n), uid(parent), created_us=n + 1) for n, parent in enumerate(parents)]
    results = {f.point_id for f in plan(turns).findings if f.trouble is Trouble.PARENT_CYCLE}
    for n, parent in enumerate(parents):
        observed, at = {n}, parent
        while at < len(parents) and at not in observed:
            observed.add(at)
            at = parents[at]
        assert (uid(n) in results) == (at == n and parent >= n), (parents, n)


@settings(max_examples=100, deadline=None)
@given(sessions)
def test_times_and_texts_are_unchanged(turns: list[StoredTurn]) -> None:
    before = {str(turn.point_id): turn.timestamp for turn in turns}
    after = applied(turns, plan(turns))
    written = {str(turn.legacy_point_id or turn.point_id): turn.timestamp for turn in after}
    assert all(written.get(point) in (stamp, None) for point, stamp in before.items() if stamp)


legacy_turns = st.builds(StoredTurn, point_id=point_ids, timestamp=stamps)


@settings(max_examples=100, deadline=None)
@given(st.lists(legacy_turns, min_size=1, max_size=9, unique_by=lambda turn: str(turn.point_id)))
def test_a_session_without_links_gets_exactly_one_root(turns: list[StoredTurn]) -> None:
    after = applied(turns, plan(turns))
    assert sum(turn.parent_turn_id is None for turn in after) == 1


def test_a_turn_without_an_id_gets_the_id_of_its_point() -> None:
    (change,) = plan([StoredTurn(uid(1))]).changes
    assert (change.turn_id, change.rehomed, change.legacy_turn_id) == (uid(1), False, None)
    assert Repair.TURN_ID in change.repairs


def test_a_stored_uuid_is_kept_and_the_point_moves_to_it() -> None:
    turns = [StoredTurn(uid(1), uid(11), created_us=1), StoredTurn(uid(2), uid(12), uid(11), created_us=2)]
    first, second = plan(turns).changes
    assert (first.turn_id, first.rehomed) == (uid(11), True)
    assert (second.turn_id, second.parent_turn_id) == (uid(12), uid(11))
    assert claimed_ids(turns) == {uid(11), uid(12)}


def test_an_id_that_is_not_a_uuid_is_replaced_and_its_children_follow() -> None:
    turns = [
        StoredTurn(uid(1), "t-1", created_us=1),
        StoredTurn(uid(2), "t-2", "t-1", created_us=2),
        StoredTurn(7, "t-3", "t-1", created_us=3),
    ]
    first, second, third = plan(turns).changes
    assert (first.turn_id, first.legacy_turn_id) == (uid(1), "t-1")
    assert second.parent_turn_id == third.parent_turn_id == uid(1)
    assert third.rehomed
    assert UUID(third.turn_id).version == 5


def test_two_turns_with_one_id_are_both_kept_and_the_second_is_reported() -> None:
    turns = [
        StoredTurn(uid(5), uid(5), created_us=2),
        StoredTurn(uid(6), uid(5), created_us=1),
        StoredTurn(uid(7), uid(8), created_us=3),
        StoredTurn(uid(9), uid(8), created_us=4),
    ]
    result = plan(turns)
    assert result.duplicates == (uid(6), uid(9))
    assert {turn.turn_id for turn in applied(turns, result)} == {uid(5), uid(6), uid(8), uid(9)}


def test_an_id_used_by_another_session_is_not_taken_from_it() -> None:
    result = plan([StoredTurn(uid(1), uid(2))], taken={uid(2)})
    assert result.duplicates == (uid(1),)
    assert result.changes[0].turn_id == uid(1)


def test_an_interrupted_move_leaves_only_the_old_point_to_delete() -> None:
    turns = [StoredTurn(3, "x", timestamp="2024-05-01T10:00:00Z")]
    (moved,) = applied(turns, plan(turns))
    again = plan([*turns, moved])
    assert (again.leftovers, again.changes, again.turns) == ((3,), (), 1)


@pytest.mark.parametrize("parent", [uid(99), uid(2), uid(3), "", "nonsense"], ids=str)
def test_a_broken_parent_is_replaced_by_the_previous_turn(parent: str) -> None:
    turns = [
        StoredTurn(uid(1), uid(1), created_us=1),
        StoredTurn(uid(2), uid(2), parent, created_us=2),
        StoredTurn(uid(3), uid(3), uid(2), created_us=3),
    ]
    parents = {turn.turn_id: turn.parent_turn_id for turn in applied(turns, plan(turns))}
    assert parents == {uid(1): None, uid(2): uid(1), uid(3): uid(2)}


def test_each_kind_of_fault_has_a_name() -> None:
    turns = [
        StoredTurn(uid(1), None, uid(2), "2024-05-01T10:00:00Z"),
        StoredTurn(uid(2), uid(2), uid(1), "2024-05-01T10:01:00"),
        StoredTurn(uid(3), uid(13), uid(3), created_us=3 * 10**15),
        StoredTurn(uid(4), uid(2), uid(99), created_us=4 * 10**15),
        StoredTurn(uid(5), uid(5), uid(6), created_us=5 * 10**15),
        StoredTurn(uid(6), uid(6), uid(2).upper(), created_us=6 * 10**15),
        StoredTurn(uid(7), uid(7), None, created_us=7 * 10**15),
        StoredTurn(uid(8), uid(8), uid(7), UNREADABLE),
    ]
    expected = {
        (Trouble.MISSING_TURN_ID, uid(1), None, uid(1)),
        (Trouble.PARENT_CYCLE, uid(1), uid(2), None),
        (Trouble.NAIVE_TIME, uid(2), "2024-05-01T10:01:00", "2024-05-01T10:01:00.000000Z"),
        (Trouble.MIXED_ZONES, uid(2), "2024-05-01T10:01:00", "2024-05-01T10:01:00.000000Z"),
        (Trouble.OTHER_TURN_ID, uid(3), uid(13), uid(13)),
        (Trouble.PARENT_CYCLE, uid(3), uid(3), uid(2)),
        (Trouble.DUPLICATE_TURN_ID, uid(4), uid(2), uid(4)),
        (Trouble.DANGLING_PARENT, uid(4), uid(99), uid(13)),
        (Trouble.LATER_PARENT, uid(5), uid(6), uid(4)),
        (Trouble.RENAMED_PARENT, uid(6), uid(2).upper(), uid(2)),
        (Trouble.MISSING_PARENT, uid(7), None, uid(6)),
        (Trouble.UNPARSABLE_TIME, uid(8), UNREADABLE, None),
    }
    findings = plan(turns).findings
    results = {(f.trouble, f.point_id, f.before, f.after) for f in findings}
    assert {each for each in results if each[0] is not Trouble.MISSING_FIELDS} == expected


def test_of_a_turn_stored_twice_the_copy_under_its_own_id_stays_and_gets_the_children() -> None:
    twice = {"created_us": 5, "text_digest": "the same"}
    turns = [
        StoredTurn(uid(1), uid(3), None, **twice),  # type: ignore[arg-type]
        StoredTurn(uid(2), uid(2), None, **twice),  # type: ignore[arg-type]
        StoredTurn(uid(4), uid(4), uid(3), created_us=6),
        StoredTurn(uid(5), uid(5), uid(1), created_us=7, text_digest="the same"),
    ]
    assert plan(turns).dropped == ()
    result = plan(turns, drop_duplicates=True)
    assert result.dropped == (uid(1),)
    assert [f.after for f in result.findings if f.trouble is Trouble.DUPLICATE_TURN] == [uid(2)]
    parents = {turn.turn_id: turn.parent_turn_id for turn in applied(turns, result)}
    assert parents == {uid(2): None, uid(4): uid(2), uid(5): uid(2)}


def test_a_correct_parent_stays_if_an_earlier_turn_claims_its_id() -> None:
    """Red when stored turn ids are looked up before the ids that turns have."""
    turns = [
        StoredTurn(uid(1), uid(2), created_us=1),
        StoredTurn(uid(2), uid(2), created_us=2),
        StoredTurn(uid(3), uid(3), uid(2), created_us=3),
    ]
    assert {turn.turn_id: turn.parent_turn_id for turn in applied(turns, plan(turns))}[uid(3)] == uid(2)


def test_a_dropped_points_id_is_not_reused() -> None:
    """Red when the kept turn moves to the id of a point that is then deleted."""
    turns = [
        StoredTurn(uid(1), uid(9), created_us=5, text_digest="x"),
        StoredTurn(uid(9), None, created_us=5, text_digest="x"),
    ]
    result = plan(turns, drop_duplicates=True)
    assert {turn.turn_id for turn in applied(turns, result)}.isdisjoint(result.dropped)


def test_existing_branches_and_deliberate_roots_are_kept() -> None:
    def ours(number: int, parent: int | None) -> StoredTurn:
        parent_id = None if parent is None else uid(parent)
        return StoredTurn(
            uid(number),
            uid(number),
            parent_id,
            "2024-05-01T10:00:00Z",
            number,
            number,
            "local",
            "completed",
            1,
        )

    turns = [ours(1, None), ours(2, 1), ours(3, 1), ours(4, 2), ours(5, None), ours(6, 5)]
    assert plan(turns).changes == ()


def test_simultaneous_turns_are_ordered_by_seq() -> None:
    def ours(number: int, seq: int, parent: int | None) -> StoredTurn:
        parent_id = None if parent is None else uid(parent)
        return StoredTurn(uid(number), uid(number), parent_id, "x", 5, seq, "local", "completed", 1)

    chain = sorted(range(1, 7), key=uid, reverse=True)  # ids run against the conversation
    turns = [ours(n, seq, chain[seq - 1] if seq else None) for seq, n in enumerate(chain)]
    assert plan(turns).changes == ()


def test_a_turn_without_a_readable_time_comes_last_and_is_reported() -> None:
    turns = [
        StoredTurn(uid(1), timestamp=UNREADABLE),
        StoredTurn(uid(2), timestamp="2024-05-01T10:00:00Z"),
        StoredTurn(uid(3), timestamp="2024-05-01T09:00:00Z"),
    ]
    result = plan(turns)
    after = {str(turn.point_id): turn for turn in applied(turns, result)}
    assert result.unparsable == (uid(1),)
    assert (after[uid(1)].created_us, after[uid(1)].timestamp) == (0, UNREADABLE)
    assert [after[uid(n)].parent_turn_id for n in (3, 2, 1)] == [None, uid(3), uid(2)]


def test_a_timestamp_is_written_only_if_there_was_none() -> None:
    turns = [StoredTurn(uid(1), created_us=1), StoredTurn(uid(2), timestamp="2024-05-01 10:00")]
    after = {str(turn.point_id): turn.timestamp for turn in applied(turns, plan(turns))}
    assert after == {uid(1): "1970-01-01T00:00:00.000001Z", uid(2): "2024-05-01 10:00"}


def test_local_times_are_read_in_the_assumed_zone() -> None:
    shanghai = plan([StoredTurn(uid(1), timestamp="2024-05-01T18:00:00")], zone=ZoneInfo("Asia/Shanghai"))
    assert shanghai.changes[0].created_us == parse_time("2024-05-01T10:00:00Z", UTC)


def test_2500_turns_are_one_chain() -> None:
    turns = [StoredTurn(uid(n), timestamp=f"2024-05-01T10:{n // 60:02}:{n % 60:02}") for n in range(2_500)]
    after = sorted(applied(turns, plan(turns)), key=order)
    assert [turn.parent_turn_id for turn in after] == [None, *(turn.turn_id for turn in after[:-1])]


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2024-05-01T10:00:00Z", "2024-05-01T10:00:00"),
        ("2024-05-01t10:00:00z", "2024-05-01T10:00:00"),
        ("2024-05-01 18:00:00 +08:00", "2024-05-01T10:00:00"),
        ("2024-05-01T10:00:00.123456789Z", "2024-05-01T10:00:00.123456"),
        ("2024-05-01 10:00:00 UTC", "2024-05-01T10:00:00"),
        ("2024-05-01", "2024-05-01T04:00:00"),
        ("2024-05-01T06:00:00", "2024-05-01T10:00:00"),
        ("2024-11-03T01:30:00", "2024-11-03T06:30:00"),  # the hour that comes twice: the later one
        ("2024-03-10T02:30:00", "2024-03-10T07:30:00"),  # the hour that is skipped
    ],
)
def test_written_times_are_read_exactly(text: str, utc: str) -> None:
    moment = datetime.fromisoformat(utc).replace(tzinfo=UTC)
    assert parse_time(text, ZoneInfo("America/New_York")) == round(moment.timestamp() * 1_000_000)


@pytest.mark.parametrize(
    "text", ["", UNREADABLE, "2024-13-01", "1714557600", "0001-01-01T00:00:00+14:00", "1969-12-31"]
)
def test_invalid_times_are_not_guessed(text: str) -> None:
    assert parse_time(text, UTC) is None


def test_no_turns_are_refused() -> None:
    with pytest.raises(ValueError, match="without turns"):
        plan([])
