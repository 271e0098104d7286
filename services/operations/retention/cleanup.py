"""Retention as other packages call it: one run at a time, a check of the clock, a receipt."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Literal

import structlog
from anyio import move_on_after

from core.dates import rfc3339
from core.errors import ConflictError, DiskFullError, WenmaiError
from core.operations.expiry import DAY_US, GUARDED_TURNS, AgeLimits, ExpiryReport, still_since, trusts_clock
from core.operations.reports import Receipt, ReceiptKind
from core.text import counted
from services.conversation.turns import TurnStore
from services.operations.retention.expiry import ExpiryRun, SessionRecords
from services.operations.retention.traces import TurnTraces
from services.store.clock import Clock, ClockMark, utc_now_us
from services.store.dialect import AnyPointId, Filter, UnknownPointError
from services.store.points import batches, has_id, in_range, is_empty
from services.store.receipts import ReceiptStore
from services.store.space import StoreSpace, deleting

log = structlog.get_logger()

Reason = Literal["schedule", "request", "command"]

RECEIPTS_READ = 100
MAX_MOVED_US = DAY_US  # between two clean-ups; a person must confirm a clock that was put forward further
NOT_FINISHED = "NotFinished"  # the error of a run that is still going, or was killed
CUT_OFF_S = 2.0  # for the receipt of a run that a shutdown cuts off


class Retention:
    """`space` is None where the engine manages its own files; without `receipts` none is written."""

    def __init__(
        self,
        turns: TurnStore,
        records: SessionRecords | None = None,
        traces: TurnTraces | None = None,
        receipts: ReceiptStore | None = None,
        space: StoreSpace | None = None,
        clock: Clock = utc_now_us,
        mark: Callable[[], ClockMark] = ClockMark.now,
        back_up: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        """`back_up` writes an archive before anything is deleted, and returns its name."""
        self._turns = turns
        self._records = records
        self._traces = traces
        self._receipts = receipts
        self._space = space
        self._clock = clock
        self._mark = mark
        self._back_up = back_up
        self._one_at_a_time = asyncio.Lock()

    async def preview(self, days: int, memory_days: int | None = None) -> ExpiryReport:
        """Report what a run would delete, and why it would be refused. Raises ValueError if days < 1."""
        now_us = self._clock()
        run = self._run(now_us, days)
        matched = await run.find()
        refusal = await self._doubt(now_us, days, matched)
        size = await self._space.size_bytes() if self._space else None
        total = await self._turns.count()
        aged = await self._count_aged(memory_days)
        report = replace(run.so_far(), dry_run=True, refusal=refusal, total_after=total)
        return replace(report, memories_matched=aged, bytes_before=size, bytes_after=size)

    async def expire(
        self, days: int, reason: Reason, *, confirmed: bool = False, memory_days: int | None = None
    ) -> ExpiryReport:
        """Delete what is older, and memories neither learned nor used for `memory_days`; reclaim the space,
        and write a receipt. The receipt exists from the first deletion on, so that a killed run leaves one,
        too, which the next run completes.

        Raises ConflictError, deleting nothing, if the clock is not trusted (it was put forward since the last
        run, or core.operations.expiry.trusts_clock is false) and the run is not `confirmed`. Raises
        ValueError if days < 1, StoreUnavailableError.
        """
        began_us = self._clock()
        run = self._run(began_us, days)
        note = partial(self._note, str(uuid.uuid4()), began_us, reason)
        async with self._one_at_a_time, self._receipt_of_failure(run, note):
            await self._count_killed()
            size = await self._space.size_bytes() if self._space else None
            matched, aged = await run.find(), await self._count_aged(memory_days)
            doubt = await self._doubt(began_us, days, matched)
            if doubt and not confirmed:
                raise ConflictError(doubt)
            backup = await self._back_up() if (matched or aged) and self._back_up else ""
            with _reserve(matched or aged):
                await run.delete(lambda points: note(run.so_far(), error=NOT_FINISHED, under_way=points))
                forgotten = await self._forget_memories(memory_days)
                after, details = await self._reclaim()
            total = await self._turns.count()
        report = replace(run.so_far(), total_after=total, bytes_before=size, bytes_after=after)
        forgotten += report.memories_removed
        report = replace(report, memories_matched=aged, memories_removed=forgotten)
        log.info("cleanup_finished", reason=reason, matched=report.matched, deleted=report.deleted)
        mark = self._mark()
        details |= {"backup": backup} if backup else {}
        details |= ({"clock": str(mark)} if mark.boot else {}) | ({"confirmed": "yes"} if doubt else {})
        return replace(report, receipt_id=await note(report, details))

    async def forget_prompts(self, days: int) -> int:
        """Delete prompts older than `days`, except those of held sessions. Returns the number of turns."""
        now_us = self._clock()
        limits = await self._records.limits(now_us, days) if self._records else None
        return await forget_old_prompts(self._turns, now_us, days, limits.held if limits else ())

    async def sweep_images(self, min_age_s: float) -> int:
        """Delete images that a crash left before their turn was stored. Returns the number of turns."""
        return await self._traces.sweep_images(self._turns, min_age_s) if self._traces else 0

    async def _count_aged(self, days: int | None) -> int:
        """Count the memories neither learned nor used for `days`; with None there are none."""
        if days is None or self._traces is None:
            return 0
        return await self._traces.count_aged_memories(self._clock() - days * DAY_US)

    async def _forget_memories(self, days: int | None) -> int:
        """Delete the memories neither learned nor used for `days`; None keeps all. Returns how many."""
        if days is None or self._traces is None:
            return 0
        return await self._traces.expire_memories(self._clock() - days * DAY_US)

    def _run(self, now_us: int, days: int) -> ExpiryRun:
        return ExpiryRun(self._turns, AgeLimits(now_us, days), self._records, self._traces)

    async def _doubt(self, now_us: int, days: int, matched: int) -> str:
        """Return why the clock is not trusted, or "" if it is."""
        if matched > GUARDED_TURNS and self._records is not None and not await self._records.any():
            return (
                f"{matched} turns would be deleted, but no session has a record, so holds are unknown: is "
                "COLLECTION_SUFFIX right? If it is, clean up by hand once."
            )
        last_run = await self._last_run(now_us)
        last_run_us = last_run.began_us if last_run else None
        before = ClockMark.read(last_run.details.get("clock", "")) if last_run else None
        if (moved_us := self._mark().moved_us(before)) > MAX_MOVED_US:
            return (
                f"The clock of this machine was moved forward by {moved_us / DAY_US:.1f} days since the last "
                f"clean-up; it says {rfc3339(now_us)[:10]}, and {counted(matched, 'turn')} would be deleted. "
                "If the date is right, clean up by hand once."
            )
        began = Filter(must=[in_range("created_us", gte=still_since(now_us, days), lte=now_us)])
        count = await self._turns.count(began) if last_run_us is None else 0
        if trusts_clock(now_us, days, matched, last_run_us, count):
            return ""
        last = f"the last clean-up was on {rfc3339(last_run_us)[:10]}" if last_run_us else "no turn is newer"
        return (
            f"By the clock of this machine it is {rfc3339(now_us)[:10]}; {last}, longer ago than the limit "
            f"of {counted(days, 'day')}, and {counted(matched, 'turn')} would be deleted at once. If the "
            "date is right, clean up by hand once."
        )

    async def _last_run(self, now_us: int) -> Receipt | None:
        """Return the last run that finished; one later than now comes from a wrong clock."""
        if self._receipts is None:
            return None
        receipts = await self._receipts.newest(RECEIPTS_READ, ReceiptKind.EXPIRY)
        done = [each for each in receipts if not each.error and each.began_us <= now_us]
        return max(done, key=lambda each: each.began_us, default=None)

    async def _reclaim(self) -> tuple[int | None, dict[str, str]]:
        """Reclaim space and return the store's new size. A failure is only noted: the turns are deleted."""
        if self._space is None:
            return None, {}
        try:
            await self._space.reclaim()
            return await self._space.size_bytes(), {}
        except (WenmaiError, OSError) as error:
            log.warning("space_not_reclaimed", error=type(error).__name__, reason=str(error))
            return None, {"space": f"not given back: {type(error).__name__}"}

    @asynccontextmanager
    async def _receipt_of_failure(
        self, run: ExpiryRun, note: Callable[..., Awaitable[str]]
    ) -> AsyncIterator[None]:
        """Leave a receipt of what was done when a run fails half-way, if the store still accepts one. A
        refused run did nothing, and must not count as the last clean-up."""
        try:
            yield
        except ConflictError:
            raise
        except (WenmaiError, OSError, asyncio.CancelledError) as error:
            with move_on_after(CUT_OFF_S, shield=True):
                try:
                    await note(run.so_far(), error=type(error).__name__)
                except WenmaiError as lost:
                    log.warning("receipt_not_written", error=type(lost).__name__)
            raise

    async def _count_killed(self) -> None:
        """Complete the receipts of killed runs: their pending turns are deleted, or will be by this run."""
        if self._receipts is None:
            return
        for receipt, points in await self._receipts.unfinished():
            left = await self._turns.count(Filter(must=[has_id(points)]))
            counts = receipt.counts | {"turns": receipt.counts["turns"] + len(points) - left}
            with deleting():
                await self._receipts.add(replace(receipt, counts=counts))

    async def _note(
        self,
        receipt_id: str,
        began_us: int,
        reason: Reason,
        report: ExpiryReport,
        details: Mapping[str, str] = MappingProxyType({}),
        error: str = "",
        under_way: Sequence[AnyPointId] = (),
    ) -> str:
        """Write the receipt and return its id: "" without receipts, or on a full disk if nothing matched."""
        if self._receipts is None:
            return ""
        receipt = Receipt(
            receipt_id=receipt_id,
            kind=ReceiptKind.EXPIRY,
            reason=reason,
            began_us=began_us,
            ended_us=self._clock(),
            counts=_counts(report),
            bytes_before=report.bytes_before,
            bytes_after=report.bytes_after,
            details={"cutoff": report.cutoff, "days": str(report.days), **details},
            error=error,
        )
        try:
            with _reserve(report.matched or report.memories_matched):
                return (await self._receipts.add(receipt, under_way)).receipt_id
        except DiskFullError:
            if report.matched or report.memories_matched:
                raise
            log.warning("receipt_not_written", reason="the disk is full, and nothing was deleted")
            return ""


