"""Summaries as they are stored: with the last turn each covers. Read, written and taken away here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import structlog
from cachetools import LRUCache, TTLCache
from pydantic import TypeAdapter, ValidationError

from core.conversation.branch import TurnNode
from core.conversation.summaries import AppliedSummary, SummarySource, nearest_applicable, speaking_of
from core.conversation.turns import Summary
from services.conversation.payload import rewritten_payload, summary_payload
from services.conversation.turns import TurnStore
from services.store.dialect import Filter, Record, UnknownPointError
from services.store.filters import equals, has_id, is_empty
from services.store.pages import batches

log = structlog.get_logger()

NEAREST = 32  # summaries read at first; what they cover together is far beyond an ordinary conversation
MAX_KNOWN = 2_000  # summaries without their texts: some 8 MB
MAX_GOING = 10_000
GOING_S = 60.0  # how long a turn may still be there after its summaries are forgotten
_SUMMARY = TypeAdapter(Summary)
_HOLDS_NONE = is_empty("summary_start")


class SummaryRecords:
    def __init__(self, turns: TurnStore) -> None:
        self._turns = turns
        # Only to follow what the nearest summary, which is always read, goes on from: of one that was made
        # again or taken away meanwhile, the branch shows.
        self._known: LRUCache[str, Summary] = LRUCache(MAX_KNOWN)
        self._made: LRUCache[str, bool] = LRUCache(MAX_KNOWN)  # what nodes that were read before do not tell
        self._going: TTLCache[str, bool] = TTLCache(MAX_GOING, GOING_S)

    async def applicable(self, nodes: Sequence[TurnNode]) -> AppliedSummary | None:
        """The nearest summary that holds on a branch (root → leaf), in one round trip as a rule, two at most.

        Raises StoreUnavailableError.
        """
        made = frozenset(self._made)
        holders = [node.turn_id for node in nodes if node.has_summary or node.turn_id in made]
        if not holders:
            return None
        branch = [node.turn_id for node in nodes]
        known = {turn_id: self._known[turn_id] for turn_id in holders[:-1] if turn_id in self._known}
        asked = [turn_id for turn_id in holders[-NEAREST:-1] if turn_id not in known] + holders[-1:]
        fresh = await self._held_by(asked)
        applied = nearest_applicable(branch, {**known, **fresh})
        if (applied is not None and applied.turn_id == holders[-1]) or len(asked) == len(holders):
            return applied
        return nearest_applicable(branch, await self._held_by(holders))

    async def of_session(self, session_id: str, owner: str | None) -> dict[str, Summary | None]:
        """Every summary of the session by the turn it is stored with; None for one that cannot be read."""
        conditions = [equals("session_id", session_id)]
        if owner is not None:
            conditions.append(equals("owner", owner))
        return await self._read(Filter(must=[*conditions], must_not=[_HOLDS_NONE]))

    async def sources(self, turn_ids: Sequence[str]) -> list[SummarySource | None]:
        """The texts of the turns, in order; None for one that is gone or cannot be read."""
        by_id: dict[str, SummarySource] = {}
        fields = ["user_query", "assistant_response"]
        async for record in self._turns.scroll(_among(turn_ids), with_payload=fields):
            payload = record.payload or {}
            question, answer = payload.get("user_query"), payload.get("assistant_response")
            if isinstance(question, str) and isinstance(answer, str):
                by_id[str(record.id)] = SummarySource(str(record.id), question, answer)
        return [by_id.get(turn_id) for turn_id in turn_ids]

    async def keep(self, turn_id: str, summary: Summary, covered: Collection[str]) -> bool:
        """Store the summary. False when a turn it speaks of went meanwhile: then nothing is left of it.

        Looked for after the write: whoever erases a turn looks for summaries after the erasing, so one of
        the two sees the other.
        """
        self._known.pop(turn_id, None)
        await self._turns.set_payload(summary_payload(summary), [turn_id])
        self._made[turn_id] = True
        speaks_of = [*covered, *summary.covers]
        if not any(each in self._going for each in speaks_of) and await self._all_exist(speaks_of):
            return True
        await self.take_away([turn_id])
        return False

    async def forget(self, session_id: str, owner: str | None, turn_ids: Collection[str]) -> int:
        """Take away every summary of the session that speaks of one of the turns. Returns how many."""
        self._going.update(dict.fromkeys(turn_ids, True))
        holders = sorted(speaking_of(turn_ids, await self.of_session(session_id, owner)))
        await self.take_away(holders)
        return len(holders)

    async def take_away(self, turn_ids: Sequence[str]) -> None:
        """Of turns that are gone themselves nothing is left to take away."""
        holders = [str(record.id) async for record in self._each(turn_ids)]
        for turn_id in turn_ids:
            self._known.pop(turn_id, None)
            self._made.pop(turn_id, None)
        for chunk in batches(holders):
            await self._turns.set_payload(summary_payload(None), chunk)

    async def _each(self, turn_ids: Sequence[str]) -> AsyncIterator[Record]:
        for chunk in batches(turn_ids):
            async for record in self._turns.scroll(_among(chunk), with_payload=["turn_id"]):
                yield record

    async def _all_exist(self, turn_ids: Sequence[str]) -> bool:
        expected = frozenset(turn_ids)
        existing = sum([await self._turns.count(_among(chunk)) for chunk in batches(sorted(expected))])
        return existing == len(expected)

    async def _held_by(self, turn_ids: Sequence[str]) -> dict[str, Summary]:
        if not turn_ids:
            return {}
        by_turn = await self._read(_among(turn_ids))
        held = {turn_id: summary for turn_id, summary in by_turn.items() if summary is not None}
        self._known.update({turn_id: replace(summary, text="") for turn_id, summary in held.items()})
        return held

    async def _read(self, point_filter: Filter) -> dict[str, Summary | None]:
        return {
            str(record.id): _summary((record.payload or {}).get("summary"), str(record.id))
            async for record in self._turns.scroll(point_filter, with_payload=["summary"])
        }


def _summary(stored: Any, turn_id: str) -> Summary | None:
    try:
        return _SUMMARY.validate_python(stored)
    except ValidationError as error:
        log.warning("summary_unreadable", turn_id=turn_id, errors=error.error_count())
        return None


def _among(turn_ids: Sequence[str]) -> Filter:
    return Filter(must=[has_id(turn_ids)])


# Rewritten questions of stored turns: each was made of earlier turns, and goes when one of them does.


_NOT_REWORDED = is_empty("rewritten_question")


class Rewordings:
    def __init__(self, turns: TurnStore) -> None:
        self._turns = turns

    async def forget(self, session_id: str, turn_ids: Collection[str]) -> int:
        """Take away every rewritten question of the session that has words of one of the turns.

        Returns how many. Raises StoreUnavailableError.
        """
        erased = frozenset(turn_ids)
        point_filter = Filter(must=[equals("session_id", session_id)], must_not=[_NOT_REWORDED])
        holders = [
            str(record.id)
            async for record in self._turns.scroll(point_filter, with_payload=["rewritten_question"])
            if _made_of(record.payload or {}, erased)
        ]
        for batch in batches(holders):
            with suppress(UnknownPointError):  # one went meanwhile; the others are written
                await self._turns.set_payload(rewritten_payload(None), batch)
        return len(holders)


def _made_of(payload: Mapping[str, Any], erased: Collection[str]) -> bool:
    """One that does not say what it was made of may have been made of any turn."""
    rewritten = payload.get("rewritten_question")
    turn_ids = rewritten.get("turn_ids") if isinstance(rewritten, dict) else None
    if not isinstance(turn_ids, list) or not turn_ids:
        return True
    return any(turn_id in erased for turn_id in turn_ids)
