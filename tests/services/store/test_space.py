"""Space is freed if that is worth the work, and low disk space is reported in time."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from qdrant_client import AsyncQdrantClient, models

from core.errors import DiskFullError, StoreUnavailableError
from core.operations.reports import Receipt, ReceiptKind
from services.adapters.edge.client import open_edge_client
from services.store.dialect import DiskRoom, Reclaimed, StoreCondition, StoreUpkeep, VectorStore
from services.store.receipts import ReceiptStore
from services.store.space import DiskWatch, StoreSpace
from tests.support.waiting import until

MB = 1 << 20
OPERATIONS = "operations"


@dataclass
class Engine:
    """A simulated engine: the size of each collection, and the estimated size of its points.

    A compaction reduces it to `floor`, if one is set. `full` cannot be copied.
    """

    taken: dict[str, int]
    needed: dict[str, int]
    floor: dict[str, int] = field(default_factory=dict)
    full: str = ""
    free_bytes: int = 10_000 * MB
    silent: bool = False
    compacted: list[str] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)

    async def collection_exists(self, collection_name: str) -> bool:
        return collection_name in self.taken

    async def size_bytes(self) -> int:
        return sum(self.taken.values())

    async def sizes(self, collection_name: str) -> Reclaimed:
        return Reclaimed(self.taken[collection_name], self.needed[collection_name])

    async def compact(self, collection_name: str) -> Reclaimed:
        if collection_name == self.full:
            raise DiskFullError("no room for a copy")
        before = self.taken[collection_name]
        self.taken[collection_name] = self.floor.get(collection_name, self.needed[collection_name])
        self.compacted.append(collection_name)
        return Reclaimed(before, self.taken[collection_name])

    async def room(self) -> DiskRoom:
        if self.silent:
            raise StoreUnavailableError("no answer")
        return DiskRoom(self.free_bytes, 64 * MB)

    def follow(self) -> None: ...

    async def condition(self, *, whole: bool = False) -> StoreCondition:
        return StoreCondition([], False, 0)

    async def accept_loss(self) -> list[str]:
        return []

    async def note_rewrites(self, collections: Sequence[str]) -> None: ...

    async def drop_rewrite(self, collection: str) -> None: ...

    async def add(self, receipt: Receipt) -> Receipt:
        self.receipts.append(receipt)
        return receipt


def space_of(engine: Engine) -> StoreSpace:
    ticks = itertools.count(1_000)
    return StoreSpace(
        cast(VectorStore, engine),
        ["turns", "chunks", "lost"],
        cast(ReceiptStore, engine),
        lambda: next(ticks),
    )


@pytest.mark.parametrize(
    ("taken", "needed", "worth"),
    [
        (100 * MB, 50 * MB, True),
        (100 * MB, 89 * MB, True),
        (100 * MB, 91 * MB, False),
        (100 * MB, 130 * MB, False),
        (2 * MB, 1 * MB, True),
        (1 * MB, MB // 8, False),
    ],
)
async def test_a_tenth_and_a_megabyte_are_worth_a_compaction(taken: int, needed: int, worth: bool) -> None:
    engine = Engine({"turns": taken}, {"turns": needed})
    reclaimed = await space_of(engine).reclaim()
    assert reclaimed == (Reclaimed(taken, needed) if worth else None)
    assert engine.compacted == ["turns"] * worth
    assert len(engine.receipts) == worth


async def test_space_a_compaction_could_not_free_is_not_attempted_every_night() -> None:
    """Discriminates: trusting the estimate again after it was proved wrong."""
    engine = Engine({"turns": 100 * MB}, {"turns": 50 * MB}, floor={"turns": 80 * MB})
    space = space_of(engine)
    assert await space.reclaim() == Reclaimed(100 * MB, 80 * MB)
    assert await space.reclaim() is None
    engine.taken["turns"] = 100 * MB
    assert await space.reclaim() == Reclaimed(100 * MB, 80 * MB)


async def test_one_receipt_covers_all_collections_and_the_smallest_copy_is_made_first() -> None:
    engine = Engine({"turns": 100 * MB, "chunks": 40 * MB}, {"turns": 50 * MB, "chunks": 10 * MB})
    assert await space_of(engine).reclaim() == Reclaimed(140 * MB, 60 * MB)
    assert engine.compacted == ["chunks", "turns"]
    (receipt,) = engine.receipts
    assert (receipt.kind, receipt.counts) == (ReceiptKind.COMPACTION, {"collections": 2})
    assert (receipt.bytes_before, receipt.bytes_after) == (140 * MB, 60 * MB)
    assert receipt.began_us < receipt.ended_us


async def test_a_collection_that_cannot_be_copied_does_not_stop_the_others() -> None:
    engine = Engine(
        {"turns": 100 * MB, "chunks": 40 * MB}, {"turns": 50 * MB, "chunks": 10 * MB}, full="chunks"
    )
    with pytest.raises(DiskFullError):
        await space_of(engine).reclaim()
    assert engine.compacted == ["turns"]
    assert engine.receipts[0].error == "no room for a copy"


async def test_what_was_not_compacted_stays_noted(tmp_path: Path) -> None:
    """Discriminates: dropping the note although more was deleted while the copy was made."""
    async with open_edge_client(tmp_path) as store:
        for name in ("turns", "chunks", OPERATIONS):
            await store.create_collection(name, sparse_vectors_config={"s": models.SparseVectorParams()})
        await store.create_payload_index(OPERATIONS, "record", models.PayloadSchemaType.KEYWORD)
        space = StoreSpace(store, ["turns"], ReceiptStore(store, OPERATIONS), lambda: 5)
        await space.note(["turns", "chunks"])
        compaction = asyncio.create_task(space.rewrite(["turns", "chunks"]))
        await until(lambda: any(tmp_path.glob(".compacting-*")))
        await space.note(["turns"])
        await compaction
        again = StoreSpace(store, ["turns"], ReceiptStore(store, OPERATIONS), lambda: 5)
        assert await again.noted() == ["turns"]
        await again.rewrite(await again.noted())
        assert await again.noted() == []


async def test_a_qdrant_server_manages_its_own_space() -> None:
    server = AsyncQdrantClient(":memory:")
    store = cast(VectorStore, server)
    space = StoreSpace(store, ["turns"], ReceiptStore(store, OPERATIONS), lambda: 0)
    assert await space.size_bytes() is None
    assert await space.reclaim() is None
    watch = DiskWatch(store, 1 << 62)
    assert await watch.problem() is None
    assert not await watch.is_full()
    await server.close()


@pytest.mark.parametrize(
    ("free_mb", "reported", "full"),
    [(63, "is full: 63 MB", True), (499, "nearly full: 499 MB", False), (500, "", False)],
)
async def test_low_disk_space_is_reported_before_the_disk_is_full(
    free_mb: int, reported: str, full: bool
) -> None:
    watch = DiskWatch(cast(VectorStore, Engine({}, {}, free_bytes=free_mb * MB)), 500 * MB)
    problem = await watch.problem()
    assert reported in (problem or "")
    assert (problem is None) == (not reported)
    assert await watch.is_full() == full


async def test_a_disk_that_refuses_writes_is_reported_however_low_the_threshold() -> None:
    """Discriminates: LOW_DISK_MB alone, below which the store has already refused to write."""
    watch = DiskWatch(cast(VectorStore, Engine({}, {}, free_bytes=63 * MB)), 1 * MB)
    assert "is full: 63 MB" in (await watch.problem() or "")


async def test_a_store_that_does_not_answer_is_not_reported_as_full() -> None:
    watch = DiskWatch(cast(VectorStore, Engine({}, {}, silent=True)), 500 * MB)
    assert await watch.problem() is None
    assert not await watch.is_full()


@pytest.mark.full("works through many cases, for seconds")
async def test_the_embedded_store_frees_deleted_space_and_writes_a_receipt(on_disk: Path) -> None:
    async with open_edge_client(on_disk) as store:
        assert isinstance(store, StoreUpkeep)
        sparse = {"sparse": models.SparseVectorParams()}
        for name in ("turns", OPERATIONS):
            await store.create_collection(name, sparse_vectors_config=sparse)
        await store.create_payload_index(OPERATIONS, "began_us", models.PayloadSchemaType.INTEGER)
        await store.create_payload_index(OPERATIONS, "record", models.PayloadSchemaType.KEYWORD)
        space = StoreSpace(store, ["turns", "lost"], ReceiptStore(store, OPERATIONS), lambda: 5)
        choice = random.Random(6)
        texts = [{"text": choice.randbytes(2_000).hex()} for _ in range(600)]
        points = [models.PointStruct(id=n, vector={}, payload=text) for n, text in enumerate(texts)]
        await store.upsert("turns", points)
        assert await space.reclaim() is None
        await store.delete("turns", list(range(400)))
        before = await space.size_bytes()
        reclaimed = await space.reclaim()
        assert reclaimed is not None
        assert before is not None
        assert reclaimed.bytes_after < before * 0.6
        assert (await store.count("turns")).count == 200
        assert await space.reclaim() is None
        (receipt,) = await ReceiptStore(store, OPERATIONS).newest()
        assert receipt.bytes_after == reclaimed.bytes_after
