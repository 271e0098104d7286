"""Receipts are written once and listed newest first; erased data is not named in them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from config.settings import StoreSettings
from core.operations.reports import Receipt, ReceiptKind, subject_of
from services.store.collections import ensure_collections
from services.store.dialect import VectorStore
from services.store.receipts import ReceiptStore
from tests.services.adapters.edge.stores import ENGINES, NO_INDEX_WARNING, open_store

pytestmark = pytest.mark.filterwarnings(NO_INDEX_WARNING)


@pytest.fixture(params=ENGINES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorStore]:
    async with open_store(request.param, tmp_path) as opened:
        await ensure_collections(opened, StoreSettings(), embedding_name="small", dimension=4)
        yield opened


def receipt(kind: ReceiptKind, began_us: int, subject: str = "") -> Receipt:
    return Receipt("", kind, "request", began_us, began_us + 5, {"turns": 3}, 10, 4, subject, {"days": "30"})


async def test_receipts_are_read_back_as_written_newest_first(store: VectorStore) -> None:
    receipts = ReceiptStore(store, "operations")
    written = [
        await receipts.add(receipt(kind, at))
        for kind, at in ((ReceiptKind.EXPIRY, 1), (ReceiptKind.ERASURE, 3), (ReceiptKind.EXPIRY, 2))
    ]
    assert await receipts.newest() == [written[1], written[2], written[0]]
    assert await receipts.newest(1, ReceiptKind.EXPIRY) == [written[2]]


async def test_the_receipt_of_an_erasure_is_found_by_the_id_but_does_not_reveal_it(
    store: VectorStore,
) -> None:
    """Discriminates: storing the id itself."""
    receipts = ReceiptStore(store, "operations")
    await receipts.add(receipt(ReceiptKind.ERASURE, 1, subject_of("session", "an-id")))
    await receipts.add(receipt(ReceiptKind.ERASURE, 2, subject_of("turn", "an-id")))
    results = await receipts.newest(subject=subject_of("session", "an-id"))
    assert [each.began_us for each in results] == [1]
    records, _ = await store.scroll("operations", limit=10)
    assert "an-id" not in str([record.payload for record in records])
