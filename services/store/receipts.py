"""Receipts in the store, listed newest first; one written before its work ends is overwritten later."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict, replace

from pydantic import TypeAdapter

from core.operations.reports import Receipt, ReceiptKind
from services.store.dialect import AnyPointId, Condition, Filter, Point, VectorStore
from services.store.points import (
    by_ids,
    equals,
    in_range,
    is_empty,
    newest_first,
    read_or_none,
    scroll_all,
)

RECORD = "receipt"
REWRITE = "rewrite_due"
_IDS = uuid.UUID("0c4f1c1e-8d0b-4f5e-9a43-7a1f6d2b9c55")
_RECEIPT = TypeAdapter(Receipt)


class ReceiptStore:
    """The operations collection also holds other records; receipts have `record` = "receipt".

    One kind is a note that a collection's files still hold what was deleted, and must be rewritten.
    """

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

    async def note_rewrites(self, collections: Sequence[str]) -> None:
        """Note that these must be rewritten. Raises StoreUnavailableError."""
        points = [
            Point(id=_rewrite_id(name), vector={}, payload={"record": REWRITE, "collection": name})
            for name in collections
        ]
        await self._store.upsert(self._collection, points)

    async def drop_rewrite(self, collection: str) -> None:
        await self._store.delete(self._collection, by_ids([_rewrite_id(collection)]))

    async def rewrites(self) -> list[str]:
        """The collections noted. Raises StoreUnavailableError."""
        where = Filter(must=[equals("record", REWRITE)])
        records = scroll_all(self._store, self._collection, where)
        return sorted([str((each.payload or {})["collection"]) async for each in records])


def _rewrite_id(collection: str) -> str:
    return str(uuid.uuid5(_IDS, collection))
