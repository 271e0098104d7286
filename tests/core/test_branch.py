from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.branch import TurnNode, latest_completed, walk_branch
from core.turns import TurnStatus


def node(
    turn_id: str, parent: str | None, when: int = 0, status: TurnStatus = TurnStatus.COMPLETED
) -> TurnNode:
    return TurnNode(turn_id, parent, when, when, status)


def test_a_branch_runs_from_the_root_to_the_leaf_and_leaves_siblings_out() -> None:
    nodes = {n.turn_id: n for n in (node("a", None), node("b", "a"), node("b2", "a"), node("c", "b"))}
    assert [n.turn_id for n in walk_branch(nodes, "c")] == ["a", "b", "c"]


def test_a_dangling_parent_ends_the_walk() -> None:
    assert [n.turn_id for n in walk_branch({"b": node("b", "gone")}, "b")] == ["b"]


@given(st.dictionaries(st.sampled_from("abcdef"), st.one_of(st.none(), st.sampled_from("abcdefz"))))
def test_the_walk_ends_on_any_graph(parents: dict[str, str | None]) -> None:
    nodes = {turn_id: node(turn_id, parent) for turn_id, parent in parents.items()}
    for leaf in parents:
        branch = walk_branch(nodes, leaf)
        assert branch[-1].turn_id == leaf
        assert len({n.turn_id for n in branch}) == len(branch) <= len(nodes)


def test_the_latest_completed_turn_is_the_newest_by_time_that_completed() -> None:
    nodes = [node("a", None, 1), node("b", "a", 3), node("c", "b", 5, TurnStatus.CANCELLED)]
    latest = latest_completed(nodes)
    assert latest is not None
    assert latest.turn_id == "b"
    assert latest_completed([]) is None
