"""Import of an old collection, whatever its vectors: turns are copied, repaired and embedded again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.conversation.turns import TurnStatus
from core.errors import BadRequestError, ConflictError, NotFoundError, StartRefusedError
from core.failpoints import failpoint
from core.operations.backfill import own_id
from core.operations.backfill_turns import (
    BackfillOptions,
    BackfillPlan,
    ImportPlan,
    ImportReport,
    PointId,
    StoredTurn,
    TurnChange,
)
from services.conversation.turns import TurnStore
from services.models.embedding import EmbeddingService
from services.operations.repair.plan import Planner
from services.operations.repair.stored import BackfillWriter, Progress, fields_of, point_id_of
from services.operations.repair.vectors import ALL, MissingVectors, embedded_turn, make_vectors
from services.store.collections import REEMBED_COMMAND
from services.store.dialect import Point, Record, VectorStore
from services.store.points import batches, existing_points

BATCH = 32


class ImportIncompleteError(ConflictError):
    """Not every turn of the old collection was copied."""

    code = "import_incomplete"
    retryable = True


class CollectionImport:
    """`collection` is the current collection of turns; the old one is only read."""

    def __init__(
        self, store: VectorStore, collection: str, session_collection: str, embedding: EmbeddingService | None
    ) -> None:
        self._store = store
        self._collection = collection
        self._sessions = session_collection
        self._embedding = embedding

    async def plan(self, source: str, options: BackfillOptions) -> ImportPlan:
        """Raises NotFoundError, BadRequestError if `source` is in use, StartRefusedError."""
        if source in (self._collection, self._sessions):
            raise BadRequestError(f"{source!r} is in use: name an old collection.")
        if not await self._store.collection_exists(source):
            raise NotFoundError(f"There is no collection {source!r}.")
        if await MissingVectors(self._store, self._collection).are_foreign(self._embedding):
            raise StartRefusedError(
                f"collection {self._collection!r} has vectors of another embedding: "
                f"run `{REEMBED_COMMAND}` first"
            )
        repair = await Planner(self._store, source, self._sessions, questions_only=True).plan(options)
        ids, unreadable = await self._ids(source, repair)
        existing = await existing_points(self._store, self._collection, sorted(set(ids.values())))
        return ImportPlan(source, repair, ids, frozenset(existing), unreadable)

    async def apply(
        self, plan: ImportPlan, writer: BackfillWriter, on_progress: Progress, *, embed: bool = True
    ) -> ImportReport:
        """Copy what does not exist yet; after an interruption the next run continues. Raises
        ImportIncompleteError."""
        changes = {change.point_id: change for change in plan.repair.changes}
        missing = [point for point, turn_id in plan.ids.items() if turn_id not in plan.existing]
        added = embedded = 0
        for page in batches(missing, BATCH):
            points = await self._points(plan, page, changes, embed=embed)
            if points:
                await self._store.upsert(self._collection, points)
            failpoint("backfill.imported")
            added += len(points)
            embedded += sum("turn" in (point.vector or {}) for point in points)
            on_progress(len(page))
        created = await writer.create_sessions(plan.repair.new_sessions)
        await self._compare(plan)
        return replace(plan.report(), dry_run=False, added=added, embedded=embedded, sessions_created=created)

    async def _ids(self, source: str, repair: BackfillPlan) -> tuple[dict[PointId, str], int]:
        """Return the readable turns with their ids, in store order, and the number of unreadable ones."""
        left_out = set(repair.removed)
        sessions = {session.session_id for session in repair.sessions}
        changed = {change.point_id: change.turn_id for change in repair.changes}
        ids: dict[PointId, str] = {}
        unreadable = 0
        async for record in TurnStore(self._store, source).scroll(
            None, with_payload=["session_id", "user_query"]
        ):
            point, payload = point_id_of(record), record.payload or {}
            session = payload.get("session_id")
            if not (session and isinstance(session, str) and isinstance(payload.get("user_query"), str)):
                unreadable += 1
            elif session in sessions and point not in left_out:
                ids[point] = changed.get(point) or own_id(StoredTurn(point))
        return ids, unreadable

    async def _points(
        self, plan: ImportPlan, page: Sequence[PointId], changes: Mapping[PointId, TurnChange], *, embed: bool
    ) -> list[Point]:
        """Build the points to write, without turns that were deleted or already copied meanwhile."""
        existing = await existing_points(self._store, self._collection, [plan.ids[point] for point in page])
        records = await self._store.retrieve(plan.source, page)
        fresh = [record for record in records if plan.ids[point_id_of(record)] not in existing]
        vectors = await self._vectors(fresh, changes, embed=embed)
        return [
            Point(
                id=plan.ids[point_id_of(record)],
                vector=vector,
                payload=_payload(record, changes.get(point_id_of(record))),
            )
            for record, vector in zip(fresh, vectors, strict=True)
        ]

    async def _vectors(
        self, records: Sequence[Record], changes: Mapping[PointId, TurnChange], *, embed: bool
    ) -> list[dict[str, Any]]:
        """Embed completed turns. Without `embed` the next server start makes the vectors."""
        if self._embedding is None or not embed:
            return [{} for _ in records]
        turns = [turn for record in records if (turn := embedded_turn(record)) is not None]
        kinds = [ALL if _is_completed(record, changes) else frozenset[str]() for record in records]
        made = await make_vectors(self._embedding, turns, kinds)
        return [vectors.named() for vectors in made]

    async def _compare(self, plan: ImportPlan) -> None:
        expected = set(plan.ids.values())
        existing = await existing_points(self._store, self._collection, sorted(expected))
        if missing := len(expected - existing):
            raise ImportIncompleteError(
                f"{missing} of {len(expected)} turns of {plan.source!r} are missing: run this again"
            )


def _is_completed(record: Record, changes: Mapping[PointId, TurnChange]) -> bool:
    payload = record.payload or {}
    change = changes.get(point_id_of(record))
    status = change.status if change else payload.get("status")
    return status == TurnStatus.COMPLETED and not payload.get("command")


def _payload(record: Record, change: TurnChange | None) -> dict[str, Any]:
    return {**(record.payload or {}), **(fields_of(change) if change else {})}
