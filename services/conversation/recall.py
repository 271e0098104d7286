"""Relevant history: the earlier turns of a branch that a question is about, found in one round trip."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from config.settings import ConversationSettings
from core.conversation.branch import Branch
from core.conversation.recall import DEFAULT_THRESHOLD, QuestionMatch, Ranked, Scores, rank_turns, spread_of
from core.conversation.turns import Turn, TurnStatus
from core.relevance.query import Query
from services.conversation.turns import TurnStore
from services.store.dialect import Condition, Filter, QueryRequest, SparseVector, sparse_vector
from services.store.filters import equals, has_id, in_session

# of each list: deeper brought nothing more on the sets of core.conversation.recall, 16 lost a hundredth
DEPTH = 40
JUDGED_PER_RESULT = 2
# How the store learns of the branch. Naming a turn in a filter costs 5 µs and more for every list, looking
# a session up next to nothing; so few turns are named, and many are searched with the rest of their session.
FEW = 100
MOST_FETCHED = 400
ENOUGH = 16

INLINE_CHARS = 50_000  # about 30 ms of reading words


@dataclass(frozen=True, slots=True)
class Remembered:
    """A turn and the probability that the question is about it."""

    turn: Turn
    chance: float


class HistoryRecall:
    """`embedding` is the embedder's name, which says what its cosines mean."""

    def __init__(self, turns: TurnStore, settings: ConversationSettings, embedding: str) -> None:
        self._turns = turns
        self._max_turns = settings.max_relevant_turns
        threshold = settings.relevant_turn_threshold
        self._threshold = DEFAULT_THRESHOLD if threshold is None else threshold
        self._spread = spread_of(embedding)

    async def recall(self, query: Query, branch: Branch, recent: Sequence[Turn], owner: str) -> list[Turn]:
        """At most MAX_RELEVANT_TURNS that reach the threshold, oldest first; none of the `recent`.

        Of equal questions the newest stays. Raises StoreUnavailableError.
        """
        if not self._max_turns:
            return []
        ranked = await self.rank(query, branch, {turn.turn_id for turn in recent}, owner)
        judged = await self.judge(query, ranked[: self._max_turns * JUDGED_PER_RESULT])
        chosen = self.keep(judged, recent)[: self._max_turns]
        return sorted((each.turn for each in chosen), key=lambda turn: (turn.created_us, turn.seq))

    def keep(self, judged: Sequence[Remembered], recent: Sequence[Turn] = ()) -> list[Remembered]:
        """Those that reach the threshold, in the order given; of equal questions the newest."""
        answered = {turn.user_query for turn in recent if turn.status is TurnStatus.COMPLETED}
        fresh = [each for each in _newest_of_equal(judged) if each.turn.user_query not in answered]
        return [each for each in fresh if each.chance >= self._threshold]

    async def rank(self, query: Query, branch: Branch, shown: Collection[str], owner: str) -> list[Ranked]:
        """The branch's completed questions except those `shown`, best first, nothing cut off by a threshold.

        Raises StoreUnavailableError.
        """
        scope = _Scope(branch, owner, frozenset(shown))
        if len(branch.nodes) <= FEW and not scope.turn_ids():
            return []
        lists = await self._search(query, scope)
        places = {turn_id: branch.places[turn_id] for each in lists for turn_id, _ in each}
        return rank_turns(lists[0], lists[1], lists[2], places, DEPTH)

    async def judge(self, query: Query, ranked: Sequence[Ranked]) -> list[Remembered]:
        """The turns themselves, in the same order; those that are gone meanwhile are left out."""
        match = QuestionMatch(query.question, self._spread)
        cosines = {each.turn_id: each.cosine for each in ranked}
        turns = await self._turns.get_many(list(cosines))

        def chances() -> list[Remembered]:
            return [Remembered(turn, match.chance(cosines[turn.turn_id], turn.text)) for turn in turns]

        texts = sum(len(turn.user_query) + len(turn.assistant_response) for turn in turns)
        # an imported turn can be megabytes; for ordinary ones the way to a thread is longer than the work
        return chances() if texts <= INLINE_CHARS else await asyncio.to_thread(chances)

    async def _search(self, query: Query, scope: _Scope) -> list[Scores]:
        """By question vector, by turn vector, by words; the last is empty for a question of stop words."""
        turn_filter, limit = scope.filter(), scope.limit()
        rankings = await self._turns.search(_requests(query, turn_filter, limit))
        lists = [[(str(point.id), point.score) for point in points] for points in rankings]
        if any(scope.ran_short(each, limit) for each in lists):
            rankings = await self._turns.search(_requests(query, scope.exact_filter(), DEPTH))
            lists = [[(str(point.id), point.score) for point in points] for points in rankings]
        own = [[item for item in each if scope.holds(item[0])][:DEPTH] for each in lists]
        return [*own, *([[]] * (3 - len(own)))]


