"""Summaries: generated in the background, each stored with the last turn it covers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

import structlog
from anyio import CancelScope, to_thread
from cachetools import LRUCache, TTLCache
from pydantic import TypeAdapter

from config.settings import ConversationSettings
from core.citing.citations import without_marks
from core.conversation.sessions import TurnNode
from core.conversation.summaries import (
    AppliedSummary,
    SummarySource,
    cut_at_sentence,
    extract,
    in_steps,
    nearest_applicable,
    summaries_about,
    task_text,
)
from core.conversation.turns import Summary, Turn
from core.errors import WenmaiError
from core.prompt.budget import estimate_tokens, shares_of
from core.prompt.fence import new_code, restored
from core.prompt.messages import Message, Part, Role
from core.text import is_mostly_chinese
from services.conversation.turns import TurnStore
from services.llm_service import ModelEntry
from services.store.clock import Clock, utc_now_us
from services.store.dialect import Filter, Record, UnknownPointError
from services.store.points import batches, equals, has_id, is_empty, read_or_none

log = structlog.get_logger()

READ_FIRST = 32  # summaries in the first read; together they cover far more than an ordinary conversation
MAX_KNOWN = 2_000  # summaries without their texts: some 8 MB
MAX_FORGOTTEN = 10_000
MAX_SIZES = 50_000  # about 8 MB
FORGOTTEN_S = 60.0  # how long a turn may still exist after its summaries were removed
_SUMMARY = TypeAdapter(Summary)
_NO_SUMMARY = is_empty("summary_start")


class SummaryRecords:
    def __init__(self, turns: TurnStore) -> None:
        self._turns = turns
        # Only to follow the chain before the nearest summary, which is always read: the branch reveals a
        # summary that was regenerated or removed meanwhile.
        self._known: LRUCache[str, Summary] = LRUCache(MAX_KNOWN)
        self._made: LRUCache[str, bool] = LRUCache(MAX_KNOWN)  # nodes read earlier do not show these yet
        self._forgotten: TTLCache[str, bool] = TTLCache(MAX_FORGOTTEN, FORGOTTEN_S)

    async def applicable(self, nodes: Sequence[TurnNode]) -> AppliedSummary | None:
        """Return the nearest summary that applies to a branch (root → leaf), in one round trip, at most two.

        Raises StoreUnavailableError.
        """
        made = frozenset(self._made)
        holders = [node.turn_id for node in nodes if node.has_summary or node.turn_id in made]
        if not holders:
            return None
        branch = [node.turn_id for node in nodes]
        known = {turn_id: self._known[turn_id] for turn_id in holders[:-1] if turn_id in self._known}
        asked = [turn_id for turn_id in holders[-READ_FIRST:-1] if turn_id not in known] + holders[-1:]
        fresh = await self._load(asked)
        applied = nearest_applicable(branch, {**known, **fresh})
        if (applied is not None and applied.turn_id == holders[-1]) or len(asked) == len(holders):
            return applied
        return nearest_applicable(branch, await self._load(holders))

    async def of_session(self, session_id: str, owner: str | None) -> dict[str, Summary | None]:
        """Return every summary of the session by the turn it is stored with; None for an unreadable one."""
        conditions = [equals("session_id", session_id)]
        if owner is not None:
            conditions.append(equals("owner", owner))
        return await self._read(Filter(must=[*conditions], must_not=[_NO_SUMMARY]))

    async def sources(self, turn_ids: Sequence[str]) -> list[SummarySource | None]:
        """Return the texts of the turns, in order; None for a deleted or unreadable one."""
        by_id: dict[str, SummarySource] = {}
        fields = ["user_query", "assistant_response", "context_docs"]
        async for record in self._turns.scroll(_among(turn_ids), with_payload=fields):
            payload = record.payload or {}
            question, answer = payload.get("user_query"), payload.get("assistant_response")
            if isinstance(question, str) and isinstance(answer, str):
                shown = payload.get("context_docs")
                plain = without_marks(answer, len(shown) if isinstance(shown, list) else 0)
                by_id[str(record.id)] = SummarySource(str(record.id), question, plain)
        return [by_id.get(turn_id) for turn_id in turn_ids]

    async def keep(self, turn_id: str, summary: Summary, covered: Collection[str]) -> bool:
        """Store the summary. Returns False, and removes it, if a turn it speaks of was deleted meanwhile.

        The check follows the write: erasure looks for summaries after deleting the turns, so one of the two
        always sees the other.
        """
        self._known.pop(turn_id, None)
        await self._turns.set_summary(summary, [turn_id])
        self._made[turn_id] = True
        speaks_of = [*covered, *summary.covers]
        if not any(each in self._forgotten for each in speaks_of) and await self._all_exist(speaks_of):
            return True
        await self.remove([turn_id])
        return False

    async def forget(self, session_id: str, owner: str | None, turn_ids: Collection[str]) -> int:
        """Remove every summary of the session that speaks of one of the turns. Returns how many."""
        self._forgotten.update(dict.fromkeys(turn_ids, True))
        holders = sorted(summaries_about(turn_ids, await self.of_session(session_id, owner)))
        await self.remove(holders)
        return len(holders)

    async def remove(self, turn_ids: Sequence[str]) -> None:
        """Remove the summaries stored with these turns; deleted turns are skipped."""
        holders = [str(record.id) async for record in self._each(turn_ids)]
        for turn_id in turn_ids:
            self._known.pop(turn_id, None)
            self._made.pop(turn_id, None)
        for chunk in batches(holders):
            await self._turns.set_summary(None, chunk)

    async def _each(self, turn_ids: Sequence[str]) -> AsyncIterator[Record]:
        for chunk in batches(turn_ids):
            async for record in self._turns.scroll(_among(chunk), with_payload=["turn_id"]):
                yield record

    async def _all_exist(self, turn_ids: Sequence[str]) -> bool:
        expected = frozenset(turn_ids)
        existing = sum([await self._turns.count(_among(chunk)) for chunk in batches(sorted(expected))])
        return existing == len(expected)

    async def _load(self, turn_ids: Sequence[str]) -> dict[str, Summary]:
        if not turn_ids:
            return {}
        by_turn = await self._read(_among(turn_ids))
        held = {turn_id: summary for turn_id, summary in by_turn.items() if summary is not None}
        self._known.update({turn_id: replace(summary, text="") for turn_id, summary in held.items()})
        return held

    async def _read(self, point_filter: Filter) -> dict[str, Summary | None]:
        return {
            str(record.id): _summary(record)
            async for record in self._turns.scroll(point_filter, with_payload=["summary"])
        }


def _summary(record: Record) -> Summary | None:
    stored = (record.payload or {}).get("summary")
    return read_or_none(_SUMMARY, stored, "summary_unreadable", turn_id=str(record.id))


def _among(turn_ids: Sequence[str]) -> Filter:
    return Filter(must=[has_id(turn_ids)])


# Rewritten questions of stored turns: each was derived from earlier turns and is removed with any of them.


_NOT_REWORDED = is_empty("rewritten_question")


class Rewordings:
    def __init__(self, turns: TurnStore) -> None:
        self._turns = turns

    async def forget(self, session_id: str, turn_ids: Collection[str]) -> int:
        """Remove every rewritten question of the session that was derived from one of the turns.

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
            with suppress(UnknownPointError):  # one was deleted meanwhile; the others are written
                await self._turns.set_payload({"rewritten_question": None}, batch)
        return len(holders)


