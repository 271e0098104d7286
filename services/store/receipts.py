"""Receipts in the store, listed newest first; one written before its work ends is overwritten later."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict, replace

from pydantic import TypeAdapter

from core.operations.reports import Receipt, ReceiptKind
from services.store.dialect import AnyPointId, Condition, Filter, Point, VectorStore
from services.store.points import equals, in_range, is_empty, newest_first, read_or_none, scroll_all

RECORD = "receipt"
_RECEIPT = TypeAdapter(Receipt)


class ReceiptStore:
    """The operations collection also holds other records; receipts have `record` = "receipt"."""

    def __init__(self, store: VectorStore, collection: str) -> None:
        self._store = store
        self._collection = collection

    async def add(self, receipt: Receipt, under_way: Sequence[AnyPointId] = ()) -> Receipt:
        """Write it over the receipt with its id, or under a fresh id if it has none. `under_way` are points
        that may be deleted but are not in its counts yet. Raises StoreUnavailableError."""
        receipt = replace(receipt, receipt_id=receipt.receipt_id or str(uuid.uuid4()))
        payload = {**asdict(receipt), "record": RECORD}
        payload |= {"under_way": list(under_way)} if under_way else {}
        point = Point(id=receipt.receipt_id, vector={}, payload=payload)
        await self._store.upsert(self._collection, [point])
        return receipt

    async def unfinished(self) -> list[tuple[Receipt, list[AnyPointId]]]:
        """Receipts with points under way, left by killed runs. Raises StoreUnavailableError."""
        where = Filter(must=[equals("record", RECORD)], must_not=[is_empty("under_way")])
        records = [each.payload or {} async for each in scroll_all(self._store, self._collection, where)]
        return [(_RECEIPT.validate_python(each), each["under_way"]) for each in records]

    async def newest(
        self,
        limit: int = 50,
        kind: ReceiptKind | None = None,
        subject: str = "",
        before_us: int | None = None,
    ) -> list[Receipt]:
        """Newest first; `before_us` continues after a page. Raises StoreUnavailableError."""
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
