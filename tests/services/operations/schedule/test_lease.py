"""The lease's record in the store, on every engine (RELIABILITY F29)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.operations.receipts import Receipt, ReceiptKind
from services.operations.schedule.lease import Lease, LeaseRecord, LeaseStore
from services.store.dialect import VectorStore
from services.store.receipts import ReceiptStore
from tests.services.adapters.edge.stores import ENGINES, NO_INDEX_WARNING, open_store
from tests.support.stores.schedule import REPORT, MemoryLease, make_operations

pytestmark = pytest.mark.filterwarnings(NO_INDEX_WARNING)
HELD = LeaseRecord("first", holder="one:1", last_slot=5)


@pytest.fixture(params=ENGINES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorStore]:
    async with open_store(request.param, tmp_path) as opened:
        await make_operations(opened)
        yield opened


@pytest.fixture(params=[*ENGINES, "process"])
async def lease(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Lease]:
    if request.param == "process":
        yield MemoryLease()
        return
    async with open_store(request.param, tmp_path) as opened:
        await make_operations(opened)
        yield LeaseStore(opened, "operations")


async def test_what_is_there_already_is_not_made_again(store: VectorStore) -> None:
    """Discriminates: an upsert without a look."""
    lease = LeaseStore(store, "operations")
    assert await lease.read() is None
    await lease.make(HELD)
    await LeaseStore(store, "operations").make(replace(HELD, token="second"))
    assert await lease.read() == HELD


async def test_a_change_is_read_back_as_it_was_written(lease: Lease) -> None:
    await lease.make(HELD)
    seen = await lease.read()
    assert seen is not None
    new = LeaseRecord("t", "two:2", 9, 2, 5, 7, "SomeError", replace(REPORT, sessions={}), 8)
    assert await lease.swap(seen, new) == new
    assert await lease.read() == new


async def test_a_change_of_what_was_changed_meanwhile_is_not_made(lease: Lease) -> None:
    """Discriminates: a change without a condition."""
    await lease.make(HELD)
    seen = await lease.read()
    assert seen is not None
    taken = replace(seen, token="other")
    assert await lease.swap(seen, taken) == taken
    assert await lease.swap(seen, replace(seen, token="late")) == taken


async def test_of_twenty_that_ask_at_once_one_gets_it(lease: Lease) -> None:
    await lease.make(HELD)
    record = await lease.read()
    assert record is not None
    claims = [replace(record, token=f"claim {n}", holder=f"worker:{n}") for n in range(20)]
    results = await asyncio.gather(*[lease.swap(record, claim) for claim in claims])
    won = [claim for claim, after in zip(claims, results, strict=True) if after == claim]
    assert len(won) == 1
    assert await lease.read() == won[0]


async def test_a_note_changes_nothing_else_and_is_changed_by_nothing_else(lease: Lease) -> None:
    """Discriminates: a note that is written with the record as it was seen."""
    await lease.make(HELD)
    record = await lease.read()
    assert record is not None
    await lease.note(9, "the clock")
    after = await lease.swap(record, replace(record, token="t"))
    assert after == replace(record, token="t", skipped_slot=9, skipped="the clock")


async def test_a_record_that_cannot_be_read_is_made_anew(store: VectorStore) -> None:
    lease = LeaseStore(store, "operations")
    await lease.make(HELD)
    point = (await store.scroll("operations"))[0][0].id
    await store.set_payload("operations", {"attempts": "many"}, points=[point])
    assert await lease.read() is None
    await lease.make(HELD)
    assert await lease.read() == HELD


async def test_receipts_and_leases_do_not_see_each_other(store: VectorStore) -> None:
    lease, receipts = LeaseStore(store, "operations"), ReceiptStore(store, "operations")
    await lease.make(HELD)
    written = await receipts.add(Receipt("", ReceiptKind.EXPIRY, "schedule", 1, 2))
    assert await receipts.newest() == [written]
    assert await lease.read() == HELD
