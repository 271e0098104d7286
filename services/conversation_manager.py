"""Conversations: storing turns, and selecting what of a branch the next turn remembers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice

import structlog
from pydantic_core import to_json

from config.settings import ConversationSettings
from core.conversation.sessions import Branch, TurnNode
from core.conversation.turns import UNSET, Turn, TurnStatus
from core.errors import InvalidParentError, StoreUnavailableError
from core.knowledge import Candidate
from core.operations.expiry import ExpiryReport
from core.prompt.messages import History, Message, PromptTexts, assemble
from core.relevance.query import Query
from core.tools import ToolUse
from services.conversation.recall import HistoryRecall, Progress, TurnIndexer, read_words
from services.conversation.turns import TurnStore, TurnVectors, to_payload
from services.models.embedding import EmbeddingService
from services.operations.retention.cleanup import Reason, Retention
from services.store.clock import Activity, Clock, utc_now_us
from services.store.dialect import Filter, StoreRequestError, UnknownPointError
from services.store.points import batches, equals, in_range

log = structlog.get_logger()

IMPORT_BATCH = 100
MAX_UNSTORED_BYTES = 50 << 20
ABANDONED_IMAGES_S = 3_600.0  # no turn takes this long to begin


class ConversationManager:
    def __init__(
        self,
        turns: TurnStore,
        embedding: EmbeddingService,
        settings: ConversationSettings,
        retention: Retention | None = None,
        clock: Clock = utc_now_us,
        activity: Activity | None = None,
    ) -> None:
        """Without `retention`, expiry covers turns only: no holds, no traces, no receipts."""
        self.turns = turns
        self._settings = settings
        self.recall = HistoryRecall(turns, settings, embedding.name)
        self._unstored = UnstoredTurns(turns)
        self._indexer = TurnIndexer(turns, embedding, activity or Activity(), settings.max_recent_turns)
        self._retention = retention or Retention(turns, clock=clock)
        self._clock = clock

    async def find_branch(self, session_id: str, owner: str, parent_turn_id: str | None = UNSET) -> Branch:
        """Return the branch a new turn extends; UNSET means the latest completed turn, None a new root.

        Raises InvalidParentError when the parent is not a turn of this session.
        """
        tree = await self.turns.tree(session_id, owner)
        parent = tree.default_parent(self._clock()) if parent_turn_id == UNSET else parent_turn_id
        if parent is not None and parent not in tree.nodes:
            raise InvalidParentError("parent_turn_id: no turn of this session has this id.")
        return tree.branch(parent)

    async def add_conversation_turn(self, turn: Turn, vectors: TurnVectors | None = None) -> None:
        """Store the turn; once this returns, it survives a crash. A missing question vector is added later.

        Raises StoreUnavailableError. The turn is then kept in memory and stored as soon as the store is back;
        a turn that was only beginning is stored as interrupted, since nobody will answer it.
        """
        vectors = replace(vectors or TurnVectors(), sparse=await read_words(turn))
        try:
            await self.turns.put(turn, vectors)
        except (StoreUnavailableError, StoreRequestError):
            begins = turn.status is TurnStatus.RUNNING
            self._unstored.keep(replace(turn, status=TurnStatus.INTERRUPTED) if begins else turn, vectors)
            raise
        if vectors.question is None:
            self._indexer.later([turn])

    async def add_imported(self, turns: Sequence[Turn]) -> None:
        """Store imported turns, parents before their children. Raises StoreUnavailableError; the first
        batches may have been stored by then."""
        for part in batches(turns, IMPORT_BATCH):
            await self.turns.put_many([(turn, TurnVectors(sparse=await read_words(turn))) for turn in part])
            self._indexer.later(part)

    def after_turn(self, branch: Branch, turn: Turn) -> None:
        """Embed, in the background, the turn that the next one will push out of the recent history.

        `turn` was stored on `branch`."""
        if TurnNode.of(turn).is_history:
            before = max(self._settings.max_recent_turns, 1) - 1
            ids = [*_last_answered(branch, before), turn.turn_id]
            if len(ids) > before:
                self._indexer.leaving(ids[0])

    def keep_interrupted(self, turn: Turn) -> None:
        """Keep a turn that was begun but will not be answered; it is stored as soon as the store is back."""
        self._unstored.keep(replace(turn, status=TurnStatus.INTERRUPTED))

    async def store_pending(self, turn_id: str = "") -> list[Turn]:
        """Store the turns that could not be stored before, or only `turn_id`; return those stored now.

        Raises StoreUnavailableError.
        """
        if not self._unstored:
            return []
        stored = await self._unstored.store(turn_id)
        self._indexer.later(stored)
        return stored

    async def save_partial(self, turn_id: str, answer: str, thinking: str) -> None:
        """Store the partial answer of a running turn, so that it survives the end of this process.

        Raises StoreUnavailableError, StoreRequestError.
        """
        partial = {"assistant_response": answer, "thinking": thinking}
        await self.turns.set_payload(partial, [turn_id])

    async def save_tool_calls(self, turn_id: str, uses: Sequence[ToolUse]) -> None:
        """Store the tool calls before one begins, so that a crash leaves a record of what may have run.

        Raises StoreUnavailableError, StoreRequestError.
        """
        await self.turns.set_payload({"tool_calls": [asdict(use) for use in uses]}, [turn_id])

    def index_later(self, turns: Sequence[Turn]) -> None:
        """Embed stored turns in the background, oldest first; never commands or unfinished turns."""
        self._indexer.later(turns)

    async def get_recent_history(self, branch: Branch) -> list[Turn]:
        """Return the turns of `recent_ids`, without deleted or unreadable ones."""
        return await self.turns.get_many(self.recent_ids(branch))

    def recent_ids(self, branch: Branch) -> list[str]:
        """Return the ids of the branch's last MAX_RECENT_TURNS answered questions, oldest first."""
        return _last_answered(branch, self._settings.max_recent_turns)

    async def retrieve_relevant_history(
        self, query: Query, branch: Branch, recent: Sequence[Turn], owner: str
    ) -> list[Turn]:
        """Return earlier completed turns of this branch that the question is about, oldest first.

        Never a recent turn, a sibling or another session; of identical questions the newest stays.
        """
        return await self.recall.recall(query, branch, recent, owner)

    def build_context_messages(
        self,
        texts: PromptTexts,
        relevant: Sequence[Turn],
        recent: Sequence[Turn],
        candidates: Sequence[Candidate],
        question: str,
    ) -> list[Message]:
        """system → relevant history → recent history → knowledge context → question.

        For callers of earlier versions; unused here. A turn's own messages are fitted into its model's
        window first (api.turn.prompt).
        """
        history = History(relevant=relevant, recent=recent)
        return assemble(texts, history, candidates, question).messages

    async def delete_old_conversations(
        self, days: int, *, dry_run: bool = False, reason: Reason = "request"
    ) -> ExpiryReport:
        """Delete every turn older than `days` (UTC) or than its session's own limit, and leave a receipt;
        prompts and memories have their own limits.

        Running turns and held sessions stay. With dry_run only count. Raises ValueError if days < 1.
        """
        if dry_run:
            return await self._retention.preview(days, self._settings.memory_expire_days)
        return await self._expire(days, reason, confirmed=True)

    async def cleanup_expired_conversations(self, *, unattended: bool = False) -> ExpiryReport:
        """Run the nightly job: delete_old_conversations with CONVERSATION_EXPIRE_DAYS.

        Raises ConflictError, with nothing deleted, when the run is unattended and the clock is not trusted
        (core.operations.expiry.trusts_clock).
        """
        days = self._settings.conversation_expire_days
        return await self._expire(days, "schedule", confirmed=not unattended)

    async def _expire(self, days: int, reason: Reason, *, confirmed: bool) -> ExpiryReport:
        memory_days = self._settings.memory_expire_days
        report = await self._retention.expire(days, reason, confirmed=confirmed, memory_days=memory_days)
        # Only after `expire`: a clock that is not trusted must not delete prompts either.
        await self._retention.forget_prompts(self._settings.prompt_keep_days)
        await self.sweep_images(ABANDONED_IMAGES_S)
        return report

    async def sweep_images(self, min_age_s: float = 0) -> int:
        """Delete images that a crash left before their turn was stored; with other workers only old ones."""
        return await self._retention.sweep_images(min_age_s)

    async def recover_running(self, min_age_s: float = 0) -> list[Turn]:
        """At start, mark turns that a crash left running as interrupted. Returns the readable ones.

        With other workers on the same store, `min_age_s` is the longest an answer may take.
        """
        old = in_range("created_us", lte=self._clock() - int(min_age_s * 1_000_000))
        point_filter = Filter(must=[equals("status", TurnStatus.RUNNING.value), old])
        ids = [str(record.id) async for record in self.turns.scroll(point_filter, with_payload=["turn_id"])]
        if ids:
            await self.turns.set_payload({"status": TurnStatus.INTERRUPTED.value}, ids)
        return await self.turns.get_many(ids)

    async def index_missing(self, on_progress: Progress | None = None) -> int:
        """Embed turns that a crash or aborted import left without vectors, oldest first. Returns how many."""
        return await self._indexer.missing(on_progress)

    async def close(self) -> None:
        """Store what is still kept in memory, if possible, and wait briefly for the last turns' embedding.

        Whatever is missed is caught up at the next start."""
        with suppress(StoreUnavailableError):
            await self.store_pending()
        await self._indexer.close()


