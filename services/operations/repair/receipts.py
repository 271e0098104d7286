"""What is kept of a repair or an import once it is done: numbers, and the name of the backup before it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from core.errors import StoreUnavailableError
from core.operations.receipts import Receipt, ReceiptKind
from services.operations.repair.importing import ImportReport
from services.operations.repair.plan import BackfillReport
from services.store.clock import Clock
from services.store.receipts import ReceiptStore


@dataclass(frozen=True, slots=True)
class RepairReceipts:
    """`receipts` None: none are kept."""

    receipts: ReceiptStore | None
    clock: Clock

    def begin(self, reason: str) -> RunReceipt:
        return RunReceipt(self, reason, self.clock())


@dataclass(frozen=True, slots=True)
class RunReceipt:
    """Of one run, which began at `began_us`; a run that changed nothing leaves none."""

    store: RepairReceipts
    reason: str
    began_us: int

    async def of_repair(self, report: BackfillReport, error: str = "") -> None:
        """With an `error` the counts are what was planned; then the receipt may be lost, too."""
        if report.nothing_to_do and not report.embedded and not error:
            return
        counts = {
            "turns": report.turns,
            "changed": report.changed - report.deleted - report.skipped,
            "moved": report.rehomed,
            "deleted": report.leftovers + report.dropped,
            "embedded": report.embedded,
            "sessions_created": report.sessions_created,
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
            ended_us=self.store.clock(), counts=counts, details=details, error=error,
        )  # fmt: skip

    async def _add(self, receipt: Receipt) -> None:
        if self.store.receipts is not None:
            await self.store.receipts.add(receipt)