def _made_of(payload: Mapping[str, Any], erased: Collection[str]) -> bool:
    """Whether it may have been derived from an erased turn: without recorded sources, from any turn."""
    rewritten = payload.get("rewritten_question")
    turn_ids = rewritten.get("turn_ids") if isinstance(rewritten, dict) else None
    if not isinstance(turn_ids, list) or not turn_ids:
        return True
    return any(turn_id in erased for turn_id in turn_ids)


# When the older part of a branch grows long, it is summarised in the background.

STEP_TOKENS = 6_000  # of turns, sent to the model in one call
OTHER_TOKENS = 100  # the other fences, and the chat template
SUMMARY_TOKENS = 400  # at most: names, figures and decisions of some thirty turns, and one call's wait
FENCE_TOKENS = 80  # around a summary in a prompt: its fence and label, and the lines on the date
MIN_SUMMARY_TOKENS = 30  # a sentence or two; a shorter summary is not worth generating
MIN_STEP_TOKENS = 200  # however small the model's window
MAX_STEPS = 4  # calls after one turn; the rest waits for the next turn
READ_AT_ONCE = 200  # turns
MAX_CONCURRENT = 2  # summaries at a time: people waiting for answers go first
CLOSE_S = 2.0


@dataclass(frozen=True, slots=True)
class _Job:
    task: asyncio.Task[None]
    scope: CancelScope


@dataclass(frozen=True, slots=True)
class _Work:
    """The input of one job: the branch's current summary and the turns it does not cover."""

    session_id: str
    before: AppliedSummary | None
    start: str
    turns: tuple[SummarySource, ...]


