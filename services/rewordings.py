"""Rewritten questions of stored turns: each was made of earlier turns, and goes when one of them does."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from qdrant_client import models

from services.store import UnknownPointError
from services.turn_payload import rewritten_payload
from services.turn_store import TurnStore, equals

_HOLDS_NONE = models.IsEmptyCondition(is_empty=models.PayloadField(key="rewritten_question"))
CHUNK = 500


class Rewordings:
    def __init__(self, turns: TurnStore) -> None:
        self._turns = turns

    async def forget(self, session_id: str, turn_ids: Collection[str]) -> int:
        """Take away every rewritten question of the session that has words of one of the turns.

        Returns how many. Raises StoreUnavailableError.
        """
        gone = frozenset(turn_ids)
        wanted = models.Filter(must=[equals("session_id", session_id)], must_not=[_HOLDS_NONE])
        holders = [
            str(record.id)
            async for record in self._turns.scroll(wanted, with_payload=["rewritten_question"])
            if _made_of(record.payload or {}, gone)
        ]
        for start in range(0, len(holders), CHUNK):
            with suppress(UnknownPointError):  # one went meanwhile; the others are written
                await self._turns.set_payload(rewritten_payload(None), holders[start : start + CHUNK])
        return len(holders)


def _made_of(payload: Mapping[str, Any], gone: Collection[str]) -> bool:
    """One that does not say what it was made of may have been made of any turn."""
    rewritten = payload.get("rewritten_question")
    turn_ids = rewritten.get("turn_ids") if isinstance(rewritten, dict) else None
    if not isinstance(turn_ids, list) or not turn_ids:
        return True
    return any(turn_id in gone for turn_id in turn_ids)
