"""Runs a repair of stored conversations: reads every session, plans in core.operations.backfill, and writes
the differences.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from core.errors import DiskFullError, StoreUnavailableError, UnavailableError, WenmaiError
from core.operations.backfill_turns import (
    BackfillOptions,
    BackfillPlan,
    BackfillReport,
    ImportPlan,
    ImportReport,
)
from core.operations.reports import Receipt, ReceiptKind
from services.conversation.turns import TurnStore
from services.models.embedding import EmbeddingService
from services.operations.repair.documents import UnsearchedDocuments
from services.operations.repair.importing import CollectionImport
from services.operations.repair.plan import Planner
from services.operations.repair.stored import BackfillWriter, Progress
from services.operations.repair.vectors import MissingVectors
from services.store.clock import utc_now_us
from services.store.dialect import VectorStore
from services.store.receipts import ReceiptStore

BackUp = Callable[[str], Awaitable[str]]
"""Takes the reason, writes the whole store into an archive, and returns the archive's name."""


class Backfill:
    def __init__(
        self,
        turns: TurnStore,
        store: VectorStore,
        collection: str,
        session_collection: str,
        embedding: EmbeddingService | None = None,
        receipts: ReceiptStore | None = None,
        back_up: BackUp | None = None,
        documents: UnsearchedDocuments | None = None,
    ) -> None:
        """`collection` holds the turns, and is the one that `turns` reads. Without `embedding`, vectors are
        ignored; with `receipts`, each run that writes leaves one; with `back_up`, the store is backed up
        before it is written to; without `documents`, documents are ignored."""
        self._turns = turns
        self._store = store
        self._collection = collection
        self._session_collection = session_collection
        self._embedding = embedding
        self._back_up = back_up
        self._receipts = receipts
        self._documents = documents
        self._vectors = MissingVectors(store, collection)

    async def plan(self, options: BackfillOptions | None = None) -> BackfillPlan:
        """Read every session, or one, and write nothing.

        Raises BadRequestError if there is no such time zone, StoreUnavailableError.
        """
        options = options or BackfillOptions()
        plan = await Planner(self._store, self._collection, self._session_collection).plan(options)
        foreign = await self._vectors.are_foreign(self._embedding)
        checked = self._embedding is not None and not foreign
        lacking = await self._vectors.lacking(options.session_id) if checked else {}
        leaving = set(plan.removed)
        staying = tuple(point for point in lacking if point not in leaving)
        of_all = options.session_id is None
        unsearched = await self._documents.find() if self._documents and of_all else ()
        return replace(plan, lacking=staying, foreign_vectors=foreign, unsearched=unsearched)

    async def apply(
        self,
        plan: BackfillPlan,
        progress: Progress | None = None,
        *,
        backup: bool = True,
        embed: bool = True,
        reason: str = "command",
    ) -> BackfillReport:
        """Write the plan. The store is consistent after every turn, so a cut-off run can be repeated.

        Existing vectors are written only where a point moves to its turn id; with `embed` missing ones are
        made. With `backup` the store is backed up before turns are written. Raises UnavailableError,
        DiskFullError or BackupRunningError if the backup fails, and then nothing was changed;
        StoreUnavailableError, EmbeddingUnavailableError.
        """
        receipt, on_progress = self._begin_receipt(reason), progress or _ignore
        report = replace(plan.report(), dry_run=False)
        if backup and not report.nothing_to_do:
            report = replace(report, backup=await self._backed_up(reason))
        try:
            report = await self._write(plan, report, on_progress)
            if embed and plan.lacking and self._embedding is not None:
                made = await self._vectors.fill(self._embedding, on_progress, plan.options.session_id)
                report = replace(report, embedded=made)
        except WenmaiError as error:
            await receipt.of_repair(report, error.code)
            raise
        await receipt.of_repair(report)
        return report

    async def plan_import(self, source: str, options: BackfillOptions) -> ImportPlan:
        """Plan what to copy from an old collection. Raises as CollectionImport.plan does."""
        return await self._importing().plan(source, options)

    async def apply_import(
        self,
        plan: ImportPlan,
        progress: Progress | None = None,
        *,
        backup: bool = True,
        embed: bool = True,
        reason: str = "command",
    ) -> ImportReport:
        """Copy as planned, after a backup as in `apply`. Raises ImportIncompleteError,
        StoreUnavailableError, EmbeddingUnavailableError."""
        receipt = self._begin_receipt(reason)
        archive = await self._backed_up(reason) if backup and plan.writes else ""
        try:
            report = await self._importing().apply(plan, self._writer(), progress or _ignore, embed=embed)
        finally:
            self._turns.forget_trees()
        report = replace(report, backup=archive)
        await receipt.of_import(report)
        return report

    def _begin_receipt(self, reason: str) -> RunReceipt:
        return RunReceipt(self._receipts, reason, utc_now_us())

    async def _backed_up(self, reason: str) -> str:
        if self._back_up is None:
            return ""
        try:
            return await self._back_up(reason)
        except UnavailableError as error:
            kind = DiskFullError if isinstance(error, DiskFullError) else UnavailableError
            raise kind(f"Nothing was changed, because no backup could be made: {error}") from error

    async def _write(
        self, plan: BackfillPlan, report: BackfillReport, on_progress: Progress
    ) -> BackfillReport:
        writer = self._writer()
        try:
            await writer.change(plan.changes, on_progress)
            await writer.remove(plan.removed, on_progress)
            created = await writer.create_sessions(plan.new_sessions)
            documents = await self._documents.repair(plan.unsearched) if self._documents else 0
        finally:
            self._turns.forget_trees()
        return replace(
            report,
            sessions_created=created,
            documents=documents,
            deleted=writer.written.deleted,
            skipped=writer.written.skipped,
        )

    def _writer(self) -> BackfillWriter:
        return BackfillWriter(self._store, self._collection, self._session_collection)

    def _importing(self) -> CollectionImport:
        return CollectionImport(self._store, self._collection, self._session_collection, self._embedding)


