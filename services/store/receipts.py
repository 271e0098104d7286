"""Receipts in the store: written once, listed newest first, never changed."""

from __future__ import annotations

import uuid
from dataclasses import asdict, replace

from pydantic import TypeAdapter

from core.operations.reports import Receipt, ReceiptKind
from services.store.dialect import Condition, Filter, Point, VectorStore
from services.store.points import equals, in_range, newest_first, read_or_none

RECORD = "receipt"
_RECEIPT = TypeAdapter(Receipt)


class ReceiptStore:
    """The operations collection holds other records, too; these have `record` = "receipt"."""

    def __init__(self, store: VectorStore, collection: str) -> None:
        self._store = store
        self._collection = collection

    async def add(self, receipt: Receipt) -> Receipt:
        """Written under a fresh id when it has none. Raises StoreUnavailableError."""
        receipt = replace(receipt, receipt_id=receipt.receipt_id or str(uuid.uuid4()))
        payload = {**asdict(receipt), "record": RECORD}
        point = Point(id=receipt.receipt_id, vector={}, payload=payload)
        await self._store.upsert(self._collection, [point])
        return receipt

    async def newest(
        self,
        limit: int = 50,
        kind: ReceiptKind | None = None,
        subject: str = "",
        before_us: int | None = None,
    ) -> list[Receipt]:
        """The latest first; `before_us` goes on after a page. Raises StoreUnavailableError."""
        conditions: list[Condition] = [equals("record", RECORD)]
        if kind is not None:
            conditions.append(equals("kind", kind.value))
        if before_us is not None:
            conditions.append(in_range("began_us", lt=before_us))
        if subject:
            conditions.append(equals("subject", subject))
        records, _ = await self._store.scroll(
            self._collection,
            scroll_filter=Filter(must=conditions),
            limit=limit,
            order_by=newest_first("began_us"),
        )
        receipts = [read_or_none(_RECEIPT, each.payload or {}, "receipt_unreadable") for each in records]
        return [receipt for receipt in receipts if receipt is not None]
