"""Relevant history: the earlier turns of a branch that a question is about, and the vectors to find them."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import structlog

from config.settings import ConversationSettings
from core.conversation.recall import DEFAULT_THRESHOLD, QuestionMatch, Ranked, Scores, rank_turns, spread_of
from core.conversation.sessions import Branch
from core.conversation.turns import Turn, TurnStatus
from core.errors import EmbeddingUnavailableError, StoreUnavailableError
from core.relevance.query import Query, embedded_part
from core.relevance.sparse import MAX_INDEXED_CHARS, DocumentWords, SparseTerms, encode_document
from services.conversation.turns import TurnStore, TurnVectors
from services.models.embedding import EmbeddingService
from services.store.clock import Activity
from services.store.dialect import (
    Condition,
    Filter,
    QueryRequest,
    ScoredPoint,
    SparseVector,
    UnknownPointError,
)
from services.store.points import equals, has_id, has_vector, in_session, sparse_vector

log = structlog.get_logger()

# of each list: deeper gained nothing on the sets of core.conversation.recall, 16 lost a hundredth
DEPTH = 40
JUDGED_PER_RESULT = 2
# How the search is limited to the branch. Each turn id in a filter costs 5 µs or more per list, a session id
# next to nothing: so a few turns are listed by id, and many are searched with the rest of their session.
MAX_LISTED_IDS = 100
MAX_FETCHED = 400
SESSION_STRIDE = 10_000_000  # more than a session has turns
MIN_HITS = 16

INLINE_CHARS = 50_000  # about 30 ms of tokenizing


@dataclass(frozen=True, slots=True)
class Remembered:
    """A turn and the probability that the question is about it."""

    turn: Turn
    chance: float


class HistoryRecall:
    """`embedding` is the embedder's name, which determines how its cosines are interpreted."""

    def __init__(self, turns: TurnStore, settings: ConversationSettings, embedding: str) -> None:
        self._turns = turns
        self._max_turns = settings.max_relevant_turns
        threshold = settings.relevant_turn_threshold
        self._threshold = DEFAULT_THRESHOLD if threshold is None else threshold
        self._spread = spread_of(embedding)

    async def recall(self, query: Query, branch: Branch, recent: Sequence[Turn], owner: str) -> list[Turn]:
        """Return at most MAX_RELEVANT_TURNS that reach the threshold, oldest first; none of the `recent`.

        Of identical questions the newest stays. Raises StoreUnavailableError.
        """
        if not self._max_turns:
            return []
        ranked = await self.rank(query, branch, {turn.turn_id for turn in recent}, owner)
        judged = await self.judge(query, ranked[: self._max_turns * JUDGED_PER_RESULT])
        chosen = self.keep(judged, recent)[: self._max_turns]
        return sorted((each.turn for each in chosen), key=lambda turn: (turn.created_us, turn.seq))

    async def in_all_sessions(
        self,
        query: Query,
        owner: str,
        limit: int,
        within: Sequence[Condition] = (),
        but: Condition | None = None,
    ) -> list[Remembered]:
        """Return completed questions from all of the owner's sessions that reach the threshold, best first.

        Only those matching `within`, and not `but`. Raises StoreUnavailableError.
        """
        ranked = await self.rank_all_sessions(query, owner, within, but)
        judged = await self.judge(query, ranked[: limit * JUDGED_PER_RESULT])
        return [each for each in self.keep(judged) if not each.turn.command][:limit]

    async def rank_all_sessions(
        self, query: Query, owner: str, within: Sequence[Condition] = (), but: Condition | None = None
    ) -> list[Ranked]:
        """Rank like `in_all_sessions`, without a threshold."""
        completed = equals("status", TurnStatus.COMPLETED.value)
        mine = Filter(must=[equals("owner", owner), completed, *within], must_not=[but] if but else None)
        rankings = await self._turns.search(_requests(query, mine, DEPTH, ["session_id", "seq"]))
        places = _places_of([point for points in rankings for point in points])
        return rank_turns(*_scores_of(rankings), places, DEPTH)

    def keep(self, judged: Sequence[Remembered], recent: Sequence[Turn] = ()) -> list[Remembered]:
        """Return those that reach the threshold, in order; of identical questions only the newest."""
        answered = {turn.question for turn in recent if turn.status is TurnStatus.COMPLETED}
        fresh = [each for each in _newest_of_equal(judged) if each.turn.question not in answered]
        return [each for each in fresh if each.chance >= self._threshold]

    async def rank(self, query: Query, branch: Branch, shown: Collection[str], owner: str) -> list[Ranked]:
        """Rank the branch's completed questions except those `shown`, best first, without a threshold.

        Raises StoreUnavailableError.
        """
        scope = _Scope(branch, owner, frozenset(shown))
        if len(branch.nodes) <= MAX_LISTED_IDS and not scope.turn_ids():
            return []
        lists = await self._search(query, scope)
        places = {turn_id: branch.places[turn_id] for each in lists for turn_id, _ in each}
        return rank_turns(*lists, places, DEPTH)

    async def judge(self, query: Query, ranked: Sequence[Ranked]) -> list[Remembered]:
        """Load the turns with their probabilities, in order; turns deleted meanwhile are left out."""
        if not ranked:
            return []
        match = QuestionMatch(query.question, self._spread)
        cosines = {each.turn_id: each.cosine for each in ranked}
        turns = await self._turns.get_many(list(cosines))

        def chances() -> list[Remembered]:
            return [Remembered(turn, match.chance(cosines[turn.turn_id], turn.text)) for turn in turns]

        texts = sum(len(turn.question) + len(turn.answer) for turn in turns)
        # an imported turn can be megabytes; for ordinary ones, switching to a thread costs more than the work
        return chances() if texts <= INLINE_CHARS else await asyncio.to_thread(chances)

    async def _search(self, query: Query, scope: _Scope) -> tuple[Scores, Scores, Scores]:
        """Return the lists of `_scores_of`, restricted to the scope."""
        turn_filter, limit = scope.filter(), scope.limit()
        lists = _scores_of(await self._turns.search(_requests(query, turn_filter, limit)))
        if any(scope.ran_short(each, limit) for each in lists):
            lists = _scores_of(await self._turns.search(_requests(query, scope.exact_filter(), DEPTH)))
        question, turn, words = ([hit for hit in each if scope.holds(hit[0])][:DEPTH] for each in lists)
        return question, turn, words


