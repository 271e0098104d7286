"""Puts back what a repair changed, from its undo file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from qdrant_client import models

from core.errors import BadRequestError
from core.failpoints import failpoint
from core.operations.backfill_turns import PointId
from services.operations.repair.undo_file import Added, Line, Removed, Rewritten, Undo, payload_digest
from services.operations.repair.writing import Progress
from services.store.dialect import VectorStore

_ABSENT = object()


@dataclass(frozen=True, slots=True)
class UndoReport:
    """`restored` points (in a dry run: to restore); `already` are as they were before the repair.

    `refused` changed since the repair and `gone` were deleted since: both are left as they are.
    """

    dry_run: bool
    restored: int = 0
    already: int = 0
    gone: int = 0
    refused: tuple[PointId, ...] = ()


class BackfillUndo:
    """Vectors are kept: those that a move carried go back with it, those that were made since stay."""

    def __init__(self, store: VectorStore, collection: str, *, dry_run: bool) -> None:
        self._store = store
        self._collection = collection
        self._dry_run = dry_run
        self._report = UndoReport(dry_run)

    async def run(self, undo: Undo, told: Progress) -> UndoReport:
        """From the last line to the first, each point for itself; run again, it goes on where it was cut.

        Raises BadRequestError when the file is of another collection, StoreUnavailableError.
        """
        if undo.collection != self._collection:
            raise BadRequestError(f"The undo file is of the collection {undo.collection!r}.")
        for line in undo.lines:
            await self._undo(line)
            failpoint("backfill.undone")
            told(1)
        return self._report

    async def _undo(self, line: Line) -> None:
        match line:
            case Rewritten(former=None):
                await self._set_back(line)
            case Rewritten(former=former):
                await self._move_back(line, former)
            case Removed():
                await self._bring_back(line)
            case Added():
                await self._take_away(line)

    async def _set_back(self, line: Rewritten) -> None:
        """The whole point is written: to set a field to null takes it away, and some were null."""
        record = await self._found(line.point, vectors=True)
        payload = record.payload or {} if record else {}
        if record is None:
            self._count(gone=1)
        elif _is_former(line, payload):
            self._count(already=1)
        elif not _is_written(line, payload):
            self._refuse(line.point)
        else:
            await self._upsert(line.point, _former_payload(line, payload), record.vector)
            self._count(restored=1)

    async def _move_back(self, line: Rewritten, former: PointId | None) -> None:
        copy = await self._found(line.point, vectors=True)
        original = await self._found(former, vectors=False)
        if copy is None or not _is_written(line, copy.payload or {}):
            if original is not None:  # never moved, or moved back before
                self._count(already=1)
            elif copy is None:
                self._count(gone=1)
            else:
                self._refuse(line.point)
            return
        if original is None:
            await self._upsert(former, _former_payload(line, copy.payload or {}), copy.vector)
            failpoint("backfill.moved_back")
        await self._delete(self._collection, line.point)
        self._count(restored=1)

    async def _bring_back(self, line: Removed) -> None:
        record = await self._found(line.point, vectors=False)
        if record is None:
            await self._upsert(line.point, line.payload, line.vector)
            self._count(restored=1)
        elif record.payload == line.payload:
            self._count(already=1)
        else:
            self._refuse(line.point)

    async def _take_away(self, line: Added) -> None:
        record = await self._found(line.point, line.collection, vectors=False)
        if record is None:
            self._count(already=1)
        elif payload_digest(record.payload or {}) != line.digest:
            self._refuse(line.point)
        else:
            await self._delete(line.collection, line.point)
            self._count(restored=1)

    async def _found(
        self, point: PointId | None, collection: str = "", *, vectors: bool
    ) -> models.Record | None:
        records = await self._store.retrieve(collection or self._collection, [point], with_vectors=vectors)
        return records[0] if records else None

    async def _upsert(self, point: PointId | None, payload: dict[str, Any], vector: Any) -> None:
        if self._dry_run:
            return
        struct = models.PointStruct.model_validate({"id": point, "vector": vector or {}, "payload": payload})
        await self._store.upsert(self._collection, [struct])

    async def _delete(self, collection: str, point: PointId) -> None:
        if not self._dry_run:
            await self._store.delete(collection, models.PointIdsList(points=[point]))

    def _count(self, *, restored: int = 0, already: int = 0, gone: int = 0) -> None:
        report = self._report
        self._report = replace(
            report,
            restored=report.restored + restored,
            already=report.already + already,
            gone=report.gone + gone,
        )

    def _refuse(self, point: PointId) -> None:
        self._report = replace(self._report, refused=(*self._report.refused, point))


def _is_written(line: Rewritten, payload: Mapping[str, Any]) -> bool:
    """Null reads as absent: a store may take a field away that is set to it."""
    return all(_same(payload.get(name), value) for name, value in line.wrote.items())


def _is_former(line: Rewritten, payload: Mapping[str, Any]) -> bool:
    return all(_same(payload.get(name, _ABSENT), line.was.get(name, _ABSENT)) for name in line.wrote)


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _former_payload(line: Rewritten, payload: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in payload.items() if name not in line.wrote}
    return {**kept, **line.was}
