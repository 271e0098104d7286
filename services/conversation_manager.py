"""Conversations: what is stored of a turn, and what of a branch is remembered for the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from qdrant_client import models

from config.settings import ConversationSettings
from core.branch import TurnNode, latest_completed, walk_branch
from core.errors import EmbeddingUnavailableError, InvalidParentError, StoreUnavailableError
from core.fusion import reciprocal_rank_fusion
from core.knowledge import Candidate
from core.messages import Message, PromptTexts, assemble
from core.query import Query
from core.sparse import encode_document
from core.turns import Turn, TurnStatus
from services.clock import Clock, utc_now_us
from services.embedding import EmbeddingService
from services.retention import ExpiryReport, SessionRecords, expire_turns
from services.turn_payload import sparse_vector
from services.turn_store import TurnStore, TurnVectors, equals

log = structlog.get_logger()

UNSET = "unset"
# From which cosine on two texts are related, measured on questions and turns in both languages: E5 puts
# unrelated ones at .69 to .86 and related ones at .84 to .95; most other embedders spread wider.
RELATED_FROM = {"multilingual-e5-small": 0.83}
RELATED_FROM_ELSE = 0.5
_SAID_SOMETHING = {TurnStatus.COMPLETED, TurnStatus.CANCELLED, TurnStatus.INTERRUPTED}
EMBEDDED_TURN_CHARS = 1_200  # about the model's window; more costs seconds and finds nothing better


@dataclass(frozen=True, slots=True)
class Branch:
    """Where a new turn grows: its parent, the nodes from the root down to it, its place in the session."""

    parent_turn_id: str | None
    nodes: tuple[TurnNode, ...]
    next_seq: int


class ConversationManager:
    def __init__(
        self,
        turns: TurnStore,
        embedding: EmbeddingService,
        settings: ConversationSettings,
        session_records: SessionRecords | None = None,
        clock: Clock = utc_now_us,
    ) -> None:
        self.turns = turns
        self._embedding = embedding
        self._settings = settings
        related_from = RELATED_FROM.get(embedding.name, RELATED_FROM_ELSE)
        threshold = settings.relevant_turn_threshold
        self._related_from = related_from if threshold is None else threshold
        self._session_records = session_records
        self._clock = clock
        self._indexing: set[asyncio.Task[None]] = set()

    async def find_branch(self, session_id: str, owner: str, parent_turn_id: str | None = UNSET) -> Branch:
        """The branch a new turn grows on; UNSET means the latest completed turn, None a new root.

        Raises InvalidParentError when the parent is not a turn of this session.
        """
        nodes = await self.turns.skeleton(session_id, owner)
        parent = parent_turn_id
        if parent == UNSET:
            latest = latest_completed(nodes.values())
            parent = latest.turn_id if latest else None
        elif parent is not None and parent not in nodes:
            raise InvalidParentError("parent_turn_id: no turn of this session has this id.")
        return Branch(parent, tuple(walk_branch(nodes, parent)), len(nodes))

    async def add_conversation_turn(self, turn: Turn, vectors: TurnVectors | None = None) -> None:
        """Store the turn; when this returns, it survives a crash. Its text is embedded afterwards.

        Raises StoreUnavailableError.
        """
        vectors = vectors or TurnVectors()
        if turn.status.finished and turn.assistant_response:
            vectors = TurnVectors(vectors.question, None, encode_document(turn.text))
        await self.turns.put(turn, vectors)
        if turn.status is TurnStatus.COMPLETED:
            self._index_later(turn)

    async def get_recent_history(self, branch: Branch) -> list[Turn]:
        """The last MAX_RECENT_TURNS turns of the branch that said something, oldest first."""
        limit = self._settings.max_recent_turns
        said = [node.turn_id for node in branch.nodes if node.status in _SAID_SOMETHING]
        return await self.turns.get_many(said[-limit:] if limit else [])

    async def retrieve_relevant_history(
        self, query: Query, branch: Branch, recent: Sequence[Turn], owner: str
    ) -> list[Turn]:
        """Earlier completed turns of this branch that the question is about, oldest first.

        Never a recent one, a sibling or another session; of equal questions the newest stays.
        """
        shown = {turn.turn_id for turn in recent}
        earlier = [node for node in branch.nodes if node.turn_id not in shown]
        ids = [node.turn_id for node in earlier if node.status is TurnStatus.COMPLETED]
        if not ids or not self._settings.max_relevant_turns:
            return []
        found = await self.turns.search(self._recall_requests(query, ids))
        best = self._fuse(found)[: self._settings.max_relevant_turns * 2]
        turns = _newest_of_equal(await self.turns.get_many(best))
        return sorted(
            turns[: self._settings.max_relevant_turns], key=lambda turn: (turn.created_us, turn.seq)
        )

    def build_context_messages(
        self,
        texts: PromptTexts,
        relevant: Sequence[Turn],
        recent: Sequence[Turn],
        candidates: Sequence[Candidate],
        question: str,
    ) -> list[Message]:
        """system → relevant history → recent history → knowledge context → question."""
        return assemble(texts, relevant, recent, candidates, question)

    async def delete_old_conversations(self, days: int, *, dry_run: bool = False) -> ExpiryReport:
        """Remove every turn older than `days` (UTC); running turns and held sessions stay.

        With dry_run only count. Raises ValueError if days < 1.
        """
        now = self._clock()
        return await expire_turns(self.turns, now, days, dry_run=dry_run, records=self._session_records)

    async def cleanup_expired_conversations(self) -> ExpiryReport:
        """The nightly job: delete_old_conversations with CONVERSATION_EXPIRE_DAYS."""
        return await self.delete_old_conversations(self._settings.conversation_expire_days)

    async def recover_running(self, min_age_s: float = 0) -> int:
        """At start: turns that a crash left running become interrupted. Returns how many.

        With other workers on the same store, `min_age_s` is how long an answer may take at most.
        """
        began = models.Range(lte=self._clock() - int(min_age_s * 1_000_000))
        old = models.FieldCondition(key="created_us", range=began)
        wanted = models.Filter(must=[equals("status", TurnStatus.RUNNING.value), old])
        ids = [str(record.id) async for record in self.turns.scroll(wanted, with_payload=["turn_id"])]
        if ids:
            await self.turns.set_payload({"status": TurnStatus.INTERRUPTED.value}, ids)
        return len(ids)

    async def index_missing(self) -> int:
        """Embed completed turns that a crash left without their turn vector. Returns how many."""
        wanted = models.Filter(
            must=[equals("status", TurnStatus.COMPLETED.value)],
            must_not=[models.HasVectorCondition(has_vector="turn")],
        )
        ids = [str(record.id) async for record in self.turns.scroll(wanted, with_payload=["turn_id"])]
        for turn_id in ids:
            for turn in await self.turns.get_many([turn_id]):
                await self._index(turn)
        return len(ids)

    async def close(self) -> None:
        """Wait for the embedding of the last turns, briefly; what is missed is made up at the next start."""
        if self._indexing:
            await asyncio.wait(self._indexing, timeout=2)
        for task in self._indexing:
            task.cancel()

    def _recall_requests(self, query: Query, turn_ids: list[str]) -> list[models.QueryRequest]:
        among = models.Filter(must=[models.HasIdCondition(has_id=list(turn_ids))])
        limit = self._settings.max_relevant_turns * 4
        raw = query.forms[0]
        requests = [
            models.QueryRequest(
                query=raw.dense,
                using=name,
                filter=among,
                limit=limit,
                score_threshold=self._related_from,
            )
            for name in ("question", "turn")
        ]
        if raw.sparse.indices:
            sparse = sparse_vector(raw.sparse)
            requests.append(models.QueryRequest(query=sparse, using="sparse", filter=among, limit=limit))
        return requests

    def _fuse(self, found: list[list[models.ScoredPoint]]) -> list[str]:
        """Fused order of those that a dense list let through its threshold; sparse agreement lifts them."""
        dense_ids = {str(point.id) for points in found[:2] for point in points}
        rankings = [[str(point.id) for point in points if str(point.id) in dense_ids] for points in found]
        return [turn_id for turn_id, _ in reciprocal_rank_fusion(rankings)]

    def _index_later(self, turn: Turn) -> None:
        task = asyncio.create_task(self._index(turn), name=f"index {turn.turn_id}")
        self._indexing.add(task)
        task.add_done_callback(self._indexing.discard)

    async def _index(self, turn: Turn) -> None:
        """The turn is durable already; failing here costs only its recall by meaning until the next start."""
        try:
            (vector,) = await self._embedding.embed_passages([turn.text[:EMBEDDED_TURN_CHARS]])
            await self.turns.add_vectors(turn.turn_id, TurnVectors(turn=vector))
        except (EmbeddingUnavailableError, StoreUnavailableError) as error:
            log.warning("turn_not_indexed", turn_id=turn.turn_id, error=error.code)


def _newest_of_equal(turns: Sequence[Turn]) -> list[Turn]:
    """Keep the order; of turns that ask the same question only the newest stays."""
    newest: dict[str, Turn] = {}
    for turn in turns:
        known = newest.get(turn.user_query)
        if known is None or (turn.created_us, turn.seq) > (known.created_us, known.seq):
            newest[turn.user_query] = turn
    return [turn for turn in turns if newest[turn.user_query] is turn]
