"""The vectors a turn is recalled by, made once it is durable: what is lost is made again at the next
start."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import structlog

from core.conversation.turns import Turn, TurnStatus
from core.errors import EmbeddingUnavailableError, StoreUnavailableError
from core.relevance.query import embedded_part
from core.relevance.sparse import LONGEST_INDEXED, DocumentWords, SparseTerms, encode_document, is_stemmed
from services.conversation.turns import TurnStore, TurnVectors
from services.models.embedding import EmbeddingService
from services.store.activity import Activity
from services.store.dialect import Condition, Filter, UnknownPointError
from services.store.filters import equals, has_id, has_vector

log = structlog.get_logger()

EMBEDDED_TURN_CHARS = 1_200  # about the model's window; more costs seconds and finds nothing better
BATCH = 4
CLOSE_WAIT_S = 2.0
BUSY_WAIT_S = 5.0  # between two batches while answers are written, which need the processor more
PIECE_CHARS = 4_000  # 2 ms of reading words
WORD_ENDS = " \n，。"

Progress = Callable[[int, int], object]
"""Called with how many turns are embedded, of how many."""


class TurnIndexer:
    """One batch at a time: turns that were just answered go before those of an import."""

    def __init__(self, turns: TurnStore, embedding: EmbeddingService, activity: Activity) -> None:
        self._turns = turns
        self._embedding = embedding
        self._activity = activity
        self._answered: deque[Turn] = deque()
        self._imported: deque[str] = deque()
        self._worker: asyncio.Task[None] | None = None

    def answered(self, turn: Turn) -> None:
        """Embed a turn that was just stored with its question vector and its words, soon."""
        self._answered.append(turn)
        self._wake()

    def later(self, turns: Sequence[Turn]) -> None:
        """Embed stored turns when nothing else waits, oldest first. Only their ids are kept in memory."""
        oldest_first = sorted(turns, key=lambda turn: (turn.created_us, turn.seq))
        self._imported.extend(turn.turn_id for turn in oldest_first if _is_indexed(turn))
        self._wake()

    async def missing(self, on_progress: Progress | None = None) -> int:
        """Embed every completed question that lacks one of its vectors, oldest first. Returns how many.

        Cut off, the next call goes on where this one ended.
        """
        on_progress = on_progress or (lambda done, of: None)
        ids = await self._lacking()
        done = 0
        for start in range(0, len(ids), BATCH):
            try:
                done += await self._index_stored(ids[start : start + BATCH])
                on_progress(done, len(ids))
            except (EmbeddingUnavailableError, StoreUnavailableError) as error:
                log.warning("turns_not_indexed", number=len(ids) - start, error=error.code)
                break
        return done

    async def close(self) -> None:
        """Wait for the last answered turns, briefly; what is left is caught up at the next start."""
        self._imported.clear()
        if self._worker is not None:
            await asyncio.wait([self._worker], timeout=CLOSE_WAIT_S)
            self._worker.cancel()

    def _wake(self) -> None:
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work(), name="index turns")

    async def _work(self) -> None:
        """The turns are durable already; failing here costs only their recall until the next start."""
        while self._answered or self._imported:
            await self._activity.quiet(BUSY_WAIT_S)
            batch = [self._answered.popleft() for _ in range(min(BATCH, len(self._answered)))]
            ids = [] if batch else [self._imported.popleft() for _ in range(min(BATCH, len(self._imported)))]
            try:
                if batch:
                    await self._index_answered(batch)
                else:
                    await self._index_stored(ids)
            except (EmbeddingUnavailableError, StoreUnavailableError) as error:
                log.warning("turns_not_indexed", number=len(batch or ids), error=error.code)

    async def _lacking(self, among: Sequence[str] | None = None) -> list[str]:
        """Completed questions without one of their dense vectors, oldest first."""
        no_vector = [Filter(must_not=[has_vector(name)]) for name in ("question", "turn")]
        must: list[Condition] = [equals("status", TurnStatus.COMPLETED.value)]
        if among is not None:
            must.append(has_id(among))
        point_filter = Filter(must=must, should=[*no_vector])
        fields = ["created_us", "seq", "command"]
        lacking: list[tuple[int, int, str]] = []
        async for record in self._turns.scroll(point_filter, with_payload=fields):
            payload = record.payload or {}
            if not payload.get("command"):
                lacking.append((_number(payload, "created_us"), _number(payload, "seq"), str(record.id)))
        return [turn_id for _, _, turn_id in sorted(lacking)]

    async def _index_stored(self, turn_ids: Sequence[str]) -> int:
        """Everything the turns are found by: who stored them may have known none of it."""
        turns = await self._turns.get_many(await self._lacking(turn_ids))
        passages = await self._passages(turns)
        added = [
            TurnVectors(
                await self._question(turn), passage, await asyncio.to_thread(encode_document, turn.text)
            )
            for turn, passage in zip(turns, passages, strict=True)
        ]
        await self._add(turns, added)
        return len(turns)

    async def _index_answered(self, turns: Sequence[Turn]) -> None:
        await self._add(turns, [TurnVectors(turn=passage) for passage in await self._passages(turns)])

    async def _passages(self, turns: Sequence[Turn]) -> list[list[float]]:
        return await self._embedding.embed_passages([turn.text[:EMBEDDED_TURN_CHARS] for turn in turns])

    async def _question(self, turn: Turn) -> list[float]:
        """One at a time: the next asker waits for one embedding at most."""
        return (await self._embedding.embed_queries([embedded_part(turn.user_query)]))[0]

    async def _add(self, turns: Sequence[Turn], added: Sequence[TurnVectors]) -> None:
        if not turns:
            return
        try:
            await self._turns.add_vectors(
                {turn.turn_id: vectors for turn, vectors in zip(turns, added, strict=True)}
            )
        except UnknownPointError:
            log.info("indexed_turn_gone", of=len(turns))  # erased meanwhile; the others are written


def words_of(turn: Turn) -> SparseTerms | None:
    """What the turn is found by word for word; a question still without an answer is not worth finding."""
    return encode_document(turn.text) if _is_worth_finding(turn) else None


async def read_words(turn: Turn) -> SparseTerms | None:
    """`words_of`, a piece at a time: 200,000 characters cost 100 ms, and others are waiting.

    Not in a thread: a few of those, fighting for the interpreter's lock, hold the loop up for as long.
    """
    if len(turn.text) <= PIECE_CHARS or not _is_worth_finding(turn):
        return words_of(turn)
    words = DocumentWords(is_stemmed(turn.text))
    for piece in _cut(turn.text[:LONGEST_INDEXED]):
        words.add(piece)
        await asyncio.sleep(0)
    return words.vector()


def _cut(text: str) -> Iterator[str]:
    """Pieces that end where a word does, if one ends at all."""
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
    return bool(turn.assistant_response) or turn.status is TurnStatus.COMPLETED


def _is_indexed(turn: Turn) -> bool:
    return turn.status is TurnStatus.COMPLETED and not turn.command


def _number(payload: dict[str, object], field: str) -> int:
    value = payload.get(field)
    return value if isinstance(value, int) else 0
