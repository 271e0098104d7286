"""Reads the turns that a repair plans for, and writes the planned changes in batches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from core.conversation.sessions import Session
from core.failpoints import failpoint
from core.operations.backfill_turns import PointId, Repair, StoredTurn, TurnChange
from services.store.dialect import Point, Record, UnknownPointError, VectorStore
from services.store.points import batches, by_ids, existing_points, retrieve_all

FIELDS = [*(repair.value for repair in Repair), "session_id", "legacy_turn_id", "legacy_point_id"]


def stored_turn(record: Record) -> StoredTurn:
    payload = record.payload or {}
    return StoredTurn(
        point_id=point_id_of(record),
        turn_id=text_of(payload.get("turn_id")),
        parent_turn_id=text_of(payload.get("parent_turn_id")),
        timestamp=text_of(payload.get("timestamp")) or "",
        created_us=number_of(payload.get("created_us")),
        seq=number_of(payload.get("seq")),
        owner=text_of(payload.get("owner")) or None,
        status=text_of(payload.get("status")),
        schema=number_of(payload.get("schema")),
        legacy_turn_id=text_of(payload.get("legacy_turn_id")),
        legacy_point_id=payload.get("legacy_point_id"),
    )


def point_id_of(record: Record) -> PointId:
    return record.id if isinstance(record.id, int) else str(record.id)


def text_of(value: object) -> str | None:
    """Return a string, or a number as text: numbers were once used as ids, and children name them as text."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def number_of(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


async def text_digests(store: VectorStore, collection: str, points: Sequence[PointId]) -> dict[PointId, str]:
    """Digest question and answer of each turn; "" without a question."""
    fields = ["user_query", "assistant_response"]
    records = retrieve_all(store, collection, points, fields)
    return {point_id_of(record): _digest(record) async for record in records}


def _digest(record: Record) -> str:
    payload = record.payload or {}
    question, answer = text_of(payload.get("user_query")), text_of(payload.get("assistant_response"))
    if not question:
        return ""
    return hashlib.sha256(f"{len(question)}:{question}{answer or ''}".encode(errors="replace")).hexdigest()


BATCH = 200
MOVE_BATCH = 16  # whole points with vectors

Progress = Callable[[int], object]
"""Called with the number of turns written since the last call."""


@dataclass(slots=True)
class Written:
    """Turns that were `deleted` since the plan, or `skipped` because they have changed since."""

    deleted: int = 0
    skipped: int = 0


class BackfillWriter:
    def __init__(self, store: VectorStore, collection: str, session_collection: str) -> None:
        self._store = store
        self._collection = collection
        self._session_collection = session_collection
        self.written = Written()

    async def change(self, changes: Iterable[TurnChange], on_progress: Progress) -> None:
        """Write changes in the given order. Vectors are touched only where a point moves to its turn id."""
        for moved, group in groupby(changes, key=lambda change: change.rehomed):
            for batch in batches(list(group), MOVE_BATCH if moved else BATCH):
                await (self._move(batch) if moved else self._set(batch))
                on_progress(len(batch))

    async def remove(self, points: Iterable[PointId], on_progress: Progress) -> None:
        for page in batches(list(points), BATCH):
            await self._delete(page)
            on_progress(len(page))

    async def create_sessions(self, sessions: Sequence[Session]) -> int:
        """Create sessions, except those created by others since the plan. Returns how many."""
        known = await existing_points(
            self._store, self._session_collection, [session.session_id for session in sessions]
        )
        fresh = [session for session in sessions if session.session_id not in known]
        for page in batches(fresh):
            points = [Point(id=each.session_id, vector={}, payload=asdict(each)) for each in page]
            await self._store.upsert(self._session_collection, points)
        return len(fresh)

    async def _set(self, batch: Sequence[TurnChange]) -> None:
        records = await self._store.retrieve(
            self._collection, [c.point_id for c in batch], with_payload=FIELDS
        )
        failpoint("backfill.begun")
        for change, _ in self._unchanged(batch, records):
            try:
                await self._store.set_payload(self._collection, fields_of(change), points=[change.point_id])
            except UnknownPointError:
                self.written.deleted += 1
            failpoint("backfill.turn")

    async def _move(self, batch: Sequence[TurnChange]) -> None:
        """Copy points to their turn ids, then delete them; if cut off between, a copy names its original."""
        records = await self._store.retrieve(self._collection, [c.point_id for c in batch], with_vectors=True)
        unchanged = list(self._unchanged(batch, records))
        if not unchanged:
            return
        failpoint("backfill.begun")
        await self._store.upsert(self._collection, [_copy(change, record) for change, record in unchanged])
        failpoint("backfill.copied")
        await self._delete([change.point_id for change, _ in unchanged])
        for _ in unchanged:
            failpoint("backfill.turn")

    def _unchanged(
        self, batch: Sequence[TurnChange], records: Sequence[Record]
    ) -> Iterator[tuple[TurnChange, Record]]:
        """Yield changes whose turn is unchanged since the plan, with its point; the others are counted."""
        by_id = {point_id_of(record): record for record in records}
        for change in batch:
            record = by_id.get(change.point_id)
            if record is None:
                self.written.deleted += 1
            elif stored_turn(record) != change.before:
                self.written.skipped += 1
            else:
                yield change, record

    async def _delete(self, points: Sequence[PointId]) -> None:
        await self._store.delete(self._collection, by_ids(points))


def fields_of(change: TurnChange) -> dict[str, Any]:
    """Return the payload fields to write."""
    values = {repair.value: getattr(change, repair.value) for repair in change.repairs}
    if change.legacy_turn_id is not None:
        values["legacy_turn_id"] = change.legacy_turn_id
    if change.rehomed:
        values["legacy_point_id"] = change.point_id
    return values


def _copy(change: TurnChange, record: Record) -> Point:
    vector: Any = record.vector or {}
    payload = {**(record.payload or {}), **fields_of(change)}
    return Point(id=change.turn_id, vector=vector, payload=payload)