def _last_answered(branch: Branch, number: int) -> list[str]:
    answered = (node.turn_id for node in reversed(branch.nodes) if node.is_history)
    return [*islice(answered, number)][::-1]


# Turns that could not be written when they ended, kept until the store is back.


@dataclass(frozen=True, slots=True)
class Unstored:
    """`is_whole` is False if there was no room for the text: then only the interrupted status is kept."""

    turn: Turn
    vectors: TurnVectors
    size_bytes: int
    is_whole: bool = True


class UnstoredTurns:
    """Turns whose final write failed. The write that began each of them has reached the store, or may have:
    a turn missing from the store never began or has been erased since, so it is not written."""

    def __init__(self, turns: TurnStore, max_bytes: int = MAX_UNSTORED_BYTES) -> None:
        self._turns = turns
        self._max_bytes = max_bytes
        self._kept: dict[str, Unstored] = {}
        self._lock = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, turn: Turn, vectors: TurnVectors | None = None) -> None:
        """Keep the turn, replacing any earlier version of it."""
        self._kept.pop(turn.turn_id, None)
        size_bytes = len(to_json(to_payload(turn)))
        used = sum(each.size_bytes for each in self._kept.values())
        if used + size_bytes <= self._max_bytes:
            kept = Unstored(turn, vectors or TurnVectors(), size_bytes)
        else:
            cut = replace(turn, status=TurnStatus.INTERRUPTED)
            kept = Unstored(cut, TurnVectors(), 0, is_whole=False)
        self._kept[turn.turn_id] = kept
        log.warning("turn_kept_in_memory", turn_id=turn.turn_id, whole=kept.is_whole, kept=len(self._kept))

    async def store(self, turn_id: str = "") -> list[Turn]:
        """Write all turns, or only this one; return those stored now. Raises StoreUnavailableError."""
        stored = []
        async with self._lock:
            for each in list(self._kept.values()):
                if turn_id in ("", each.turn.turn_id):
                    if await self._write(each):
                        stored.append(each.turn)
                    if self._kept.get(each.turn.turn_id) is each:
                        del self._kept[each.turn.turn_id]
        return stored

    async def _write(self, unstored: Unstored) -> bool:
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
        except StoreRequestError as error:  # a retry would be refused, too
            log.exception("kept_turn_refused", turn_id=turn_id, reason=str(error))
            cut = {"status": TurnStatus.INTERRUPTED.value}
            await self._turns.set_payload(cut, [turn_id])
            return False
        log.info("kept_turn_stored", turn_id=turn_id, status=turn.status.value)
        return True
