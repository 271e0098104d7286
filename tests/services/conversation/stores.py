"""Conversation stores for the tests of retention and repair: both engines, and records of earlier
versions."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from qdrant_client import AsyncQdrantClient, models

from core.conversation.sessions import Session
from core.conversation.turns import Turn, TurnStatus
from services.adapters.edge.client import open_edge_client
from services.conversation.sessions import SessionStore
from services.conversation.turns import TurnStore, TurnVectors
from services.store.dialect import VectorStore

TURNS = "conversations"
SESSIONS = "sessions"
DIMENSION = 4


def uid(number: int) -> str:
    return str(uuid.UUID(int=number))


async def _make_collections(store: VectorStore) -> None:
    """The two that matter here, without indexes: filters give the same results, and tests start sooner."""
    vector = models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)
    sparse = {"sparse": models.SparseVectorParams(modifier=models.Modifier.IDF)}
    await store.create_collection(TURNS, {"turn": vector, "question": vector}, sparse)
    await store.create_collection(SESSIONS, {}, sparse)


@asynccontextmanager
async def open_edge(folder: Path) -> AsyncIterator[VectorStore]:
    """The embedded store."""
    async with open_edge_client(folder / "store") as store:
        await _make_collections(store)
        yield store


@asynccontextmanager
async def open_memory() -> AsyncIterator[VectorStore]:
    """qdrant-client's local mode, for tests that open hundreds."""
    store = cast(VectorStore, AsyncQdrantClient(":memory:"))
    await _make_collections(store)
    yield store
    await store.close()


def turn_store(store: VectorStore) -> TurnStore:
    return TurnStore(store, TURNS)


async def write_point(
    store: VectorStore, point_id: str | int, vector: dict[str, Any] | None = None, **payload: Any
) -> None:
    """A turn as an earlier version wrote it: only the fields named."""
    fields = {"user_query": f"question {point_id}", "assistant_response": "answer", "context_docs": []}
    point = models.PointStruct(
        id=point_id, vector=vector or {}, payload={**fields, "token_count": 1, **payload}
    )
    await store.upsert(TURNS, [point])


async def write_turn(
    store: VectorStore, number: int, created_us: int, status: str = "completed", session: int = 1, **more: Any
) -> None:
    """A turn as this version writes it."""
    turn = Turn(
        turn_id=uid(number),
        session_id=uid(session),
        owner="local",
        question=f"question {number}",
        created_us=created_us,
        status=TurnStatus(status),
        **more,
    )
    await turn_store(store).put(turn, TurnVectors())


async def write_session(store: VectorStore, number: int, updated_us: int, hold: bool = False) -> None:
    session = Session(uid(number), "local", "a question", updated_us, updated_us, hold)
    await SessionStore(store, SESSIONS).put(session)


async def payloads(store: VectorStore, collection: str = TURNS) -> dict[str, dict[str, Any]]:
    records, _ = await store.scroll(collection, limit=10_000)
    return {str(record.id): record.payload or {} for record in records}