def _reserve(matched: int) -> AbstractContextManager[None]:
    """Let a run that deletes something use the disk space reserved for deletions; others must leave it."""
    return deleting() if matched else nullcontext()


def _counts(report: ExpiryReport) -> dict[str, int]:
    return {
        "turns": report.deleted,
        "sessions": len(report.sessions),
        "sessions_removed": report.sessions_removed,
        "memories": report.memories_removed,
        "summaries": report.summaries_removed,
        "held": report.held,
        "unparsable": report.unparsable,
    }


# Prompt manifests have a retention of their own, shorter or longer than the turns'.


async def forget_old_prompts(
    turns: TurnStore, now_us: int, days: int, held: Collection[str] = frozenset()
) -> int:
    """Remove the prompt manifest from every turn older than `days` (UTC). Returns the number of turns.

    The turns themselves stay, and `held` sessions keep everything. Raises StoreUnavailableError.
    """
    old = in_range("created_us", lt=now_us - days * DAY_US)
    point_filter = Filter(must=[old], must_not=[is_empty("prompt")])
    ids = [
        str(record.id)
        async for record in turns.scroll(point_filter, with_payload=["session_id"])
        if (record.payload or {}).get("session_id") not in held
    ]
    for batch in batches(ids):
        with suppress(UnknownPointError):  # erased meanwhile, with its prompt; the others are written
            await turns.set_payload({"prompt": None}, batch)
    return len(ids)
