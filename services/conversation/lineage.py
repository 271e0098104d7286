"""The stored turns that a client's history may continue, looked up by their marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from core.conversation.lineage import Continued, MarkedTurn, as_stored, continued, marks_of_history
from core.conversation.turns import PastTurn, TurnStatus, marks_of
from services.conversation.turns import MARKS, TurnStore
from services.store.dialect import Filter, Record
from services.store.points import any_of, batches, equals, is_empty

MAX_TURNS = 2_000  # the newest that share a mark with the history: a bot may have asked the same for years
_FIELDS = ["session_id", "parent_turn_id", "created_us", "status", MARKS]


class Lineage:
    """`find` searches one owner's turns. Turns stored by earlier versions have no marks: they get them the
    first time a history cannot be matched to its end."""

    def __init__(self, turns: TurnStore) -> None:
        self._turns = turns
        self._marked: set[str] = set()

    async def find(self, past: Sequence[PastTurn], owner: str, session_id: str | None) -> Continued | None:
        """Return the turn that the history continues, or None; `session_id` None searches all sessions."""
        match = await self._find(past, owner, session_id)
        if past and (match is None or match.depth < len(past)) and await self._mark_older(owner):
            match = await self._find(past, owner, session_id)
        return match

    async def _find(self, past: Sequence[PastTurn], owner: str, session_id: str | None) -> Continued | None:
        if not past:
            return None
        within = [equals("session_id", session_id)] if session_id else []
        point_filter = Filter(must=[equals("owner", owner), any_of(MARKS, marks_of_history(past)), *within])
        records = await self._turns.newest(point_filter, MAX_TURNS, _FIELDS)
        marked = [_marked(record) for record in records]
        past = as_stored(past, marked)
        whole = {turn.mark for turn in past}
        cut = [turn.turn_id for turn in marked if turn.answer is not None and not whole & {*turn.marks}]
        answers = {turn.turn_id: turn.answer for turn in await self._turns.get_many(cut)}
        return continued(past, [replace(turn, answer=answers.get(turn.turn_id)) for turn in marked])

    async def _mark_older(self, owner: str) -> bool:
        """Add marks to the owner's turns that lack them. Returns whether there were any."""
        if owner in self._marked:
            return False
        point_filter = Filter(must=[equals("owner", owner), is_empty(MARKS)])
        older = [str(record.id) async for record in self._turns.scroll(point_filter, with_payload=False)]
        for some in batches(older):
            for turn in await self._turns.get_many(some):
                marks = marks_of(turn.question, turn.answer, turn.status)
                await self._turns.set_payload({MARKS: marks}, [turn.turn_id])
        self._marked.add(owner)
        return bool(older)


def _marked(record: Record) -> MarkedTurn:
    """`answer` is "" for a turn that was cut off, until its text is loaded."""
    payload = record.payload or {}
    parent = payload.get("parent_turn_id")
    return MarkedTurn(
        turn_id=str(record.id),
        session_id=str(payload.get("session_id")),
        parent_turn_id=parent if isinstance(parent, str) else None,
        created_us=int(payload.get("created_us") or 0),
        marks=tuple(payload.get(MARKS) or ()),
        answer=None if payload.get("status") == TurnStatus.COMPLETED else "",
    )
