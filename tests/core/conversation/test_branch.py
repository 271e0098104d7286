from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from core.conversation.sessions import AHEAD_US, SessionTree, TurnNode, walk_branch
from core.conversation.turns import TurnStatus

# every kind of graph: cycles, turns that are their own parent, missing parents
graphs = st.dictionaries(st.sampled_from("abcdef"), st.one_of(st.none(), st.sampled_from("abcdefz")))


def node(
    turn_id: str,
    parent: str | None,
    when: int = 0,
    status: TurnStatus = TurnStatus.COMPLETED,
    command: str = "",
) -> TurnNode:
    return TurnNode(turn_id, parent, when, when, status, command)


def ids(nodes: tuple[TurnNode, ...] | list[TurnNode]) -> list[str]:
    return [each.turn_id for each in nodes]


def test_a_branch_runs_from_the_root_to_the_leaf_and_leaves_siblings_out() -> None:
    tree = SessionTree("s", [node("a", None), node("b", "a"), node("b2", "a"), node("c", "b")])
    branch = tree.branch("c")
    assert ids(branch.nodes) == ["a", "b", "c"]
    assert branch.aside == ("b2",)


def test_a_dangling_parent_ends_the_walk() -> None:
    assert ids(walk_branch({"b": node("b", "gone")}, "b")) == ["b"]


def test_a_branch_leads_past_a_turn_that_cannot_be_read() -> None:
    tree = SessionTree("s", [node("a", None), node("c", "b")], {"b": "a"})
    branch = tree.branch("c")
    assert ids(branch.nodes) == ["a", "c"]
    assert branch.unreadable == 1


@given(graphs, st.sets(st.sampled_from("abcdef")))
def test_the_walk_ends_on_any_graph(parents: dict[str, str | None], broken: set[str]) -> None:
    """P11. Discriminates: dropping the check of `visited` in walk_branch."""
    nodes = {turn_id: node(turn_id, parent) for turn_id, parent in parents.items() if turn_id not in broken}
    gaps = {turn_id: parent for turn_id, parent in parents.items() if turn_id in broken}
    for leaf in nodes:
        branch = walk_branch(nodes, leaf, gaps)
        assert branch[-1].turn_id == leaf
        assert len(set(ids(branch))) == len(branch) <= len(nodes)


@given(
    graphs,
    st.lists(
        st.tuples(
            st.sampled_from("abcdef"),
            st.sampled_from([None, *"abcdefz"]),
            st.sampled_from([TurnStatus.COMPLETED, TurnStatus.RUNNING, "summary"]),
        )
    ),
)
def test_a_tree_that_grows_walks_like_one_that_is_reloaded(
    parents: dict[str, str | None], puts: list[tuple[str, str | None, TurnStatus | str]]
) -> None:
    """Discriminates: keeping the walked branch when a turn's parent changes or appears later; keeping the
    state a turn had before its summary."""
    tree = SessionTree("s", [node(turn_id, parent) for turn_id, parent in parents.items()])
    for when, (turn_id, parent, change) in enumerate(puts):
        if isinstance(change, TurnStatus):
            tree.put(node(turn_id, parent, when, change))
        elif turn_id in tree:
            known = tree.nodes[turn_id]
            tree.put(replace(known, has_summary=not known.has_summary))
        anew = SessionTree("s", tree.nodes.values())
        assert tree.default_parent(0) == anew.default_parent(0)
        for leaf in [*tree.nodes, *reversed(tree.nodes)]:
            assert tree.branch(leaf) == anew.branch(leaf)
            assert ids(tree.branch(leaf).nodes) == ids(walk_branch(tree.nodes, leaf))


def test_in_a_thousand_random_trees_a_branch_contains_no_other_turns() -> None:
    generator = random.Random(11)
    for _ in range(1_000):
        parents: dict[str, str | None] = {"0": None}
        for number in range(1, generator.randint(2, 30)):
            parents[str(number)] = generator.choice([None, *parents])
        tree = SessionTree("s", [node(turn_id, parent) for turn_id, parent in parents.items()])
        branch = tree.branch(generator.choice(list(parents)))
        assert {*ids(branch.nodes), *branch.aside} == set(parents)
        assert not set(ids(branch.nodes)) & set(branch.aside)
        assert [None, *ids(branch.nodes)][:-1] == [each.parent_turn_id for each in branch.nodes]


def test_the_latest_completed_turn_is_the_newest_by_time_that_completed() -> None:
    nodes = [node("a", None, 1), node("b", "a", 3), node("c", "b", 5, TurnStatus.CANCELLED)]
    assert SessionTree("s", nodes).default_parent(0) == "b"


def test_a_turn_written_with_a_clock_a_year_ahead_does_not_stay_the_latest() -> None:
    """Discriminates: every question of that year becoming a sibling that knows nothing of the earlier
    ones."""
    year_us = 365 * AHEAD_US
    tree = SessionTree("s", [replace(node("ahead", None, year_us), seq=0)])
    assert tree.default_parent(5) == "ahead"
    for seq, turn_id in enumerate("abc", 1):
        tree.put(node(turn_id, "ahead", seq))
        assert tree.default_parent(5) == turn_id
    assert tree.default_parent(year_us) == "ahead"


def test_a_command_is_not_a_parent_and_clear_starts_over_until_the_next_question() -> None:
    """Discriminates: taking any newest command for /clear, or looking only at the newest turn."""
    tree = SessionTree("s", [node("a", None, 1), node("help", "a", 2, command="help")])
    assert tree.default_parent(0) == "a"
    tree.put(node("clear", "a", 3, command="clear"))
    tree.put(node("help2", "clear", 4, command="help"))
    assert tree.default_parent(0) is None
    tree.put(node("fresh", None, 5, TurnStatus.RUNNING))
    assert tree.default_parent(0) is None
    tree.put(node("fresh", None, 5))
    assert tree.default_parent(0) == "fresh"


def test_the_next_seq_is_never_one_in_use() -> None:
    assert SessionTree("s", [node("a", None, 0), node("b", "a", 7)]).branch("b").next_seq == 8
    assert SessionTree("s", [node("a", None, 0)], {"x": None, "y": None}).branch("a").next_seq == 3
    assert SessionTree("s").branch(None).next_seq == 0
