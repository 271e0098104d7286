"""Repair of the stored conversations: reads every session, plans in core.operations.backfill, writes what
differs.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from core.errors import WenmaiError
from services.conversation.turns import TurnStore
from services.models.embedding import EmbeddingService
from services.operations.repair.importing import CollectionImport, ImportPlan, ImportReport
from services.operations.repair.plan import BackfillOptions, BackfillPlan, BackfillReport, Planner
from services.operations.repair.receipts import RepairReceipts
from services.operations.repair.undo import BackfillUndo, UndoReport
from services.operations.repair.undo_file import UndoFile, read_undo_file
from services.operations.repair.vectors import MissingVectors
from services.operations.repair.writing import BackfillWriter, Progress
from services.store.clock import Clock, utc_now_us
from services.store.dialect import VectorStore
from services.store.receipts import ReceiptStore


class Backfill:
    def __init__(
        self,
        turns: TurnStore,
        store: VectorStore,
        collection: str,
        session_collection: str = "sessions",
        embedding: EmbeddingService | None = None,
        receipts: ReceiptStore | None = None,
        *,
        clock: Clock = utc_now_us,
    ) -> None:
        """`collection` holds the turns, and is the one that `turns` reads. Without `embedding` vectors
        are not looked at; with `receipts` each run that writes leaves one."""
        self._turns = turns
        self._store = store
        self._collection = collection
        self._session_collection = session_collection
        self._embedding = embedding
        self._receipts = RepairReceipts(receipts, clock)
        self._vectors = MissingVectors(store, collection)

    @property
    def collection(self) -> str:
        return self._collection

    async def plan(
        self,
        assume_timezone: str = "UTC",
        owner: str = "local",
        session_id: str | None = None,
        *,
        drop_duplicates: bool = False,
    ) -> BackfillPlan:
        """Read every session, or one, and write nothing. The arguments are those of BackfillOptions.

        Raises BadRequestError when there is no such time zone, StoreUnavailableError.
        """
        options = BackfillOptions(assume_timezone, owner, session_id, drop_duplicates)
        plan = await Planner(self._store, self._collection, self._session_collection).plan(options)
        foreign = await self._vectors.are_foreign(self._embedding)
        looked_at = self._embedding is not None and not foreign
        lacking = await self._vectors.lacking(session_id) if looked_at else {}
        leaving = set(plan.removed)
        staying = tuple(point for point in lacking if point not in leaving)
        return replace(plan, lacking=staying, foreign_vectors=foreign)

    async def apply(
        self,
        plan: BackfillPlan,
        progress: Progress | None = None,
        *,
        undo: UndoFile | None = None,
        embed: bool = True,
        reason: str = "command",
    ) -> BackfillReport:
        """Write the plan. What is written is complete after every turn, so a run that is cut is run again.

        Vectors that are there are only read, and written where a point moves to its turn id; with `embed`
        those that are lacking are made. `undo` is written first. Raises StoreUnavailableError,
        EmbeddingUnavailableError.
        """
        receipt, told = self._receipts.begin(reason), progress or _nobody
        report = replace(plan.report(), dry_run=False)
        try:
            report = await self._write(plan, report, told, undo)
            if embed and plan.lacking and self._embedding is not None:
                made = await self._vectors.fill(self._embedding, told, plan.options.session_id)
                report = replace(report, embedded=made)
        except WenmaiError as error:
            await receipt.of_repair(replace(report, undo_file=_name(undo)), error.code)
            raise
        await receipt.of_repair(report)
        return report

    async def undo(
        self, path: Path, progress: Progress | None = None, *, dry_run: bool = True, reason: str = "command"
    ) -> UndoReport:
        """Put back what a run changed; turns that changed since are refused and stay as they are.

        Raises BadRequestError when it is no undo file of these conversations, StoreUnavailableError.
        """
        receipt = self._receipts.begin(reason)
        job = BackfillUndo(self._store, self._collection, dry_run=dry_run)
        try:
            undo = await asyncio.to_thread(read_undo_file, path)
            report = await job.run(undo, progress or _nobody)
        finally:
            self._turns.forget_trees()
        await receipt.of_undo(report, path.name)
        return report

    async def plan_import(self, source: str, options: BackfillOptions) -> ImportPlan:
        """What of an old collection would be copied. Raises as CollectionImport.plan."""
        return await self._importing().plan(source, options)

    async def apply_import(
        self,
        plan: ImportPlan,
        progress: Progress | None = None,
        *,
        undo: UndoFile | None = None,
        embed: bool = True,
        reason: str = "command",
    ) -> ImportReport:
        """Raises ImportIncompleteError, StoreUnavailableError, EmbeddingUnavailableError."""
        receipt = self._receipts.begin(reason)
        try:
            report = await self._importing().apply(plan, self._writer(undo), progress or _nobody, embed=embed)
        finally:
            self._turns.forget_trees()
        report = replace(report, undo_file=_name(undo))
        await receipt.of_import(report)
        return report

    async def _write(
        self, plan: BackfillPlan, report: BackfillReport, told: Progress, undo: UndoFile | None
    ) -> BackfillReport:
        writer = self._writer(undo)
        try:
            await writer.change(plan.changes, told)
            await writer.remove(plan.removed, told)
            created = await writer.create_sessions(plan.new_sessions)
        finally:
            self._turns.forget_trees()
        return replace(
            report,
            sessions_created=created,
            gone=writer.written.gone,
            skipped=writer.written.skipped,
            undo_file=_name(undo),
        )

    def _writer(self, undo: UndoFile | None) -> BackfillWriter:
        return BackfillWriter(self._store, self._collection, self._session_collection, undo)

    def _importing(self) -> CollectionImport:
        return CollectionImport(self._store, self._collection, self._session_collection, self._embedding)


def _name(undo: UndoFile | None) -> str:
    return undo.name if undo else ""


def _nobody(done: int) -> None:
    """Nobody is told."""
