"""The turns of a session that no model has read for memories yet: each is claimed once, by the first."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from core.conversation.turns import TurnStatus
from services.store.dialect import Filter, Record, VectorStore
from services.store.filters import equals, has_id, in_range, in_session, is_empty
from services.store.pages import scroll_all

READ = "memory_read"  # a turn's field: who claimed it
AT_ONCE = 20  # turns of one prompt
TURN_CHARS = 2_000  # of one turn; more is a pasted text, and nothing about its writer
PROMPT_CHARS = 8_000
_FIELDS = ["user_query", "assistant_response", "created_us", "seq", "command", "request"]
_UNREAD = is_empty(READ)


@dataclass(frozen=True, slots=True)
class UnreadTurn:
    """What the person said, and what was answered. `skipped`: it was asked without memory."""

    turn_id: str
    question: str
    answer: str
    created_us: int
    seq: int
    skipped: bool


class UnreadTurns:
    """A claim is written before a model is asked: a turn stands in one prompt at most, whatever ends when.
    The store compares, so that of two workers one gets it."""

    def __init__(self, store: VectorStore, collection: str) -> None:
        self._store = store
        self._collection = collection

    async def claim(self, session_id: str, owner: str, since_us: int) -> list[UnreadTurn]:
        """The oldest, as many as a prompt takes; none that began before `since_us`."""
        where = [*in_session(session_id, owner), equals("status", TurnStatus.COMPLETED.value), _UNREAD]
        if since_us:
            where.append(in_range("created_us", gte=since_us))
        records = scroll_all(self._store, self._collection, Filter(must=where), with_payload=_FIELDS)
        unread = [turn async for record in records if (turn := _read(record)) is not None]
        oldest = _fitting(sorted(unread, key=lambda turn: (turn.created_us, turn.seq)))
        if not oldest:
            return []
        ids, token = [turn.turn_id for turn in oldest], str(uuid.uuid4())
        await self._store.set_payload(
            self._collection, {READ: token}, points=Filter(must=[has_id(ids), _UNREAD])
        )
        claimed = await self._store.retrieve(self._collection, ids, with_payload=[READ])
        own = {str(record.id) for record in claimed if (record.payload or {}).get(READ) == token}
        return [turn for turn in oldest if turn.turn_id in own]

    async def release(self, turns: Sequence[UnreadTurn]) -> None:
        """They were not read after all: no model answered."""
        ids = [turn.turn_id for turn in turns]
        await self._store.delete_payload(self._collection, [READ], Filter(must=[has_id(ids)]))


def _fitting(turns: Sequence[UnreadTurn]) -> list[UnreadTurn]:
    fitting: list[UnreadTurn] = []
    left = PROMPT_CHARS
    for turn in turns[:AT_ONCE]:
        left -= 0 if turn.skipped else min(len(turn.question), TURN_CHARS)
        if left < 0 and fitting:
            break
        fitting.append(turn)
    return fitting


def _read(record: Record) -> UnreadTurn | None:
    """None for a command, and for what cannot be read."""
    payload = record.payload or {}
    question, request = payload.get("user_query"), payload.get("request")
    if payload.get("command") or not isinstance(question, str):
        return None
    return UnreadTurn(
        turn_id=str(record.id),
        question=question,
        answer=str(payload.get("assistant_response") or ""),
        created_us=_number(payload.get("created_us")),
        seq=_number(payload.get("seq")),
        skipped=isinstance(request, dict) and request.get("memory") is False,
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
