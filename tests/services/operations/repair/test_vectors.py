"""A repair creates missing vectors of turns and keeps existing ones (RELIABILITY P9).

Discriminates: writing all vectors of a turn that lacks one; omitting the words of an old turn; embedding into
a collection with another model's vectors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from config.settings import StoreSettings
from core.errors import EmbeddingUnavailableError
from core.operations.reports import ReceiptKind
from core.relevance.sparse import encode_document
from services.models.embedding import EmbeddingService
from services.operations.repair.run import Backfill
from services.store.collections import ensure_collections
from services.store.dialect import VectorStore
from services.store.points import sparse_vector
from services.store.receipts import ReceiptStore
from tests.services.conversation.stores import SESSIONS, TURNS, open_edge, turn_store, uid, write_point
from tests.support.models.hashing_embedding import DIMENSION, HashingEmbedding

NAME = "hashing"
SESSION = uid(100)
UNIT = [1.0] + [0.0] * (DIMENSION - 1)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[VectorStore]:
    """The collections as a server creates them."""
    from services.adapters.edge.client import open_edge_client

    async with open_edge_client(tmp_path / "store") as store:
        await ensure_collections(store, StoreSettings(), embedding_name=NAME, dimension=DIMENSION)
        yield store


@pytest.fixture
async def embedding() -> AsyncIterator[EmbeddingService]:
    service = EmbeddingService(HashingEmbedding(), NAME, DIMENSION)
    yield service
    await service.close()


class BrokenEmbedding(HashingEmbedding):
    def _get_text_embedding(self, text: str) -> list[float]:
        raise RuntimeError("out of order")


def backfill(store: VectorStore, embedding: EmbeddingService | None) -> Backfill:
    return Backfill(turn_store(store), store, TURNS, SESSIONS, embedding, ReceiptStore(store, "operations"))


async def vectors(store: VectorStore) -> dict[str, Any]:
    records, _ = await store.scroll(TURNS, limit=100, with_vectors=True)
    return {str(record.id): record.vector for record in records}


async def old_turns(store: VectorStore) -> None:
    """One with the vector of old versions, one without, one still running."""
    stamps: dict[str, Any] = {"session_id": SESSION, "timestamp": "2024-05-01T10:00:00Z"}
    await write_point(store, uid(1), {"turn": UNIT}, turn_id=uid(11), **stamps)
    await write_point(store, 2, **stamps)
    await write_point(store, uid(3), status="running", **stamps)
    await write_point(store, uid(4), command="help", **stamps)


@pytest.mark.full("writes a whole store anew")
async def test_missing_vectors_are_created_and_existing_ones_stay(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    await old_turns(store)
    job = backfill(store, embedding)
    progress: list[int] = []
    plan = await job.plan()
    assert set(plan.lacking) == {uid(1), 2}
    report = await job.apply(plan, progress.append)
    assert (report.troubles["missing_vectors"], report.embedded) == (2, 2)
    assert sum(progress) == plan.writes + 2
    stored = await vectors(store)
    assert stored[uid(11)]["turn"] == UNIT
    assert {name for point, has in stored.items() for name in has if point != uid(11)} == {
        "question", "turn", "sparse",
    }  # fmt: skip
    assert (stored[uid(3)], stored[uid(4)]) == ({}, {})
    words = encode_document(f"用户: question {uid(1)}\n助手: answer")
    assert sorted(stored[uid(11)]["sparse"].indices) == sorted(words.indices)
    again = await job.apply(await job.plan())
    assert (again.nothing_to_do, again.lacking) == (True, 0)
    assert await vectors(store) == stored


async def test_an_answer_in_the_recent_history_needs_no_vector(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    words = sparse_vector(encode_document(f"用户: question {uid(1)}\n助手: answer"))
    stamps: dict[str, Any] = {"session_id": SESSION, "timestamp": "2024-05-01T10:00:00Z"}
    await write_point(store, uid(1), {"question": UNIT, "sparse": words}, **stamps)
    assert (await backfill(store, embedding).plan()).lacking == ()


async def test_without_embedding_vectors_are_left_to_the_next_start(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    await old_turns(store)
    job = backfill(store, embedding)
    report = await job.apply(await job.plan(), embed=False)
    assert (report.lacking, report.embedded) == (2, 0)
    assert len((await job.plan()).lacking) == 2


async def test_vectors_of_another_embedding_are_not_mixed(
    tmp_path: Path, embedding: EmbeddingService
) -> None:
    """The collection does not state its embedding, as in an earlier version."""
    async with open_edge(tmp_path) as store:
        await write_point(store, uid(1), {"turn": [1.0, 0, 0, 0]}, session_id=SESSION, timestamp="2024-05-01")
        job = Backfill(turn_store(store), store, TURNS, SESSIONS, embedding)
        report = await job.apply(await job.plan())
        assert (report.foreign_vectors, report.lacking, report.changed) == (True, 0, 1)
        assert set((await vectors(store))[uid(1)]) == {"turn"}


@pytest.mark.full("writes a whole store anew")
async def test_each_run_that_changes_something_leaves_a_receipt(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    await old_turns(store)
    job = backfill(store, embedding)
    await job.apply(await job.plan(), reason="request")
    await job.apply(await job.plan())
    (done,) = await ReceiptStore(store, "operations").newest(kind=ReceiptKind.REPAIR)
    assert (done.reason, done.details, done.error) == ("request", {"backup": ""}, "")
    assert (done.counts["changed"], done.counts["moved"], done.counts["embedded"]) == (4, 2, 2)


async def test_a_run_that_fails_leaves_a_receipt_that_says_so(store: VectorStore) -> None:
    """Discriminates: changed turns without a record of the run."""
    await old_turns(store)
    broken = EmbeddingService(BrokenEmbedding(), NAME, DIMENSION)
    job = backfill(store, broken)
    with pytest.raises(EmbeddingUnavailableError):
        await job.apply(await job.plan(), reason="request")
    await broken.close()
    (failed,) = await ReceiptStore(store, "operations").newest(kind=ReceiptKind.REPAIR)
    assert (failed.reason, failed.error) == ("request", EmbeddingUnavailableError.code)
