"""Everything is copied with new vectors, and the old store is only read (RELIABILITY F32)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import AsyncQdrantClient, models

from api.offline.reembedding import open_reembedding
from config.settings import StoreSettings
from core.errors import EmbeddingUnavailableError, StartRefusedError
from core.relevance.meaning import parts_in
from core.relevance.sparse import encode_document
from services.knowledge.chunks import SIGNS
from services.models.embedding import EmbeddingService
from services.operations.reembedding.level import (
    LATE_US,
    PAGE,
    CopyIncompleteError,
    Limits,
)
from services.operations.reembedding.run import CopyMode, Reembed, ReembedReport, SyncProgress
from services.store.collections import collection_specs, ensure_collections
from services.store.dialect import VectorStore
from tests.services.adapters.edge.stores import ENGINES, NO_INDEX_WARNING, nth_id, open_store
from tests.support.models.hashing_embedding import DIMENSION, HashingEmbedding, TokenHashing
from tests.support.servers.app import make_settings, open_app

pytestmark = pytest.mark.filterwarnings(NO_INDEX_WARNING)

OLD, NEW = StoreSettings(collection_suffix="t"), StoreSettings(collection_suffix="t_new")
TURNS, CHUNKS, DOCUMENTS, SESSIONS, MEMORIES, OPERATIONS = collection_specs(OLD)


class BrokenEmbedding(HashingEmbedding):
    def _get_text_embedding(self, text: str) -> list[float]:
        if text != "warm":
            raise RuntimeError("out of order")
        return super()._get_text_embedding(text)


class ForgetfulClient(AsyncQdrantClient):
    """Acknowledges a batch and stores all but its first point."""

    async def upsert(  # type: ignore[override]
        self, collection_name: str, points: Any, **more: Any
    ) -> models.UpdateResult:
        if len(points) > 1:
            return await super().upsert(collection_name, points[1:], **more)
        return models.UpdateResult(operation_id=0, status=models.UpdateStatus.COMPLETED)


class KeepsNothing(AsyncQdrantClient):
    """Acknowledges everything and stores nothing."""

    async def upsert(  # type: ignore[override]
        self, collection_name: str, points: Any, **more: Any
    ) -> models.UpdateResult:
        return models.UpdateResult(operation_id=0, status=models.UpdateStatus.COMPLETED)


@pytest.fixture(
    params=[pytest.param("edge", marks=pytest.mark.full("a store process for each test")), *ENGINES[1:]]
)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorStore]:
    """The collections as left by another embedding of four dimensions."""
    async with open_store(request.param, tmp_path) as opened:
        for settings in (OLD, NEW):
            for spec in collection_specs(settings):
                await opened.delete_collection(spec.name)
        await ensure_collections(opened, OLD, embedding_name="small", dimension=4)
        yield opened


@pytest.fixture
async def embedding() -> AsyncIterator[EmbeddingService]:
    service = EmbeddingService(HashingEmbedding(), "hashing", DIMENSION)
    yield service
    await service.close()


async def write(store: VectorStore, collection: str, payloads: Sequence[dict[str, Any]]) -> None:
    points = [
        models.PointStruct(id=nth_id(n), vector={}, payload=payload) for n, payload in enumerate(payloads)
    ]
    await store.upsert(collection, points)


async def read(store: VectorStore, collection: str) -> dict[str, models.Record]:
    records, _ = await store.scroll(collection, limit=1_000, with_payload=True, with_vectors=True)
    return {str(record.id): record for record in records}


async def reembed(store: VectorStore, embedding: EmbeddingService, **mode: Any) -> ReembedReport:
    return await Reembed(store, OLD, embedding).run(store, NEW, lambda _: None, CopyMode(**mode))


PAYLOADS: dict[str, list[dict[str, Any]]] = {
    TURNS.name: [
        {
            "user_query": "退款要几天？",
            "assistant_response": "七天内。",
            "status": "completed",
            "created_us": 1_763_769_600_123_456,
            "timings_ms": {"first_token": 0.1 + 0.2},
            "sources": [{"text": "a\u2028b", "score": 1e-9}],
            "parent_turn_id": None,
        },
        {"user_query": "still running", "assistant_response": "", "status": "running"},
    ],
    CHUNKS.name: [
        {"text": f"chunk {n} of the leave policy", "heading": "Leave", "ready": n % 2 == 0}
        for n in range(PAGE * 2 + 3)
    ],
    DOCUMENTS.name: [{"document_id": "d", "file_name": "手册.pdf", "text": "not embedded"}],
    SESSIONS.name: [{"title": "退款", "hold": True}],
    MEMORIES.name: [{"text": "prefers tea"}, {"note": "without text"}],
    OPERATIONS.name: [{"record": "receipt", "kind": "expiry", "began_us": 7}],
}


async def test_every_collection_is_copied_with_equal_payloads_and_new_vectors(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    for collection, payloads in PAYLOADS.items():
        await write(store, collection, payloads)
    report = await reembed(store, embedding)
    assert [each.points for each in report.collections] == [2, PAGE * 2 + 3, 1, 1, 2, 1]
    assert [each.embedded for each in report.collections] == [2, PAGE * 2 + 3, 0, 0, 1, 0]
    for each in report.collections:
        old, new = await read(store, each.source), await read(store, each.target)
        assert {key: record.payload for key, record in new.items()} == {
            key: record.payload for key, record in old.items()
        }
        assert all(not record.vector for record in old.values())


async def test_a_chunk_is_embedded_with_its_heading_in_both_ways(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    await write(store, CHUNKS.name, [{"text": "七天内退款", "heading": "售后"}])
    await reembed(store, embedding)
    (record,) = (await read(store, NEW.knowledge_collection)).values()
    assert isinstance(record.vector, dict)
    assert record.vector["dense"] == pytest.approx(
        HashingEmbedding().get_text_embedding("售后\n七天内退款"), abs=1e-6
    )
    sparse = record.vector["sparse"]
    assert isinstance(sparse, models.SparseVector)
    assert sorted(sparse.indices) == encode_document("售后\n七天内退款").indices


@pytest.mark.full("writes a whole store anew")
async def test_with_the_same_embedding_the_vectors_stay_the_same(tmp_path: Path) -> None:
    """Red when a limit or a text differs from those used for asking and ingesting."""
    settings = make_settings(tmp_path, conversation={"max_recent_turns": 1})  # else no answer is embedded
    async with open_app(settings) as app:
        await app.add_text("leave.md", "# 年假\n\n" + "每年有五天年假，可以顺延。" * 300)
        await app.ask("How many days of leave? " + "please tell " * 400)
        await app.ask("年假有几天？")
    async with open_reembedding(settings) as parts, parts.open_target() as target:
        copy = Reembed(parts.source, settings.store, parts.embedding)
        assert not (await copy.plan()).needed
        await copy.run(target, settings.store, lambda _: None)
        for spec in collection_specs(settings.store):
            old, new = await read(parts.source, spec.name), await read(target, spec.name)
            assert old.keys() == new.keys()
            for key, record in old.items():
                assert record.vector == new[key].vector, (spec.name, record.payload)


async def test_the_plan_counts_and_estimates_and_says_when_there_is_nothing_to_do(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    await write(store, CHUNKS.name, PAYLOADS[CHUNKS.name])
    plan = await Reembed(store, OLD, embedding).plan()
    assert (plan.needed, plan.points) == (True, PAGE * 2 + 3)
    assert plan.seconds > 0
    assert {each.embedding for each in plan.collections} == {"small (4 dimensions)", ""}
    await reembed(store, embedding)
    assert not (await Reembed(store, NEW, embedding).plan()).needed


async def test_collections_of_an_earlier_version_without_an_embedding_name_are_copied(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    await store.delete_collection(TURNS.name)
    await store.create_collection(
        TURNS.name, {"turn": models.VectorParams(size=4, distance=models.Distance.COSINE)}
    )
    await store.upsert(
        TURNS.name,
        [models.PointStruct(id=7, vector={}, payload={"user_query": "q", "assistant_response": "a"})],
    )
    plan = await Reembed(store, OLD, embedding).plan()
    assert plan.needed
    assert "does not name" in plan.collections[0].embedding
    await reembed(store, embedding)
    (record,) = (await read(store, NEW.conversation_collection)).values()
    assert record.id == 7
    assert isinstance(record.vector, dict)
    assert record.vector.keys() == {"question", "turn", "sparse"}


async def test_the_schema_of_another_version_is_refused(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    await store.delete_collection(SESSIONS.name)
    later = {"embedding": "small", "dimension": 4, "schema_version": 99}
    words = {"sparse": models.SparseVectorParams(modifier=models.Modifier.IDF)}
    await store.create_collection(SESSIONS.name, {}, words, metadata=later)
    with pytest.raises(StartRefusedError, match="schema 99"):
        await Reembed(store, OLD, embedding).plan()


async def test_collections_of_other_vectors_are_kept_unless_requested(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    await write(store, SESSIONS.name, PAYLOADS[SESSIONS.name])
    await ensure_collections(store, NEW, embedding_name="third", dimension=7)
    await write(store, NEW.session_collection, [{"title": "a"}, {"title": "b"}])
    with pytest.raises(StartRefusedError, match=r"third.*--replace"):
        await reembed(store, embedding)
    assert (await store.count(NEW.session_collection)).count == 2
    await reembed(store, embedding, replace=True)
    assert (await store.count(NEW.session_collection)).count == 1


async def test_a_second_run_writes_only_differences_and_embeds_only_new_texts(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    """Discriminates: embedding a point again because its payload differs; not removing deleted points."""
    await write(store, CHUNKS.name, PAYLOADS[CHUNKS.name])
    await write(store, TURNS.name, PAYLOADS[TURNS.name])
    await reembed(store, embedding)
    await store.set_payload(CHUNKS.name, {"ready": True}, [nth_id(1), nth_id(3)])
    await store.set_payload(CHUNKS.name, {"text": "another text"}, [nth_id(5)])
    await store.delete(CHUNKS.name, models.PointIdsList(points=[nth_id(7)]))
    await store.set_payload(TURNS.name, {"assistant_response": "done", "status": "completed"}, [nth_id(1)])
    before = await read(store, NEW.knowledge_collection)
    turns, chunks, *_ = (await reembed(store, embedding)).collections
    assert (turns.written, turns.embedded, turns.removed) == (1, 1, 0)
    assert (chunks.written, chunks.embedded, chunks.removed) == (3, 1, 1)
    after = await read(store, NEW.knowledge_collection)
    assert after[nth_id(1)].vector == before[nth_id(1)].vector
    assert after[nth_id(5)].vector != before[nth_id(5)].vector
    assert nth_id(7) not in after
    assert all(each.written == 0 for each in (await reembed(store, embedding)).collections)


async def test_a_chunk_gets_the_token_signs_of_its_own_embedding(store: VectorStore) -> None:
    """Discriminates: carrying over another embedding's signs; writing chunks in every run because of their
    signs."""
    chunks = [{"chunk_id": nth_id(n), "text": f"- chunk {n}\n- it", SIGNS: "other"} for n in range(3)]
    await write(store, CHUNKS.name, chunks)
    await write(store, MEMORIES.name, PAYLOADS[MEMORIES.name])
    service = EmbeddingService(TokenHashing(), "hashing", DIMENSION)
    await reembed(store, service)
    texts = [chunk["text"] for chunk in chunks]
    expected = await service.read_passages(texts, [text.split("\n") for text in texts])
    parts = [parts_in(each.signs, DIMENSION) for each in expected]
    assert [each is not None and len(each) for each in parts] == [2, 2, 2]
    copied = await read(store, NEW.knowledge_collection)
    assert [(copied[nth_id(n)].payload or {})[SIGNS] for n in range(3)] == [each.signs for each in expected]
    assert SIGNS not in ((await read(store, NEW.memory_collection))[nth_id(0)].payload or {})
    assert all(each.written == 0 for each in (await reembed(store, service)).collections)
    await store.set_payload(CHUNKS.name, {"ready": True}, [nth_id(1)])
    await reembed(store, service)
    assert ((await read(store, NEW.knowledge_collection))[nth_id(1)].payload or {})[SIGNS] == expected[
        1
    ].signs
    await service.close()


async def test_a_vector_missing_in_the_copy_is_created(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    await write(store, CHUNKS.name, PAYLOADS[CHUNKS.name])
    await reembed(store, embedding)
    bare = models.PointStruct(id=nth_id(2), vector={}, payload=PAYLOADS[CHUNKS.name][2])
    await store.upsert(NEW.knowledge_collection, [bare])
    await reembed(store, embedding)
    vector = (await read(store, NEW.knowledge_collection))[nth_id(2)].vector
    assert isinstance(vector, dict)
    assert "dense" in vector


async def test_writes_during_the_copy_are_copied_too(store: VectorStore, embedding: EmbeddingService) -> None:
    """Discriminates: a single round."""
    await write(store, CHUNKS.name, PAYLOADS[CHUNKS.name])
    rounds: list[int] = []
    late = [
        models.PointStruct(id=nth_id(n), vector={}, payload={"text": f"late {n}"}) for n in range(900, 950)
    ]

    async def write_late() -> None:
        if len(rounds) == 1 and late:
            await store.upsert(CHUNKS.name, late)
            late.clear()

    def on_progress(progress: SyncProgress) -> None:
        if not rounds or rounds[-1] != progress.round:
            rounds.append(progress.round)

    report = await Reembed(store, OLD, embedding).run(
        store, NEW, on_progress, CopyMode(live=True, pause=write_late)
    )
    assert report.rounds == len(rounds) > 1
    assert (await store.count(NEW.knowledge_collection)).count == PAGE * 2 + 3 + 50


async def test_a_live_copy_of_a_store_that_changes_in_every_round_is_complete(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    """Discriminates: repeating rounds until one of them changes few points, which never happens."""
    await write(store, CHUNKS.name, PAYLOADS[CHUNKS.name])
    rounds: list[int] = []
    asked_in: set[int] = set()

    async def ask_on() -> None:
        """Sixty in each round: never a small part of 67 points and the earlier questions."""
        if len(rounds) in asked_in:
            return
        asked_in.add(len(rounds))
        first = 1_000 + 60 * len(rounds)
        texts = [(nth_id(first + n), {"text": f"asked {first + n}"}) for n in range(60)]
        new = [models.PointStruct(id=id_, vector={}, payload=text) for id_, text in texts]
        await store.upsert(TURNS.name, new)

    def on_progress(progress: SyncProgress) -> None:
        if progress.round not in rounds:
            rounds.append(progress.round)

    live = CopyMode(live=True, pause=ask_on)
    copy = Reembed(store, OLD, embedding)
    report = await copy.run(store, NEW, on_progress, live)
    assert report.rounds < 6
    source, copied = await read(store, CHUNKS.name), await read(store, NEW.knowledge_collection)
    assert source.keys() == copied.keys()
    await reembed(store, embedding)
    asked = await read(store, TURNS.name)
    assert asked.keys() == (await read(store, NEW.conversation_collection)).keys()


async def test_a_live_copy_that_stores_nothing_is_not_called_complete(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    """Discriminates: a tolerance as wide as the writes of the last round."""
    await write(store, CHUNKS.name, PAYLOADS[CHUNKS.name])
    target = KeepsNothing(":memory:")
    with pytest.raises(CopyIncompleteError, match="run this again"):
        await Reembed(store, OLD, embedding).run(target, NEW, lambda _: None, CopyMode(live=True))  # type: ignore[arg-type]
    await target.close()


async def test_later_additions_are_copied_from_shortly_before_the_copy_began(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    """Discriminates: omitting a turn that was stamped before the copy began, and written after it."""
    began_us = 1_763_769_600_000_000
    stamps = [began_us - LATE_US - 1, began_us - LATE_US, began_us]
    await write(store, TURNS.name, [{"user_query": "q", "created_us": stamp} for stamp in stamps])
    await reembed(store, embedding, live=True, limits=Limits(only_since_us=began_us))
    added = (await read(store, NEW.conversation_collection)).values()
    assert sorted((record.payload or {})["created_us"] for record in added) == stamps[1:]


async def test_points_that_change_faster_than_they_are_copied_are_reported(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    number = 0

    async def write_more() -> None:
        nonlocal number
        number += 1
        await store.upsert(
            SESSIONS.name, [models.PointStruct(id=nth_id(0), vector={}, payload={"number": number})]
        )

    await write_more()
    with pytest.raises(CopyIncompleteError, match="changed faster"):
        await reembed(store, embedding, pause=write_more)


async def test_a_copy_that_lacks_points_is_not_called_complete(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    await write(store, CHUNKS.name, PAYLOADS[CHUNKS.name])
    target = ForgetfulClient(":memory:")
    with pytest.raises(CopyIncompleteError, match="run this again"):
        await Reembed(store, OLD, embedding).run(target, NEW, lambda _: None)  # type: ignore[arg-type]
    await target.close()


async def test_a_copy_with_another_embeddings_vectors_is_not_called_complete(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    """Discriminates: no sample; a sample that is compared with itself."""
    await write(store, CHUNKS.name, PAYLOADS[CHUNKS.name])
    await reembed(store, embedding)
    wrong = [1.0, *[0.0] * (DIMENSION - 1)]
    points = [
        models.PointStruct(id=nth_id(n), vector={"dense": wrong}, payload=payload)
        for n, payload in enumerate(PAYLOADS[CHUNKS.name])
    ]
    await store.upsert(NEW.knowledge_collection, points)
    with pytest.raises(CopyIncompleteError, match="not from the configured model"):
        await reembed(store, embedding)


async def test_a_failing_embedding_leaves_the_store_unchanged(store: VectorStore) -> None:
    await write(store, CHUNKS.name, PAYLOADS[CHUNKS.name])
    before = await read(store, CHUNKS.name)
    broken = EmbeddingService(BrokenEmbedding(), "broken", DIMENSION)
    with pytest.raises(EmbeddingUnavailableError):
        await reembed(store, broken)
    await broken.close()
    assert await read(store, CHUNKS.name) == before
