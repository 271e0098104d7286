"""Everything is copied with new vectors, and the old set is only read (RELIABILITY F32)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import AsyncQdrantClient, models

from api.container import open_reembedding
from config.settings import StoreSettings
from core.errors import EmbeddingUnavailableError, StartRefusedError
from core.sparse import encode_document
from services.collections import collection_specs, ensure_collections
from services.embedding import EmbeddingService
from services.reembed import PAGE, CopyIncompleteError, Reembed, ReembedReport
from services.reembed_texts import PointTexts, point_texts
from services.store import VectorStore
from tests.services.adapters.stores import ENGINES, NO_INDEX_WARNING, nth_id, open_store
from tests.support.app import make_settings, open_app
from tests.support.hashing_embedding import DIMENSION, HashingEmbedding

pytestmark = pytest.mark.filterwarnings(NO_INDEX_WARNING)

KINDS = ("conversation", "knowledge", "document", "session", "memory", "operations")


def names(prefix: str) -> StoreSettings:
    return StoreSettings.model_validate({f"{kind}_collection": f"{prefix}_{kind}" for kind in KINDS})


OLD, NEW = names("t"), names("t_new")
TURNS, CHUNKS, DOCUMENTS, SESSIONS, MEMORIES, OPERATIONS = collection_specs(OLD)


class BrokenEmbedding(HashingEmbedding):
    def _get_text_embedding(self, text: str) -> list[float]:
        if text != "warm":
            raise RuntimeError("out of order")
        return super()._get_text_embedding(text)


class ForgetfulClient(AsyncQdrantClient):
    """Acknowledges a batch and keeps all but its first point."""

    async def upsert(  # type: ignore[override]
        self, collection_name: str, points: Any, **more: Any
    ) -> models.UpdateResult:
        if len(points) > 1:
            return await super().upsert(collection_name, points[1:], **more)
        return models.UpdateResult(operation_id=0, status=models.UpdateStatus.COMPLETED)


@pytest.fixture(params=ENGINES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorStore]:
    """The collections as another embedding of four dimensions left them."""
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


async def reembed(store: VectorStore, embedding: EmbeddingService, **more: Any) -> ReembedReport:
    return await Reembed(store, OLD, embedding).run(store, NEW, lambda _: None, **more)


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


SAID = {"user_query": "q", "assistant_response": "a"}
TEXT = "用户: q\n助手: a"


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({**SAID, "status": "completed"}, PointTexts("q", TEXT, TEXT)),
        (SAID, PointTexts("q", TEXT, TEXT)),
        ({**SAID, "status": "cancelled"}, PointTexts("q", "", TEXT)),
        ({"user_query": "q", "assistant_response": "", "status": "failed"}, PointTexts("q")),
        ({"user_query": "q", "assistant_response": "", "status": "running"}, PointTexts("q")),
        ({"user_query": 7, "assistant_response": None, "status": "failed"}, PointTexts()),
    ],
    ids=["completed", "of an earlier version", "cancelled", "failed", "running", "unreadable"],
)
def test_a_turn_has_the_vectors_its_status_deserves(payload: dict[str, Any], expected: PointTexts) -> None:
    assert point_texts(TURNS, payload) == expected


async def test_with_the_same_embedding_the_vectors_come_out_as_they_were(tmp_path: Path) -> None:
    """Red when a limit or a text differs from what asking and ingesting embed."""
    settings = make_settings(tmp_path)
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


async def test_collections_of_an_earlier_version_without_a_name_of_their_embedding_are_copied(
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


async def test_collections_that_are_there_already_are_kept_unless_it_is_said(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    await write(store, SESSIONS.name, PAYLOADS[SESSIONS.name])
    await reembed(store, embedding)
    await write(store, NEW.session_collection, [{"title": "a"}, {"title": "b"}])
    with pytest.raises(StartRefusedError, match="t_new_session"):
        await reembed(store, embedding)
    assert (await store.count(NEW.session_collection)).count == 2
    await reembed(store, embedding, replace=True)
    assert (await store.count(NEW.session_collection)).count == 1


async def test_a_copy_that_lacks_points_is_not_called_complete(
    store: VectorStore, embedding: EmbeddingService
) -> None:
    await write(store, CHUNKS.name, PAYLOADS[CHUNKS.name])
    target = ForgetfulClient(":memory:")
    with pytest.raises(CopyIncompleteError, match=r"'t_knowledge' has 67 points.*64 are in the copy"):
        await Reembed(store, OLD, embedding).run(target, NEW, lambda _: None)  # type: ignore[arg-type]
    await target.close()


async def test_an_embedding_that_fails_leaves_what_is_stored_as_it_was(store: VectorStore) -> None:
    await write(store, CHUNKS.name, PAYLOADS[CHUNKS.name])
    before = await read(store, CHUNKS.name)
    broken = EmbeddingService(BrokenEmbedding(), "broken", DIMENSION)
    with pytest.raises(EmbeddingUnavailableError):
        await reembed(store, broken)
    await broken.close()
    assert await read(store, CHUNKS.name) == before