@dataclass(frozen=True, slots=True)
class _Scope:
    """The turns searched: the branch's completed questions, except those `shown`.

    Avoids walking a long branch: that alone would cost as much as a search.
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
        """Return a filter that passes every turn of the scope, and, for a large scope, others too.

        A second condition, such as the owner, would double the cost of searching a long session.
        """
        if len(self.branch.nodes) <= MAX_LISTED_IDS:
            return self.exact_filter()
        return Filter(must=[equals("session_id", self.branch.session_id)])

    def limit(self) -> int:
        """Return a limit that surely includes DEPTH of the scope, or very likely where many others match."""
        branch = self.branch
        others = len(branch.aside) + branch.unreadable + branch.silent + len(self.shown)
        size = len(branch.nodes) + len(branch.aside)
        return min(DEPTH + others, math.ceil(1.2 * DEPTH * size / len(branch.nodes)), MAX_FETCHED)

    def ran_short(self, scores: Scores, limit: int) -> bool:
        return len(scores) == limit and sum(self.holds(turn_id) for turn_id, _ in scores) < MIN_HITS

    def exact_filter(self) -> Filter:
        mine: list[Condition] = [*in_session(self.branch.session_id, self.owner)]
        ids = self.turn_ids()
        if len(ids) <= max(len(self.branch.aside), MAX_LISTED_IDS):
            return Filter(must=[has_id([*ids]), *mine])
        silent = [node.turn_id for node in self.branch.nodes if not self.holds(node.turn_id)]
        unwanted = has_id([*self.branch.aside, *silent])
        return Filter(must=mine, must_not=[unwanted])


def _places_of(points: Sequence[ScoredPoint]) -> dict[str, int]:
    """Number the turns, session after session, so that neighbours are adjacent; branches count as one."""
    sessions: dict[str, int] = {}
    places: dict[str, int] = {}
    for point in points:
        payload = point.payload or {}
        session = sessions.setdefault(str(payload.get("session_id")), len(sessions) * SESSION_STRIDE)
        places[str(point.id)] = session + _number(payload, "seq")
    return places


def _requests(
    query: Query, point_filter: Filter, limit: int, fields: Sequence[str] = ()
) -> list[QueryRequest]:
    raw = query.forms[0]
    dense = list(raw.dense)
    vectors: list[tuple[str, list[float] | SparseVector]] = [
        ("question", dense),
        ("turn", dense),
    ]
    if raw.sparse.indices:
        vectors.append(("sparse", sparse_vector(raw.sparse)))
    return [
        QueryRequest(
            query=vector, using=name, filter=point_filter, limit=limit, with_payload=list(fields) or False
        )
        for name, vector in vectors
    ]


def _scores_of(rankings: Sequence[Sequence[ScoredPoint]]) -> tuple[Scores, Scores, Scores]:
    """Return scores by question vector, turn vector and words; the last is empty if all are stop words."""
    three = (*rankings, ())[:3]
    question, turn, words = ([(str(point.id), point.score) for point in points] for points in three)
    return question, turn, words


def _newest_of_equal(turns: Sequence[Remembered]) -> list[Remembered]:
    """Drop all but the newest of turns that ask the same question, keeping the order."""
    newest: dict[str, Turn] = {}
    for turn in (each.turn for each in turns):
        known = newest.get(turn.question)
        if known is None or (turn.created_us, turn.seq) > (known.created_us, known.seq):
            newest[turn.question] = turn
    return [each for each in turns if newest[each.turn.question] is each.turn]


# The vectors a turn is recalled by, computed once it is durable: lost ones are recomputed at the next start.

EMBEDDED_TURN_CHARS = 1_200  # about the model's window; more costs seconds without better recall
BATCH = 4
CLOSE_WAIT_S = 2.0
BUSY_WAIT_S = 5.0  # between two batches while answers are generated, which need the CPU more
PIECE_CHARS = 4_000  # 2 ms of tokenizing
WORD_ENDS = " \n，。"

Progress = Callable[[int, int], object]
"""Called with the number of turns embedded so far and the total."""


class TurnIndexer:
    """Embeds turns one batch at a time: those of ongoing conversations before those of an import.

    `recent` is how many turns a prompt repeats verbatim: these are never recalled, so an answer is embedded
    only when its turn is about to leave them, and most turns never are.
    """

    def __init__(
        self, turns: TurnStore, embedding: EmbeddingService, activity: Activity, recent: int
    ) -> None:
        self._turns = turns
        self._embedding = embedding
        self._activity = activity
        self._unrecalled = max(recent - 1, 0)
        self._leaving: deque[str] = deque()
        self._imported: deque[str] = deque()
        self._worker: asyncio.Task[None] | None = None

    def leaving(self, turn_id: str) -> None:
        """Embed a stored turn soon: after one more turn it is no longer recent."""
        self._leaving.append(turn_id)
        self._wake()

    def later(self, turns: Sequence[Turn]) -> None:
        """Embed stored turns when nothing else waits, oldest first. Only their ids are held in memory."""
        oldest_first = sorted(turns, key=lambda turn: (turn.created_us, turn.seq))
        answered = (turn for turn in oldest_first if turn.status is TurnStatus.COMPLETED and not turn.command)
        self._imported.extend(turn.turn_id for turn in answered)
        self._wake()

    async def missing(self, on_progress: Progress | None = None) -> int:
        """Embed every completed question that lacks its question vector, or lacks its turn vector and is not
        among its session's last, oldest first. Returns how many.

        If interrupted, the next call continues where this one stopped.
        """
        on_progress = on_progress or (lambda done, of: None)
        unasked, unread = await self._lacking("question"), await self._lacking("turn")
        recalled = [one for one, later in _with_later(unread) if later >= self._unrecalled]
        ids = [one.turn_id for one in sorted({*unasked, *recalled})]
        done = 0
        for start in range(0, len(ids), BATCH):
            try:
                done += await self._index(ids[start : start + BATCH])
                on_progress(done, len(ids))
            except (EmbeddingUnavailableError, StoreUnavailableError) as error:
                log.warning("turns_not_indexed", number=len(ids) - start, error=error.code)
                break
        return done

    async def close(self) -> None:
        """Wait briefly for the last turns; the rest is caught up at the next start."""
        self._imported.clear()
        if self._worker is not None:
            await asyncio.wait([self._worker], timeout=CLOSE_WAIT_S)
            self._worker.cancel()

    def _wake(self) -> None:
        if (self._leaving or self._imported) and (self._worker is None or self._worker.done()):
            self._worker = asyncio.create_task(self._work(), name="index turns")

    async def _work(self) -> None:
        """The turns are already durable; a failure here costs only their recall until the next start."""
        while self._leaving or self._imported:
            await self._activity.quiet(BUSY_WAIT_S)
            waiting = self._leaving or self._imported
            ids = [waiting.popleft() for _ in range(min(BATCH, len(waiting)))]
            try:
                await self._index(ids)
            except (EmbeddingUnavailableError, StoreUnavailableError) as error:
                log.warning("turns_not_indexed", number=len(ids), error=error.code)

    async def _lacking(self, name: str, among: Sequence[str] | None = None) -> list[_Lacking]:
        """Return completed questions without this vector, oldest first."""
        must: list[Condition] = [equals("status", TurnStatus.COMPLETED.value)]
        if among is not None:
            must.append(has_id(among))
        point_filter = Filter(must=must, must_not=[has_vector(name)])
        fields = ["created_us", "seq", "command", "session_id"]
        lacking: list[_Lacking] = []
        async for record in self._turns.scroll(point_filter, with_payload=fields):
            payload = record.payload or {}
            if not payload.get("command"):
                order = (_number(payload, "created_us"), _number(payload, "seq"))
                lacking.append(_Lacking(*order, str(record.id), str(payload.get("session_id"))))
        return sorted(lacking)

    async def _index(self, turn_ids: Sequence[str]) -> int:
        """Add the vectors each turn lacks. A turn without a question vector may lack its words, too: it gets
        all three."""
        unasked, unread = await asyncio.gather(
            self._lacking("question", turn_ids), self._lacking("turn", turn_ids)
        )
        no_question = {one.turn_id for one in unasked}
        turns = await self._turns.get_many([one.turn_id for one in sorted({*unasked, *unread})])
        passages = await self._embedding.embed_passages([turn.text[:EMBEDDED_TURN_CHARS] for turn in turns])
        added = [
            await self._whole(turn, passage) if turn.turn_id in no_question else TurnVectors(turn=passage)
            for turn, passage in zip(turns, passages, strict=True)
        ]
        await self._add(turns, added)
        return len(turns)

    async def _whole(self, turn: Turn, passage: list[float]) -> TurnVectors:
        """Embed one question at a time, so that a user's question waits for at most one embedding."""
        (question,) = await self._embedding.embed_queries([embedded_part(turn.question)])
        return TurnVectors(question, passage, await asyncio.to_thread(encode_document, turn.text))

    async def _add(self, turns: Sequence[Turn], added: Sequence[TurnVectors]) -> None:
        if not turns:
            return
        try:
            await self._turns.add_vectors(
                {turn.turn_id: vectors for turn, vectors in zip(turns, added, strict=True)}
            )
        except UnknownPointError:
            log.info("indexed_turn_gone", of=len(turns))  # erased meanwhile; the others are written