@dataclass(frozen=True, slots=True)
class _Scope:
    """The turns searched: the branch's completed questions, but for those `shown`.

    Nothing here walks a long branch: that alone would cost as much as a search.
    """

    branch: Branch
    owner: str
    shown: frozenset[str]

    def holds(self, turn_id: str) -> bool:
        at = self.branch.place(turn_id)
        return at is not None and self.branch.nodes[at].recallable and turn_id not in self.shown

    def turn_ids(self) -> list[str]:
        return [node.turn_id for node in self.branch.nodes if self.holds(node.turn_id)]

    def filter(self) -> Filter:
        """Every turn of the scope passes, and, where it has many, others too.

        A second condition, such as the owner, would double what the search of a long session costs.
        """
        if len(self.branch.nodes) <= FEW:
            return self.exact_filter()
        return Filter(must=[equals("session_id", self.branch.session_id)])

    def limit(self) -> int:
        """So long that DEPTH of the scope are surely among them, or, where many are not, most likely."""
        branch = self.branch
        others = len(branch.aside) + branch.unreadable + branch.silent + len(self.shown)
        size = len(branch.nodes) + len(branch.aside)
        return min(DEPTH + others, math.ceil(1.2 * DEPTH * size / len(branch.nodes)), MOST_FETCHED)

    def ran_short(self, scores: Scores, limit: int) -> bool:
        return len(scores) == limit and sum(self.holds(turn_id) for turn_id, _ in scores) < ENOUGH

    def exact_filter(self) -> Filter:
        mine: list[Condition] = [*in_session(self.branch.session_id, self.owner)]
        ids = self.turn_ids()
        if len(ids) <= max(len(self.branch.aside), FEW):
            return Filter(must=[has_id([*ids]), *mine])
        silent = [node.turn_id for node in self.branch.nodes if not self.holds(node.turn_id)]
        unwanted = has_id([*self.branch.aside, *silent])
        return Filter(must=mine, must_not=[unwanted])


def _requests(query: Query, point_filter: Filter, limit: int) -> list[QueryRequest]:
    raw = query.forms[0]
    vectors: list[tuple[str, list[float] | SparseVector]] = [
        ("question", raw.dense),
        ("turn", raw.dense),
    ]
    if raw.sparse.indices:
        vectors.append(("sparse", sparse_vector(raw.sparse)))
    return [
        QueryRequest(query=vector, using=name, filter=point_filter, limit=limit, with_payload=False)
        for name, vector in vectors
    ]


def _newest_of_equal(turns: Sequence[Remembered]) -> list[Remembered]:
    """Keep the order; of turns that ask the same question only the newest stays."""
    newest: dict[str, Turn] = {}
    for turn in (each.turn for each in turns):
        known = newest.get(turn.user_query)
        if known is None or (turn.created_us, turn.seq) > (known.created_us, known.seq):
            newest[turn.user_query] = turn
    return [each for each in turns if newest[each.turn.user_query] is each.turn]
