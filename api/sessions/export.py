"""A session read out whole, in order, a piece at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from core.conversation.branch import TurnNode
from core.conversation.transcript import readable_parents
from core.conversation.turns import Turn
from services.conversation.sessions import Session, SessionStore
from services.conversation.turns import TurnStore
from services.store.pages import batches

READ_AT_ONCE = 40  # turns: some 5 ms of work between two looks at the other requests


class SessionCopy:
    """`nodes` are every turn of the session in time order, `parents` theirs as branches are read."""

    def __init__(
        self, session: Session, nodes: dict[str, TurnNode], parents: dict[str, str | None], turns: TurnStore
    ) -> None:
        self.session = session
        self.nodes = nodes
        self.parents = parents
        self._turns = turns
        self._lost: dict[str, str | None] = {}  # with the parent that their children hang on instead

    async def turns(self, turn_ids: Sequence[str]) -> AsyncIterator[list[Turn]]:
        """Those turns in that order, which has parents before their children, some at a time.

        What was erased meanwhile, or cannot be read, is left out, and its children hang on its parent.
        """
        for chunk in batches(turn_ids, READ_AT_ONCE):
            by_id = {turn.turn_id: turn for turn in await self._turns.get_many(chunk)}
            batch: list[Turn] = []
            for turn_id in chunk:
                parent = self.parents[turn_id]
                parent = self._lost.get(parent, parent) if parent else None
                if turn_id in by_id:
                    batch.append(replace(by_id[turn_id], parent_turn_id=parent))
                else:
                    self._lost[turn_id] = parent
            yield batch

    def has(self, turn_id: str) -> bool:
        """Whether the turn is one of those read so far, or still to be read."""
        return turn_id in self.nodes and turn_id not in self._lost


async def copy_session(sessions: SessionStore, turns: TurnStore, session_id: str, owner: str) -> SessionCopy:
    """Raises UnknownSessionError."""
    session = await sessions.get(session_id, owner)
    tree = await turns.tree(session_id, owner)
    nodes = {node.turn_id: node for node in sorted(tree.nodes.values(), key=lambda node: node.order)}
    return SessionCopy(session, nodes, readable_parents(nodes, tree.gaps), turns)
