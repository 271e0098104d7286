"""One run of expiry: old turns are found, and deleted in chunks with all that remembers them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from qdrant_client import models

from core.expiry import AgeLimits
from core.failpoints import failpoint
from core.turns import rfc3339
from services.retention.expired_turns import Found, OldTurn, OldTurns, find_expired
from services.retention.report import ExpiryReport
from services.retention.session_records import SessionRecords
from services.retention.turn_traces import ErasedTraces, TurnTraces
from services.turn_store import TurnStore

CHUNK = 500


class ExpiryRun:
    """Exactly the turns with created_us < now − days go; running ones and those of held sessions stay.

    A turn of an earlier version, without created_us, goes by its timestamp; when that names no zone, it
    goes once it is old in every zone. A turn whose time cannot be read is kept and counted. Children of
    deleted turns read as roots; no turn that stays is written. With `records`, sessions on hold are spared,
    those with a limit of their own go by that, and emptied ones leave the list; with `traces`, what else
    remembers an expired turn goes with it.
    """

    def __init__(
        self,
        turns: TurnStore,
        limits: AgeLimits,
        records: SessionRecords | None = None,
        traces: TurnTraces | None = None,
    ) -> None:
        """`limits` as they are without `records`. Raises ValueError if its days < 1."""
        self._turns = turns
        self._records = records
        self._traces = traces
        self._limits = limits
        self._cutoff_us = limits.cutoff_us
        self._found = Found()
        self._total_before = 0
        self._deleted = 0
        self._sessions_removed = 0
        self._erased = ErasedTraces()

    async def find(self) -> int:
        """How many turns would go. Nothing is changed. Raises StoreUnavailableError, as `delete` does."""
        self._limits = await self._limits_now()
        self._total_before = await self._turns.count()
        self._found = await find_expired(self._turns, self._limits)
        return self._found.sessions.total()

    async def delete(self) -> None:
        """What was found. A run that is cut is done to its end by the next one."""
        batches = self._found.batches.values()
        if self._traces is not None:
            await self._traces.erase_log([str(old.point) for batch in batches for old in batch.turns])
            await self._traces.expire_log(self._cutoff_us, self._limits.longer())
        for batch in batches:
            in_order = sorted(batch.turns, key=lambda old: old.session_id)
            for start in range(0, len(in_order), CHUNK):
                await self._delete_chunk(batch, in_order[start : start + CHUNK])
                failpoint("expiry.chunk")
                await asyncio.sleep(0)
        if self._records is not None:
            self._sessions_removed = await self._records.remove_empty(self._turns, self._limits)

    def so_far(self) -> ExpiryReport:
        """The report, but for what is counted afterwards."""
        return ExpiryReport(
            cutoff=rfc3339(self._cutoff_us),
            days=self._limits.days,
            dry_run=False,
            total_before=self._total_before,
            matched=self._found.sessions.total(),
            deleted=self._deleted,
            sessions=dict(self._found.sessions),
            unparsable=self._found.unparsable,
            unparsable_ids=self._found.unparsable_ids,
            held=self._found.held,
            sessions_removed=self._sessions_removed,
            summaries_removed=self._erased.summaries,
            memories_removed=self._erased.memories,
        )

    async def _limits_now(self, among: Sequence[str] | None = None) -> AgeLimits:
        if self._records is None:
            return self._limits
        return await self._records.limits(self._limits.now_us, self._limits.days, among)

    async def _delete_chunk(self, batch: OldTurns, chunk: Sequence[OldTurn]) -> None:
        """Holds and limits are read again; so is the turn's age, by the store: one that was begun again under
        its id is not old."""
        limits = await self._limits_now(sorted({old.session_id for old in chunk}))
        chunk = [old for old in chunk if _goes_still(old, batch, limits)]
        if not chunk:
            return
        if self._traces is not None:
            self._erased += await self._traces.erase_stored(_by_session(chunk))
            failpoint("expiry.traces")
        points = models.HasIdCondition(has_id=[old.point for old in chunk])
        before = await self._turns.count(models.Filter(must=[points]))
        await self._turns.delete_matching(batch.among(points))
        self._deleted += before - await self._turns.count(models.Filter(must=[points]))


async def expire_turns(
    turns: TurnStore,
    now_us: int,
    days: int,
    *,
    dry_run: bool,
    records: SessionRecords | None = None,
    traces: TurnTraces | None = None,
) -> ExpiryReport:
    """One ExpiryRun: nobody is asked, and no receipt is written. Raises ValueError if days < 1."""
    run = ExpiryRun(turns, AgeLimits(now_us, days), records, traces)
    await run.find()
    if not dry_run:
        await run.delete()
    return replace(run.so_far(), dry_run=dry_run, total_after=await turns.count())


def _goes_still(old: OldTurn, batch: OldTurns, limits: AgeLimits) -> bool:
    return old.session_id not in limits.held and limits.cutoff_of(old.session_id) >= batch.cutoff_us


def _by_session(chunk: Sequence[OldTurn]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for old in chunk:
        found.setdefault(old.session_id, []).append(str(old.point))
    return found
