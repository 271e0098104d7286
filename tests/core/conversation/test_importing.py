"""Imported turns become stored ones: their times, their parents, and the forest they form."""

from __future__ import annotations

from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.conversation.importing import (
    FOLLOWS,
    SECOND_US,
    ImportedSession,
    imported_turn,
    plan_turns,
    spaced_times,
)
from core.conversation.turns import Turn, TurnStatus
from core.errors import BadRequestError

NOW = 1_800_000_000_000_000


def test_missing_times_are_a_second_apart_and_end_now() -> None:
    assert spaced_times([None] * 3, NOW) == [NOW - 2 * SECOND_US, NOW - SECOND_US, NOW]


def test_times_between_known_ones_fit_between_them() -> None:
    """Discriminates: always a whole second."""
    assert spaced_times([None, 10_000_000, None, None, 10_000_003, None], NOW) == [
        9_000_000, 10_000_000, 10_000_001, 10_000_002, 10_000_003, 11_000_003,
    ]  # fmt: skip


@given(st.lists(st.integers(1, NOW), max_size=20), st.sets(st.integers(0, 19)))
def test_known_times_are_kept_and_the_order_is_never_reversed(known: list[int], unknown: set[int]) -> None:
    times = [None if at in unknown else time for at, time in enumerate(sorted(known))]
    filled = spaced_times(times, NOW)
    assert all(before <= after for before, after in pairwise(filled))
    assert all(time in (None, filled[at]) for at, time in enumerate(times))


def plan(*turns: Turn) -> dict[str, str | None]:
    numbers = count()
    planned = plan_turns(ImportedSession("o", turns), "s", NOW, lambda: f"new{next(numbers)}")
    assert [turn.seq for turn in planned] == list(range(len(turns)))
    return {turn.turn_id: turn.parent_turn_id for turn in planned}


parents = st.lists(st.sampled_from([FOLLOWS, None, *"012345678"]), min_size=1, max_size=9)


@given(parents)
def test_a_plan_is_a_forest_or_is_refused(parents_by_id: list[str | None]) -> None:
    """Discriminates: looking for cycles of two only; trusting that parents come first."""
    turns = [
        imported_turn("q", "a", str(at), parent_turn_id=parent) for at, parent in enumerate(parents_by_id)
    ]
    try:
        planned = plan(*turns)
    except BadRequestError:
        return  # which field it names is tested where it is refused over HTTP
    for turn_id in planned:
        steps, at = 0, planned[turn_id]
        while at is not None:
            steps, at = steps + 1, planned[at]
            assert steps < len(planned)


def test_a_turn_that_names_no_parent_follows_the_one_before_it() -> None:
    a, b = imported_turn("q", "a", "a"), imported_turn("q", "a", "b", parent_turn_id=None)
    assert plan(a, imported_turn("q", "a"), b, imported_turn("q", "a")) == {
        "a": None, "new0": "a", "b": None, "new1": "b",
    }  # fmt: skip


def test_an_unanswered_turn_is_accepted_in_every_status() -> None:
    for status in (
        TurnStatus.COMPLETED,
        TurnStatus.CANCELLED,
        TurnStatus.INTERRUPTED,
        TurnStatus.FAILED,
    ):
        plan(imported_turn("q", "", status=status))


def test_a_time_in_the_future_is_refused_with_its_position() -> None:
    """Discriminates: accepting any future time, or tolerating no clock that is slightly ahead."""
    plan(imported_turn("q", "a", created_us=NOW + 3_600_000_000))
    with pytest.raises(BadRequestError, match=r"^turns\.1\.timestamp"):
        plan(imported_turn("q", "a"), imported_turn("q", "a", created_us=NOW + 2 * 86_400_000_000))


def test_a_reversed_chain_of_twenty_thousand_turns_is_planned() -> None:
    turns = [
        imported_turn("q", "a", str(at), parent_turn_id=str(at + 1) if at < 19_999 else None)
        for at in range(20_000)
    ]
    assert plan(*turns)["0"] == "1"
