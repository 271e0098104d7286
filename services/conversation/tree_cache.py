"""The trees of the sessions in use, kept between turns. Right only where this process writes all turns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from cachetools import TTLCache

from core.conversation.branch import SessionTree, TurnNode
from core.conversation.turns import Turn

HISTORY_CACHE_S = 300.0  # a reader who thinks about an answer for five minutes finds the tree still here
MAX_NODES = 100_000  # of all kept sessions together: some 30 MB
SESSION_COST = 20  # in nodes: an almost empty session is not free

Key = tuple[str, str]
"""Session and owner."""


@dataclass(slots=True)
class Reading:
    """A session that is being read from the store; `stale` once something was written meanwhile."""

    key: Key
    stale: bool = False


class SessionCache:
    """Every write to turns says so here before the writer hears of its success.

    `keep_s` 0 keeps nothing. A read during which its session was written is not kept: it may be older than
    the write.
    """

    def __init__(self, keep_s: float, max_nodes: int = MAX_NODES) -> None:
        self._keep_s = keep_s
        self._max_nodes = max_nodes
        self._trees: TTLCache[Key, SessionTree] = TTLCache(max_nodes, max(keep_s, 0.001), getsizeof=_cost)
        self._readings: list[Reading] = []

    def get(self, session_id: str, owner: str) -> SessionTree | None:
        return self._trees.get((session_id, owner))

    @contextmanager
    def reading(self, session_id: str, owner: str) -> Iterator[Reading]:
        """Around a read whose result may be kept."""
        reading = Reading((session_id, owner))
        self._readings.append(reading)
        try:
            yield reading
        finally:
            self._readings.remove(reading)

    def keep(self, reading: Reading, tree: SessionTree) -> None:
        if self._keep_s and not reading.stale and _cost(tree) <= self._max_nodes:
            self._trees[reading.key] = tree

    @contextmanager
    def writing(self, turns: Sequence[Turn]) -> Iterator[None]:
        """Around the write of whole turns. When it fails, nobody knows what is stored: their trees go."""
        keys = {(turn.session_id, turn.owner) for turn in turns}
        known: dict[Key, SessionTree] = {}
        try:
            yield
            known = {key: tree for key in keys if (tree := self._trees.get(key)) is not None}
        finally:
            for key in keys:
                self._trees.pop(key, None)
                self._outdate(key)
        for turn in turns:
            if (turn.session_id, turn.owner) in known:
                known[turn.session_id, turn.owner].put(node_of(turn))
        for key, tree in known.items():
            self.keep(Reading(key), tree)

    @contextmanager
    def changing(self, turn_ids: Collection[str] | None = None) -> Iterator[None]:
        """Around a write that changes or removes these turns, or (None) turns that nobody named."""
        try:
            yield
        finally:
            self.forget(turn_ids)

    def forget(self, turn_ids: Collection[str] | None = None) -> None:
        """Drop the sessions that hold one of these turns; None drops all."""
        self._outdate()
        if turn_ids is None:
            self._trees.clear()
        for key in list(self._trees):
            tree = self._trees.get(key)
            if tree is not None and any(turn_id in tree for turn_id in turn_ids or ()):
                self._trees.pop(key, None)

    def _outdate(self, key: Key | None = None) -> None:
        for reading in self._readings:
            reading.stale = reading.stale or key is None or reading.key == key


def _cost(tree: SessionTree) -> int:
    return len(tree) + SESSION_COST


def node_of(turn: Turn) -> TurnNode:
    """The turn as the tree knows it."""
    return TurnNode(
        turn_id=turn.turn_id,
        parent_turn_id=turn.parent_turn_id,
        created_us=turn.created_us,
        seq=turn.seq,
        status=turn.status,
        command=turn.command,
        has_summary=turn.summary is not None,
    )