class SummaryService:
    """Runs one job at a time per session. `model` returns a model by id, `prompt` the instruction."""

    def __init__(
        self,
        turns: TurnStore,
        model: Callable[[str], ModelEntry],
        settings: ConversationSettings,
        prompt: Callable[[Literal["zh", "en"]], str],
        clock: Clock = utc_now_us,
        max_tokens: int = SUMMARY_TOKENS,
    ) -> None:
        self._records = SummaryRecords(turns)
        self._model = model
        self._settings = settings
        self._prompt = prompt
        self._clock = clock
        self._max_tokens = max_tokens
        self._share = shares_of(knowledge=settings.knowledge_share, answer=settings.answer_share).summary
        self._jobs: dict[str, _Job] = {}
        self._sizes: LRUCache[str, int] = LRUCache(MAX_SIZES)  # in tokens, of turns already read
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)

    async def applicable(self, nodes: Sequence[TurnNode]) -> AppliedSummary | None:
        """Return the summary for a branch (root → leaf); None if none applies or compression is off.

        Never one that covers a recent turn: after a fork, the latest turns are still sent in full.
        Raises StoreUnavailableError.
        """
        if not self._settings.compress_after_tokens:
            return None
        return await self._records.applicable(self._older(nodes))

    def after_turn(self, nodes: Sequence[TurnNode], turn: Turn) -> None:
        """Check in the background whether the branch (root → parent) that ends in `turn` has grown long."""
        self._sizes[turn.turn_id] = estimate_tokens(turn.question) + estimate_tokens(turn.answer)
        older = self._older((*nodes, TurnNode.of(turn)))
        if (
            not any(node.is_history for node in older)
            or turn.session_id in self._jobs
            or not self._settings.compress_after_tokens
        ):
            return
        scope = CancelScope()
        task = asyncio.create_task(self._compress(turn, nodes, older, scope))
        self._jobs[turn.session_id] = _Job(task, scope)
        task.add_done_callback(lambda ended: self._ended(turn.session_id, ended))

    async def forget(self, session_id: str, owner: str | None, turn_ids: Collection[str]) -> int:
        """Remove every summary made from one of these turns, directly or through an earlier summary.

        Call it after the turns are erased or expired, and before a turn runs again under its id.
        `owner` None means any owner. Returns how many. Raises StoreUnavailableError.
        """
        await _cancel([job for job in [self._jobs.get(session_id)] if job is not None])
        for turn_id in turn_ids:
            self._sizes.pop(turn_id, None)
        return await self._records.forget(session_id, owner, turn_ids)

    async def idle(self) -> None:
        """Return once no summary is being generated."""
        while self._jobs:
            await asyncio.wait([job.task for job in self._jobs.values()])

    async def close(self) -> None:
        """Wait briefly for running jobs; those cut off are redone after a later turn."""
        jobs = list(self._jobs.values())
        if jobs:
            await asyncio.wait([job.task for job in jobs], timeout=CLOSE_S)
            await _cancel(jobs)

    def _ended(self, session_id: str, task: asyncio.Task[None]) -> None:
        self._jobs.pop(session_id, None)
        crash = None if task.cancelled() else task.exception()
        if crash is not None:  # a third-party model class may raise anything
            log.error("summary_crashed", session_id=session_id, exc_info=crash)

    def _older(self, nodes: Sequence[TurnNode]) -> Sequence[TurnNode]:
        """Return the nodes before the turns that the next prompt repeats verbatim. Scans from the end, since
        a branch may be long."""
        most = self._settings.max_recent_turns
        answered = (at for at in range(len(nodes) - 1, -1, -1) if nodes[at].is_history)
        return nodes[: next(islice(answered, most - 1, None), 0)] if most else nodes

    async def _compress(
        self, turn: Turn, nodes: Sequence[TurnNode], older: Sequence[TurnNode], scope: CancelScope
    ) -> None:
        with scope:
            try:
                async with self._slots:
                    model = self._model(self._settings.summary_model_id)
                    work = await self._work(turn.session_id, nodes, older)
                    if work is not None:
                        limit = self._limit(self._model(turn.model_id))
                        await self._summarise(work, model, limit)
            except WenmaiError as error:  # the branch's prompts stay as they are; the next turn tries again
                log.warning("summary_failed", session_id=turn.session_id, error=type(error).__name__)

    async def _work(
        self, session_id: str, nodes: Sequence[TurnNode], older: Sequence[TurnNode]
    ) -> _Work | None:
        """Return None if there is not enough to summarise."""
        before = await self._records.applicable(nodes)
        start = _index_after(before.turn_id, nodes) if before else 0
        turns = await self._uncovered([node.turn_id for node in older[start:] if node.is_history])
        if not turns:
            return None
        return _Work(session_id, before, before.start if before else turns[0].turn_id, tuple(turns))

    async def _uncovered(self, turn_ids: Sequence[str]) -> list[SummarySource]:
        """Return the turns with their texts, as many as this job can take; none if they are still too few."""
        least, most = self._settings.compress_after_tokens, MAX_STEPS * STEP_TOKENS
        if sum(self._sizes.get(turn_id, least + 1) for turn_id in turn_ids) <= least:
            return []
        turns: list[SummarySource] = []
        tokens = 0
        for batch in batches(turn_ids, READ_AT_ONCE):
            read = await self._records.sources(batch)
            sources = [turn for turn in read if turn is not None]
            if len(sources) < len(read):
                return []  # a turn was deleted: the branch has changed
            turns += [turn for turn in sources if turn.answer.strip()]
            sizes = [estimate_tokens(turn.question) + estimate_tokens(turn.answer) for turn in sources]
            self._sizes.update(zip(batch, sizes, strict=True))
            tokens += sum(sizes)
            if tokens > max(least, most):
                break
        return turns if tokens > least else []

    def _limit(self, model: ModelEntry) -> int:
        """Return the most tokens a summary may have to fit into the prompts of the model that reads it."""
        share = int(self._share * (model.context_window - model.max_tokens))
        return max(MIN_SUMMARY_TOKENS, min(self._max_tokens, share * 3 // 4 - FENCE_TOKENS))

    async def _summarise(self, work: _Work, model: ModelEntry, limit: int) -> None:
        """Summarise in steps, each from the previous summary, each stored with the last turn it covers."""
        text = work.before.text if work.before else ""
        previous = work.before.turn_id if work.before else None
        covered = set(work.before.covered) if work.before else set[str]()
        language: Literal["zh", "en"] = _language(work.turns)
        groups = in_steps(work.turns, self._step_tokens(model, language), model.count_tokens)
        for _, group in zip(range(MAX_STEPS), groups, strict=False):
            text = await self._text(text, group, model, language, limit)
            if not text:
                log.warning("summary_failed", session_id=work.session_id, error="empty")
                return
            ids = tuple(turn.turn_id for turn in group)
            tokens = model.count_tokens(text)
            summary = Summary(text, work.start, ids, previous, model.model_id, self._clock(), tokens)
            with CancelScope(shield=True):  # whoever cancels this must see what was written
                stored = await self._records.keep(ids[-1], summary, covered)
            if not stored:
                log.info("summary_dropped", session_id=work.session_id, reason="a turn is gone")
                return
            log.info("summary_made", session_id=work.session_id, turns=len(ids), tokens=tokens)
            previous, covered = ids[-1], covered.union(ids)

    async def _text(
        self,
        previous: str,
        turns: Sequence[SummarySource],
        model: ModelEntry,
        language: Literal["zh", "en"],
        limit: int,
    ) -> str:
        count = model.count_tokens
        if not model.generative:
            return await to_thread.run_sync(extract, previous, turns, limit, count)
        length = f"{limit} 字" if language == "zh" else f"{limit * 2 // 3} words"
        messages = [
            Message(Role.SYSTEM, self._prompt(language), Part.SYSTEM),
            Message(Role.USER, task_text(previous, turns, length, new_code()), Part.QUESTION),
        ]
        return cut_at_sentence(restored(await model.reply(messages)), limit, count)

    def _step_tokens(self, model: ModelEntry, language: Literal["zh", "en"]) -> int:
        """Return the part of the model's window left for turns beside instruction and summary so far."""
        fixed = model.count_tokens(self._prompt(language)) + self._max_tokens
        room = model.context_window - model.max_tokens - fixed - OTHER_TOKENS
        return max(MIN_STEP_TOKENS, min(STEP_TOKENS, room))


def _index_after(turn_id: str, nodes: Sequence[TurnNode]) -> int:
    """Return the index after the turn's. It is usually near the end, so the search starts there."""
    return next(at for at in range(len(nodes), 0, -1) if nodes[at - 1].turn_id == turn_id)


def _language(turns: Sequence[SummarySource]) -> Literal["zh", "en"]:
    """Return the conversation's language, judged by its questions."""
    return "zh" if is_mostly_chinese("\n".join(turn.question for turn in turns)) else "en"


async def _cancel(jobs: Sequence[_Job]) -> None:
    for job in jobs:
        job.scope.cancel()
    if jobs:
        await asyncio.wait([job.task for job in jobs])
