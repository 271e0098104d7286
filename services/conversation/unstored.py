"""Turns that could not be written when they ended, kept until the store is back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import structlog
from pydantic_core import to_json

from core.conversation.turns import Turn, TurnStatus
from core.errors import StoreUnavailableError
from services.conversation.turns import TurnStore, TurnVectors, to_payload
from services.store.dialect import StoreRequestError, UnknownPointError

log = structlog.get_logger()
MOST_BYTES = 50 << 20


@dataclass(frozen=True, slots=True)
class Unstored:
    """`is_whole` False: no room was left for the text; only that the turn was cut is kept."""

    turn: Turn
    vectors: TurnVectors
    size_bytes: int
    is_whole: bool = True


class UnstoredTurns:
    """Their first write, with which a turn begins, has reached the store, or may have: what the store does
    not have then was never begun, or has been erased since, and is not written."""

    def __init__(self, turns: TurnStore, most_bytes: int = MOST_BYTES) -> None:
        self._turns = turns
        self._most_bytes = most_bytes
        self._kept: dict[str, Unstored] = {}
        self._one_by_one = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, turn: Turn, vectors: TurnVectors | None = None) -> None:
        """In the place of what was kept of it before."""
        self._kept.pop(turn.turn_id, None)
        size_bytes = len(to_json(to_payload(turn)))
        used = sum(each.size_bytes for each in self._kept.values())
        if used + size_bytes <= self._most_bytes:
            kept = Unstored(turn, vectors or TurnVectors(), size_bytes)
        else:
            cut = replace(turn, status=TurnStatus.INTERRUPTED)
            kept = Unstored(cut, TurnVectors(), 0, is_whole=False)
        self._kept[turn.turn_id] = kept
        log.warning("turn_kept_in_memory", turn_id=turn.turn_id, whole=kept.is_whole, kept=len(self._kept))

    async def store(self, turn_id: str = "") -> list[Turn]:
        """Write all, or this one; returns what the store has now. Raises StoreUnavailableError."""
        stored = []
        async with self._one_by_one:
            for each in list(self._kept.values()):
                if turn_id in ("", each.turn.turn_id):
                    if await self._written(each):
                        stored.append(each.turn)
                    if self._kept.get(each.turn.turn_id) is each:
                        del self._kept[each.turn.turn_id]
        return stored

    async def _written(self, unstored: Unstored) -> bool:
        turn, turn_id = unstored.turn, unstored.turn.turn_id
        payload = to_payload(turn) if unstored.is_whole else {"status": turn.status.value}
        try:
            await self._turns.set_payload(payload, [turn_id])
            if unstored.vectors.named():
                await self._turns.add_vectors({turn_id: unstored.vectors})
        except UnknownPointError:
            log.info("kept_turn_gone", turn_id=turn_id)
            return False
        except StoreUnavailableError:
            raise
        except StoreRequestError as error:  # as it stands it never will be
            log.exception("kept_turn_refused", turn_id=turn_id, reason=str(error))
            cut = {"status": TurnStatus.INTERRUPTED.value}
            await self._turns.set_payload(cut, [turn_id])
            return False
        log.info("kept_turn_stored", turn_id=turn_id, status=turn.status.value)
        return True
