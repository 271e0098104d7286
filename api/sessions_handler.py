"""Sessions and stored turns: listed, read, changed, erased. Somebody else's answers as unknown."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from qdrant_client import models

from api.running_turns import RunningTurns
from core.branch import TurnNode, walk_branch
from core.errors import UnknownTurnError
from core.turns import Turn, TurnStatus
from services.sessions import Session, SessionStore
from services.turn_store import TurnStore, in_session


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Newest first; `next_before_us` continues the list, None at its end."""

    sessions: list[tuple[Session, int]]
    next_before_us: int | None


class SessionsHandler:
    def __init__(self, sessions: SessionStore, turns: TurnStore, running: RunningTurns) -> None:
        self._sessions = sessions
        self._turns = turns
        self._running = running

    async def newest(self, owner: str, limit: int, before_us: int | None) -> SessionPage:
        """Sessions with their number of turns."""
        found = await self._sessions.list_newest(owner, limit, before_us)
        counted = [(session, await self._turn_count(session)) for session in found]
        more = len(found) == limit
        return SessionPage(counted, found[-1].updated_us if more and found else None)

    async def create(self, owner: str, title: str) -> Session:
        return await self._sessions.create(str(uuid.uuid4()), owner, title)

    async def get(self, session_id: str, owner: str) -> tuple[Session, int]:
        session = await self._sessions.get(session_id, owner)
        return session, await self._turn_count(session)

    async def change(self, session_id: str, owner: str, title: str | None, hold: bool | None) -> Session:
        return await self._sessions.change(session_id, owner, title=title, hold=hold)

    async def erase(self, session_id: str, owner: str) -> int:
        """Erase the session with all its turns, running ones first stopped. Returns how many turns."""
        session = await self._sessions.get(session_id, owner)
        nodes = await self._turns.skeleton(session_id, owner)
        for turn_id in nodes:
            await self._halt(turn_id)
        await self._turns.delete_matching(models.Filter(must=[*in_session(session_id, owner)]))
        await self._sessions.delete(session.session_id)
        return len(nodes)

    async def branch(self, session_id: str, owner: str, leaf: str | None) -> list[Turn]:
        """The turns from the root to `leaf` (the newest turn when absent), in order."""
        await self._sessions.get(session_id, owner)
        nodes = await self._turns.skeleton(session_id, owner)
        if leaf is None and nodes:
            leaf = max(nodes.values(), key=lambda node: node.order).turn_id
        elif leaf is not None and leaf not in nodes:
            raise UnknownTurnError("leaf: no turn of this session has this id.")
        return await self._turns.get_many([node.turn_id for node in walk_branch(nodes, leaf)])

    async def tree(self, session_id: str, owner: str) -> list[TurnNode]:
        """Every turn of the session without its texts, in time order."""
        await self._sessions.get(session_id, owner)
        nodes = await self._turns.skeleton(session_id, owner)
        return sorted(nodes.values(), key=lambda node: node.order)

    async def turn(self, turn_id: str, owner: str) -> Turn:
        """Raises UnknownTurnError."""
        turn = await self._turns.get(turn_id)
        if turn is None or turn.owner != owner:
            raise UnknownTurnError("turn_id: there is no such turn.")
        return turn

    async def erase_turn(self, turn_id: str, owner: str) -> None:
        """Erase one turn; its children read as roots."""
        await self.turn(turn_id, owner)
        await self._halt(turn_id)
        await self._turns.delete([turn_id])

    async def _halt(self, turn_id: str) -> None:
        run = self._running.get(turn_id)
        if run is not None:
            run.cut(TurnStatus.CANCELLED)
            await self._running.ended(turn_id)

    async def _turn_count(self, session: Session) -> int:
        return await self._turns.count(models.Filter(must=[*in_session(session.session_id, session.owner)]))
