"""Old collections are copied into the conversations, whatever their vectors (issue: the eight fields).

Discriminates: reading vectors of the old collection; overwriting an existing turn; ids that differ from run
to run; a turn without its session's record.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from qdrant_client import AsyncQdrantClient, models

from config.settings import StoreSettings
from core.errors import BadRequestError, NotFoundError, StartRefusedError
from core.operations.backfill_turns import BackfillOptions, ImportReport
from services.conversation.sessions import SessionStore
from services.models.embedding import EmbeddingService
from services.operations.repair.importing import ImportIncompleteError
from services.operations.repair.run import Backfill
from services.store.collections import ensure_collections
from services.store.dialect import VectorStore
from tests.services.conversation.stores import SESSIONS, TURNS, payloads, turn_store, uid
from tests.support.models.hashing_embedding import DIMENSION, HashingEmbedding

OLD = "chat_history"
S1, S2 = uid(100), uid(200)


@pytest.fixture(params=["edge", "reference"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorStore]:
    """The conversations as a server creates them, and an old collection: with unnamed vectors where
    possible."""
    from services.adapters.edge.client import open_edge_client

    if request.param == "edge":
        async with open_edge_client(tmp_path / "store") as edge:
            old = {"dense": models.VectorParams(size=3, distance=models.Distance.DOT)}
            await edge.create_collection(OLD, old)
            await ensure_collections(edge, StoreSettings(), embedding_name="h", dimension=DIMENSION)
            yield edge
        return
    client = AsyncQdrantClient(":memory:")
    await client.create_collection(OLD, models.VectorParams(size=3, distance=models.Distance.COSINE))
    store = cast(VectorStore, client)
    await ensure_collections(store, StoreSettings(), embedding_name="h", dimension=DIMENSION)
    yield store
    await client.close()


@pytest.fixture
async def job(store: VectorStore) -> AsyncIterator[Backfill]:
    embedding = EmbeddingService(HashingEmbedding(), "h", DIMENSION)
    yield Backfill(turn_store(store), store, TURNS, SESSIONS, embedding)
    await embedding.close()


async def write_old(store: VectorStore, point_id: str | int, minute: int, **more: Any) -> None:
    """A turn with the eight fields, or fewer."""
    payload = {
        "session_id": S1,
        "user_query": f"question {point_id}",
        "assistant_response": "答案",
        "timestamp": f"2024-05-01T10:{minute:02}:00",
        "context_docs": ["a text", {"text": "another", "score": 0.5}],
        "token_count": 7,
        **more,
    }
    named = "dense" in cast(Any, (await store.get_collection(OLD)).config.params.vectors or {})
    vector: Any = {"dense": [1.0, 2.0, 3.0]} if named else [1.0, 2.0, 3.0]
    await store.upsert(OLD, [models.PointStruct(id=point_id, vector=vector, payload=payload)])


async def old_conversations(store: VectorStore) -> None:
    await write_old(store, 1, 0)
    await write_old(store, 2, 1, context_docs="one text")
    await write_old(store, uid(3), 0, session_id=S2, turn_id=uid(13), parent_turn_id=None)
    await write_old(store, uid(4), 1, session_id=S2, turn_id=uid(14), parent_turn_id=uid(13))
    await write_old(store, uid(5), 2, session_id=S2, turn_id=uid(15), parent_turn_id=uid(13))
    await write_old(store, 6, 0, user_query=None)
    await write_old(store, 7, 0, session_id=17)


async def run(job: Backfill, **options: Any) -> ImportReport:
    plan = await job.plan_import(OLD, BackfillOptions("Asia/Shanghai"))
    return await job.apply_import(plan, **options)


async def vectors(store: VectorStore) -> dict[str, Any]:
    records, _ = await store.scroll(TURNS, limit=100, with_vectors=True)
    return {str(record.id): record.vector for record in records}


async def test_turns_are_imported_repaired_embedded_and_listed_and_the_old_ones_stay(
    store: VectorStore, job: Backfill
) -> None:
    await old_conversations(store)
    before = await payloads(store, OLD)
    report = await run(job)
    assert (report.turns, report.added, report.embedded, report.unreadable) == (5, 5, 5, 2)
    assert await payloads(store, OLD) == before
    nodes = (await turn_store(store).tree(S2, "local")).nodes
    assert {name: node.parent_turn_id for name, node in nodes.items()} == {
        uid(13): None, uid(14): uid(13), uid(15): uid(13),
    }  # fmt: skip
    first, second = sorted((await turn_store(store).tree(S1, "local")).nodes.values(), key=lambda n: n.order)
    assert (first.parent_turn_id, second.parent_turn_id) == (None, first.turn_id)
    assert first.created_us == 1_714_557_600_000_000 - 8 * 3_600_000_000
    assert {name for stored in (await vectors(store)).values() for name in stored} == {
        "question", "turn", "sparse",
    }  # fmt: skip
    session = await SessionStore(store, SESSIONS).get(S1, "local")
    assert session.title == "question 1"


async def test_context_of_old_versions_is_kept_and_the_turns_are_readable(
    store: VectorStore, job: Backfill
) -> None:
    await old_conversations(store)
    await run(job)
    stored = {payload["user_query"]: payload for payload in (await payloads(store)).values()}
    assert stored["question 1"]["context_docs"] == ["a text", {"text": "another", "score": 0.5}]
    assert stored["question 2"]["context_docs"] == "one text"
    turns = await turn_store(store).get_many(list(await payloads(store)))
    assert {turn.answer for turn in turns} == {"答案"}
    assert len(turns) == 5


async def test_a_second_import_adds_nothing_and_an_interrupted_one_is_finished(
    store: VectorStore, job: Backfill
) -> None:
    await old_conversations(store)
    await run(job)
    whole = await payloads(store), await vectors(store)
    report = await run(job)
    assert (report.added, report.existing, report.sessions_created) == (0, 5, 0)
    await turn_store(store).delete([uid(14)])
    await store.set_payload(TURNS, {"feedback": "up"}, points=[uid(13)])
    assert (await run(job)).added == 1
    stored = await payloads(store)
    assert stored.pop(uid(13))["feedback"] == "up"
    assert stored == {name: payload for name, payload in whole[0].items() if name != uid(13)}
    assert (await vectors(store)).keys() == whole[1].keys()
    assert (await job.plan()).report().nothing_to_do


async def test_planning_an_import_writes_nothing(store: VectorStore, job: Backfill) -> None:
    await old_conversations(store)
    report = (await job.plan_import(OLD, BackfillOptions())).report()
    assert (report.dry_run, report.turns, report.existing, report.sessions_created) == (True, 5, 0, 2)
    assert report.troubles["missing_turn_id"] == 2
    assert await payloads(store) == {}


async def test_a_backup_precedes_an_import_if_there_is_something_to_add(
    store: VectorStore,
) -> None:
    stored: list[int] = []

    async def back_up(reason: str) -> str:
        stored.append(len(await payloads(store)))
        return f"{reason}.zip"

    await old_conversations(store)
    job = Backfill(turn_store(store), store, TURNS, SESSIONS, back_up=back_up)
    assert (await run(job)).backup == "command.zip"
    assert (await run(job)).backup == ""
    assert stored == [0]


async def test_without_embedding_the_next_start_creates_the_vectors(
    store: VectorStore, job: Backfill
) -> None:
    await old_conversations(store)
    assert (await run(job, embed=False)).embedded == 0
    assert len((await job.plan()).lacking) == 5


async def test_a_turn_lost_meanwhile_is_not_reported_as_imported(store: VectorStore, job: Backfill) -> None:
    """Discriminates: reporting what was to be copied without checking whether it is stored."""
    await old_conversations(store)
    plan = await job.plan_import(OLD, BackfillOptions("Asia/Shanghai"))
    await store.delete(OLD, models.PointIdsList(points=[uid(4)]))
    with pytest.raises(ImportIncompleteError, match="1 of 5 turns"):
        await job.apply_import(plan)


async def test_only_an_old_collection_can_be_imported(store: VectorStore, job: Backfill) -> None:
    with pytest.raises(NotFoundError, match="elsewhere"):
        await job.plan_import("elsewhere", BackfillOptions())
    for name in (TURNS, SESSIONS):
        with pytest.raises(BadRequestError, match="in use"):
            await job.plan_import(name, BackfillOptions())
    other = EmbeddingService(HashingEmbedding(), "another", DIMENSION)
    with pytest.raises(StartRefusedError, match="wenmai reembed"):
        await Backfill(turn_store(store), store, TURNS, SESSIONS, other).plan_import(OLD, BackfillOptions())
    await other.close()


async def test_a_collection_of_one_unnamed_vector_is_repaired_in_place() -> None:
    """CONVERSATION_COLLECTION itself may be an old one; its vectors stay for `wenmai reembed`."""
    client = AsyncQdrantClient(":memory:")
    await client.create_collection(OLD, models.VectorParams(size=3, distance=models.Distance.DOT))
    await client.create_collection(SESSIONS, {})
    store = cast(VectorStore, client)
    for number in range(3):
        await write_old(store, number, number, turn_id=uid(10 + number))
    turns = turn_store(store)
    job = Backfill(type(turns)(store, OLD), store, OLD, SESSIONS)
    report = await job.apply(await job.plan())
    assert (report.rehomed, report.foreign_vectors) == (3, True)
    records, _ = await store.scroll(OLD, with_vectors=True)
    assert {str(each.id): each.vector for each in records} == {uid(10 + n): [1.0, 2.0, 3.0] for n in range(3)}
    await client.close()
