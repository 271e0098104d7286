"""Turns in the conversation collection: written, read, walked. Every read is limited to one owner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from qdrant_client import models

from core.branch import TurnNode
from core.query import SparseTerms
from core.turns import Turn, TurnStatus
from services.store import VectorStore
from services.turn_payload import SKELETON_FIELDS, from_payload, sparse_vector, to_payload

PAGE = 1_000


@dataclass(frozen=True, slots=True)
class TurnVectors:
    """What a turn is found by. Absent parts are left out of the point and can be added later."""

    question: list[float] | None = None
    turn: list[float] | None = None
    sparse: SparseTerms | None = None

    def named(self) -> dict[str, Any]:
        dense = {"question": self.question, "turn": self.turn}
        vectors: dict[str, Any] = {name: vector for name, vector in dense.items() if vector is not None}
        if self.sparse is not None and self.sparse.indices:
            vectors["sparse"] = sparse_vector(self.sparse)
        return vectors


def equals(field: str, value: str | int | bool) -> models.FieldCondition:
    return models.FieldCondition(key=field, match=models.MatchValue(value=value))


def in_session(session_id: str, owner: str) -> list[models.FieldCondition]:
    return [equals("session_id", session_id), equals("owner", owner)]


class TurnStore:
    def __init__(self, store: VectorStore, collection: str) -> None:
        self._store = store
        self._collection = collection

    async def put(self, turn: Turn, vectors: TurnVectors) -> None:
        """Write the whole turn; the point id is the turn id, so a repeated write cannot duplicate."""
        point = models.PointStruct(id=turn.turn_id, vector=vectors.named(), payload=to_payload(turn))
        await self._store.upsert(self._collection, [point])

    async def add_vectors(self, turn_id: str, vectors: TurnVectors) -> None:
        point = models.PointVectors(id=turn_id, vector=vectors.named())
        await self._store.update_vectors(self._collection, [point])

    async def get(self, turn_id: str) -> Turn | None:
        """One turn of any owner: the caller compares the owner."""
        records = await self._store.retrieve(self._collection, [turn_id], with_payload=True)
        return from_payload(records[0].payload or {}) if records else None

    async def get_many(self, turn_ids: Sequence[str]) -> list[Turn]:
        """In the order of `turn_ids`; those that are gone are left out."""
        if not turn_ids:
            return []
        records = await self._store.retrieve(self._collection, list(turn_ids), with_payload=True)
        found = {str(record.id): from_payload(record.payload or {}) for record in records}
        return [found[turn_id] for turn_id in turn_ids if turn_id in found]

    async def skeleton(self, session_id: str, owner: str) -> dict[str, TurnNode]:
        """Every turn of a session without its texts, by turn id."""
        wanted = models.Filter(must=[*in_session(session_id, owner)])
        nodes: dict[str, TurnNode] = {}
        async for record in self.scroll(wanted, with_payload=SKELETON_FIELDS):
            payload = record.payload or {}
            nodes[str(record.id)] = TurnNode(
                turn_id=str(record.id),
                parent_turn_id=payload.get("parent_turn_id"),
                created_us=payload.get("created_us", 0),
                seq=payload.get("seq", 0),
                status=TurnStatus(payload.get("status", TurnStatus.COMPLETED)),
            )
        return nodes

    async def scroll(
        self, wanted: models.Filter | None, *, with_payload: Any = True, with_vectors: Any = False
    ) -> AsyncIterator[models.Record]:
        """Every matching point, page by page, in id order."""
        offset: Any = None
        while True:
            records, offset = await self._store.scroll(
                self._collection,
                scroll_filter=wanted,
                limit=PAGE,
                offset=offset,
                with_payload=with_payload,
                with_vectors=with_vectors,
            )
            for record in records:
                yield record
            if offset is None:
                return

    async def search(self, requests: Sequence[models.QueryRequest]) -> list[list[models.ScoredPoint]]:
        """Several searches in one round trip."""
        responses = await self._store.query_batch_points(self._collection, requests)
        return [response.points for response in responses]

    async def count(self, wanted: models.Filter | None = None) -> int:
        return (await self._store.count(self._collection, count_filter=wanted)).count

    async def delete(self, turn_ids: Sequence[str]) -> None:
        await self._store.delete(self._collection, models.PointIdsList(points=list(turn_ids)))

    async def delete_matching(self, wanted: models.Filter) -> None:
        await self._store.delete(self._collection, models.FilterSelector(filter=wanted))

    async def set_payload(self, payload: dict[str, Any], turn_ids: Sequence[str]) -> None:
        await self._store.set_payload(self._collection, payload, points=list(turn_ids))