def _ignore(done: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class RunReceipt:
    """The receipt of one run, which began at `began_us`; a run that changed nothing leaves none.

    With `receipts` None no receipts are kept.
    """

    receipts: ReceiptStore | None
    reason: str
    began_us: int

    async def of_repair(self, report: BackfillReport, error: str = "") -> None:
        """Write a repair's receipt. With an `error` its counts are the planned ones, and it may be lost."""
        if report.nothing_to_do and not report.embedded and not error:
            return
        counts = {
            "turns": report.turns,
            "changed": report.changed - report.deleted - report.skipped,
            "moved": report.rehomed,
            "deleted": report.leftovers + report.dropped,
            "embedded": report.embedded,
            "sessions_created": report.sessions_created,
            "documents": report.documents,
        }
        receipt = self._receipt(counts, {"backup": report.backup}, error)
        if not error:
            await self._add(receipt)
            return
        with suppress(StoreUnavailableError):
            await self._add(receipt)

    async def of_import(self, report: ImportReport) -> None:
        if report.added or report.sessions_created:
            counts = {
                "turns": report.turns,
                "added": report.added,
                "embedded": report.embedded,
                "sessions_created": report.sessions_created,
            }
            details = {"imported_from": report.source, "backup": report.backup}
            await self._add(self._receipt(counts, details))

    def _receipt(self, counts: dict[str, int], details: dict[str, str], error: str = "") -> Receipt:
        return Receipt(
            receipt_id="", kind=ReceiptKind.REPAIR, reason=self.reason, began_us=self.began_us,
            ended_us=utc_now_us(), counts=counts, details=details, error=error,
        )  # fmt: skip

    async def _add(self, receipt: Receipt) -> None:
        if self.receipts is not None:
            await self.receipts.add(receipt)