@dataclass(frozen=True, slots=True, order=True)
class _Lacking:
    """A turn without one of its vectors; ordered by time."""

    created_us: int
    seq: int
    turn_id: str
    session_id: str


def _with_later(lacking: Sequence[_Lacking]) -> Iterator[tuple[_Lacking, int]]:
    """Yield each turn, oldest first, with how many of its session come after it."""
    remaining = Counter(one.session_id for one in lacking)
    for one in lacking:
        remaining[one.session_id] -= 1
        yield one, remaining[one.session_id]


def words_of(turn: Turn) -> SparseTerms | None:
    """Return the turn's sparse terms; None if it is not worth finding, such as an unanswered question."""
    return encode_document(turn.text) if _is_worth_finding(turn) else None


async def read_words(turn: Turn) -> SparseTerms | None:
    """Compute `words_of` piece by piece: 200,000 characters take 100 ms, and other requests are waiting.

    Not in a thread: a few threads contending for the GIL would block the event loop for just as long.
    """
    if len(turn.text) <= PIECE_CHARS or not _is_worth_finding(turn):
        return words_of(turn)
    words = DocumentWords()
    for piece in _cut(turn.text[:MAX_INDEXED_CHARS]):
        words.add(piece)
        await asyncio.sleep(0)
    return words.vector()


def _cut(text: str) -> Iterator[str]:
    """Yield pieces that end at a word boundary where possible."""
    start = 0
    while start < len(text):
        end = start + PIECE_CHARS
        if end < len(text):
            end = max(text.rfind(mark, start, end) for mark in WORD_ENDS) + 1 or end
        yield text[start:end]
        start = end


def _is_worth_finding(turn: Turn) -> bool:
    if not turn.status.finished or turn.command or not turn.text.strip():
        return False
    return bool(turn.answer) or turn.status is TurnStatus.COMPLETED


def _number(payload: dict[str, object], field: str) -> int:
    value = payload.get(field)
    return value if isinstance(value, int) else 0
