"""Turns of an owner's other sessions, for a question about an earlier conversation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from core.conversation.turns import Turn, TurnStatus
from core.dates import is_moment
from core.memory.record import Memory
from core.memory.requests import EpisodeAsked, episode_asked, episode_id, episode_of, moment_of, moments_of
from core.relevance.query import Query
from core.relevance.sparse import encode_query
from services.conversation.recall import HistoryRecall
from services.conversation.turns import TurnStore
from services.store.dialect import Condition, Filter
from services.store.points import equals, in_range

MOST = 3
LOOKED_AT = 4 * MOST  # what may not be told is among them


class Episodes:
    """`now` is the time of day where people are: it says what last week is."""

    def __init__(self, turns: TurnStore, recall: HistoryRecall, now: Callable[[], datetime]) -> None:
        self._turns, self._recall, self._now = turns, recall, now

    async def find(
        self, asked: EpisodeAsked, query: Query, owner: str, session_id: str
    ) -> list[tuple[Memory, float]]:
        """With their probabilities, best first: of the days that are named, or, where nothing of these is
        about the question, of any. Raises StoreUnavailableError."""
        of_days = self._within(asked)
        elsewhere = equals("session_id", session_id)
        if not asked.topic:
            return [(self._episode(turn), 1.0) for turn in await self._newest(owner, of_days, elsewhere)]
        words = encode_query(asked.topic)
        about = replace(query, question=asked.topic, forms=(replace(query.forms[0], sparse=words),))
        for within in (of_days, []) if of_days else ([],):
            found = await self._recall.everywhere(about, owner, LOOKED_AT, within, elsewhere)
            if told := [
                (self._episode(each.turn), each.chance) for each in found if self._may_be_told(each.turn)
            ]:
                return told[:MOST]
        return []

    async def get_many(self, memory_ids: Sequence[str], owner: str) -> list[Memory]:
        """Of these ids those that are episodes, in this order, as far as their turns exist."""
        episodes: list[Memory] = []
        for memory_id in memory_ids:
            moment_us = moment_of(memory_id)
            if not is_moment(moment_us):
                continue
            then = [equals("owner", owner), in_range("created_us", gte=moment_us, lte=moment_us)]
            ids = [
                str(record.id) async for record in self._turns.scroll(Filter(must=[*then]), with_payload=[])
            ]
            turns = await self._turns.get_many(ids)
            episodes += [self._episode(turn) for turn in turns if episode_id(turn) == memory_id]
        return episodes

    async def _newest(self, owner: str, within: Sequence[Condition], elsewhere: Condition) -> list[Turn]:
        completed = equals("status", TurnStatus.COMPLETED.value)
        where = Filter(must=[equals("owner", owner), completed, *within], must_not=[elsewhere])
        records = await self._turns.newest(where, LOOKED_AT, ["turn_id"])
        turns = await self._turns.get_many([str(record.id) for record in records])
        return [turn for turn in turns if self._may_be_told(turn)][:MOST]

    def _within(self, asked: EpisodeAsked) -> list[Condition]:
        zone = self._now().tzinfo
        if asked.days is None or zone is None:
            return []
        since_us, until_us = moments_of(asked.days, zone)
        return [in_range("created_us", gte=since_us, lt=until_us)]

    def _episode(self, turn: Turn) -> Memory:
        return episode_of(turn, self._now().tzinfo)

    def _may_be_told(self, turn: Turn) -> bool:
        """Not what was asked without memory; nor a question of this kind, whose answer repeats what it was
        told."""
        if turn.command or (turn.request is not None and not turn.request.memory):
            return False
        return episode_asked(turn.question, self._now().date()) is None
