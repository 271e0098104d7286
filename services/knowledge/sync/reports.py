"""The last report of every source, in memory and as one record each in the operations collection."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError
from qdrant_client import models

from services.knowledge.sync.report import SyncReport
from services.store import VectorStore

log = structlog.get_logger()

RECORD = "sync"
WRITE_EVERY_US = 3_600_000_000  # a report that says nothing new is not worth a write at every run
_NAMESPACE = uuid.UUID("5f0f7a0e-3b64-5a53-8d2e-0c9c5b0f6a77")
_REPORT = TypeAdapter(SyncReport)


class SyncReports:
    """The store's are read once, when they are first asked for. Methods raise StoreUnavailableError."""

    def __init__(self, store: VectorStore, collection: str) -> None:
        self._store = store
        self._collection = collection
        self._last: dict[str, SyncReport] = {}
        self._stored: dict[str, SyncReport] = {}
        self._looked_for: set[str] = set()

    async def last(self, sources: Collection[str]) -> dict[str, SyncReport]:
        """By source; those that never ran are missing."""
        unknown = [source for source in sources if source not in self._looked_for]
        if unknown:
            records = await self._store.retrieve(self._collection, [_id(source) for source in unknown])
            for report in filter(None, [_read(record.payload or {}) for record in records]):
                self._stored[report.source] = report
                self._last.setdefault(report.source, report)
            self._looked_for.update(unknown)
        return {source: self._last[source] for source in sources if source in self._last}

    def note(self, report: SyncReport) -> None:
        """Kept in memory only."""
        self._last[report.source] = report

    async def save(self, report: SyncReport) -> None:
        """Written where it says something new, or the written one is old."""
        self.note(report)
        stored = self._stored.get(report.source)
        if stored and _same(stored, report) and report.ended_us - stored.ended_us < WRITE_EVERY_US:
            return
        payload = {**asdict(report), "record": RECORD}
        point = models.PointStruct(id=_id(report.source), vector={}, payload=payload)
        await self._store.upsert(self._collection, [point])
        self._stored[report.source] = report

    async def forget(self, source: str) -> None:
        self._last.pop(source, None)
        self._stored.pop(source, None)
        ids: Sequence[models.ExtendedPointId] = [_id(source)]
        await self._store.delete(self._collection, models.PointIdsList(points=list(ids)))


def _id(source: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, source))


def _same(one: SyncReport, other: SyncReport) -> bool:
    return replace(one, began_us=0, ended_us=0) == replace(other, began_us=0, ended_us=0)


def _read(payload: dict[str, Any]) -> SyncReport | None:
    fields = {name: value for name, value in payload.items() if name != "record"}
    try:
        return _REPORT.validate_python(fields)
    except ValidationError as error:
        log.warning("sync_report_unreadable", errors=error.error_count())
        return None
