"""A session is a tree of turns; a branch is the path from a turn up to its root."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from core.turns import TurnStatus


@dataclass(frozen=True, slots=True)
class TurnNode:
    """A turn without its texts: enough to walk the tree."""

    turn_id: str
    parent_turn_id: str | None
    created_us: int
    seq: int
    status: TurnStatus

    @property
    def order(self) -> tuple[int, int, str]:
        return (self.created_us, self.seq, self.turn_id)


def latest_completed(nodes: Iterable[TurnNode]) -> TurnNode | None:
    """The newest completed turn, by time, then sequence, then id."""
    done = (node for node in nodes if node.status is TurnStatus.COMPLETED)
    return max(done, key=lambda node: node.order, default=None)


def walk_branch(nodes: Mapping[str, TurnNode], leaf: str | None) -> list[TurnNode]:
    """From the root down to `leaf`. A dangling parent ends the walk; a cycle is cut where it closes."""
    branch: list[TurnNode] = []
    seen: set[str] = set()
    while leaf is not None and leaf in nodes and leaf not in seen:
        seen.add(leaf)
        branch.append(nodes[leaf])
        leaf = nodes[leaf].parent_turn_id
    branch.reverse()
    return branch
