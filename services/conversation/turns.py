"""Turns in the conversation collection: written, read, walked. Every read is limited to one owner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from core.conversation.branch import SessionTree, TurnNode
from core.conversation.turns import Turn, TurnStatus
from core.relevance.sparse import SparseTerms
from services.conversation.payload import SKELETON_FIELDS, from_payload, to_payload
from services.conversation.tree_cache import SessionCache
from services.store.dialect import (
    Filter,
    Point,
    PointVectors,
    QueryRequest,
    Record,
    ScoredPoint,
    VectorStore,
    sparse_vector,
)
from services.store.filters import by_ids, in_session, matching
from services.store.pages import scroll_all

log = structlog.get_logger()

PAGE = 1_000
_NODE = TypeAdapter(TurnNode)
_TREE_FIELDS = frozenset((*SKELETON_FIELDS, "session_id", "owner"))


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


class TurnStore:
    """`cache_s` is how long a session's tree is kept after its last turn; 0 where others write too."""

    def __init__(self, store: VectorStore, collection: str, cache_s: float = 0.0) -> None:
        self._store = store
        self._collection = collection
        self._cache = SessionCache(cache_s)

    async def put(self, turn: Turn, vectors: TurnVectors) -> None:
        """Write the whole turn; the point id is the turn id, so a repeated write cannot duplicate."""
        await self.put_many([(turn, vectors)])

    async def put_many(self, turns: Sequence[tuple[Turn, TurnVectors]]) -> None:
        """Write whole turns in one request, as an import does. None at all are refused, as the store does."""
        points = [
            Point(id=turn.turn_id, vector=vectors.named(), payload=to_payload(turn))
            for turn, vectors in turns
        ]
        with self._cache.writing([turn for turn, _ in turns]):
            await self._store.upsert(self._collection, points)

    async def add_vectors(self, added: Mapping[str, TurnVectors]) -> None:
        """By turn id. Raises UnknownPointError when one is gone; the others have theirs then."""
        points = [PointVectors(id=turn_id, vector=each.named()) for turn_id, each in added.items()]
        await self._store.update_vectors(self._collection, points)

    async def get(self, turn_id: str) -> Turn | None:
        """One turn of any owner: the caller compares the owner. None when there is none that can be read."""
        turns = await self.get_many([turn_id])
        return turns[0] if turns else None

    async def get_many(self, turn_ids: Sequence[str]) -> list[Turn]:
        """In the order of `turn_ids`; those that are gone or cannot be read are left out."""
        if not turn_ids:
            return []
        records = await self._store.retrieve(self._collection, list(turn_ids), with_payload=True)
        read = {str(record.id): _readable(record) for record in records}
        by_id = {turn_id: turn for turn_id, turn in read.items() if turn is not None}
        _warn_of_unreadable(len(read) - len(by_id), len(read))
        return [by_id[turn_id] for turn_id in turn_ids if turn_id in by_id]

    async def tree(self, session_id: str, owner: str) -> SessionTree:
        """The session without its texts, kept for the next turn where that is safe: not to be changed."""
        known = self._cache.get(session_id, owner)
        if known is not None:
            return known
        with self._cache.reading(session_id, owner) as reading:
            tree = await self._read_tree(session_id, owner)
            self._cache.keep(reading, tree)
        return tree

    def forget_trees(self) -> None:
        """To be called by whoever has written to the collection past this store."""
        self._cache.forget()

    async def _read_tree(self, session_id: str, owner: str) -> SessionTree:
        point_filter = Filter(must=[*in_session(session_id, owner)])
        nodes: list[TurnNode] = []
        gaps: dict[str, str | None] = {}
        async for record in self.scroll(point_filter, with_payload=SKELETON_FIELDS):
            payload = record.payload or {}
            try:
                nodes.append(_node(str(record.id), payload))
            except ValidationError:
                parent = payload.get("parent_turn_id")
                gaps[str(record.id)] = parent if isinstance(parent, str) else None
        _warn_of_unreadable(len(gaps), len(nodes) + len(gaps), session_id=session_id)
        return SessionTree(session_id, nodes, gaps)

    async def scroll(
        self, point_filter: Filter | None, *, with_payload: Any = True, with_vectors: Any = False
    ) -> AsyncIterator[Record]:
        """Every matching point, page by page, in id order."""
        async for record in scroll_all(
            self._store,
            self._collection,
            point_filter,
            size=PAGE,
            with_payload=with_payload,
            with_vectors=with_vectors,
        ):
            yield record

    async def search(self, requests: Sequence[QueryRequest]) -> list[list[ScoredPoint]]:
        """Several searches in one round trip."""
        responses = await self._store.query_batch_points(self._collection, requests)
        return [response.points for response in responses]

    async def count(self, point_filter: Filter | None = None) -> int:
        return (await self._store.count(self._collection, count_filter=point_filter)).count

    async def delete(self, turn_ids: Sequence[str]) -> None:
        with self._cache.changing(turn_ids):
            await self._store.delete(self._collection, by_ids(turn_ids))

    async def delete_matching(self, point_filter: Filter) -> None:
        with self._cache.changing():
            await self._store.delete(self._collection, matching(point_filter))

    async def set_payload(self, payload: dict[str, Any], turn_ids: Sequence[str]) -> None:
        touched = turn_ids if _TREE_FIELDS.intersection(payload) else ()
        with self._cache.changing(touched):
            await self._store.set_payload(self._collection, payload, points=list(turn_ids))


def _node(turn_id: str, stored: Mapping[str, Any]) -> TurnNode:
    """Of SKELETON_FIELDS, of which earlier versions wrote fewer."""
    missing = {"parent_turn_id": None, "created_us": 0, "seq": 0, "status": TurnStatus.COMPLETED}
    has_summary = bool(stored.get("summary_start"))
    return _NODE.validate_python({**missing, **stored, "turn_id": turn_id, "has_summary": has_summary})


def _readable(record: Record) -> Turn | None:
    try:
        return from_payload(record.payload or {}, str(record.id))
    except ValidationError:
        return None


def _warn_of_unreadable(number: int, of: int, **where: str) -> None:
    if number:
        log.warning("unreadable_turns_skipped", number=number, of=of, **where)
