"""The tally of a run, the last report of each source, and the number of documents of a source."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import asdict, replace

from pydantic import TypeAdapter

from core.knowledge import DocumentStatus
from core.operations.sync import KindCount, LeftSource, SyncFailure, SyncReport
from services.store.dialect import AnyPointId, Condition, Filter, Point, VectorStore
from services.store.points import by_ids, equals, read_or_none

MAX_FAILURES = 1_000
MAX_KINDS = 50
MAX_SOURCES = 1_000
RECORD = "sync"
WRITE_EVERY_US = 3_600_000_000  # how often a report without changes is written
_NAMESPACE = uuid.UUID("5f0f7a0e-3b64-5a53-8d2e-0c9c5b0f6a77")
_REPORT = TypeAdapter(SyncReport)


class Tally:
    """A report in the making."""

    def __init__(self, source: str, began_us: int, before: SyncReport | None) -> None:
        """`before` is the report of the last run: failures that persist keep their time."""
        self.source = source
        self.began_us = began_us
        self.added = self.changed = self.removed = self.unchanged = 0
        self.changing = self.not_reached = self.held_back = 0
        self.problem = self.stopped = ""
        self.skipped: Sequence[KindCount] = ()
        self._since = _known_since(before)
        self._failures: list[tuple[str, str]] = []

    def fail(self, path: str, reason: str) -> None:
        self._failures.append((path, reason))

    def report(self, now_us: int, *, cancelled: bool = False) -> SyncReport:
        failures = sorted(self._failures)[:MAX_FAILURES]
        return SyncReport(
            source=self.source,
            began_us=self.began_us,
            ended_us=now_us,
            added=self.added,
            changed=self.changed,
            removed=self.removed,
            unchanged=self.unchanged,
            failed=len(self._failures),
            failures=tuple(
                SyncFailure(path, reason, self._since.get((path, reason), self.began_us))
                for path, reason in failures
            ),
            skipped=tuple(self.skipped[:MAX_KINDS]),
            held_back=self.held_back,
            changing=self.changing,
            not_reached=self.not_reached,
            problem=self.problem,
            stopped=self.stopped,
            cancelled=cancelled,
        )


def _known_since(before: SyncReport | None) -> Mapping[tuple[str, str], int]:
    failures = before.failures if before else ()
    return {(failure.path, failure.reason): failure.since_us for failure in failures}


class SyncReports:
    """Stored reports are read once, on first use. Methods raise StoreUnavailableError."""

    def __init__(self, store: VectorStore, collection: str) -> None:
        self._store = store
        self._collection = collection
        self._last: dict[str, SyncReport] = {}
        self._stored: dict[str, SyncReport] = {}
        self._loaded: set[str] = set()

    async def last(self, sources: Collection[str]) -> dict[str, SyncReport]:
        """Return the last report by source, without sources that never ran."""
        unknown = [source for source in sources if source not in self._loaded]
        if unknown:
            records = await self._store.retrieve(self._collection, [_id(source) for source in unknown])
            read = [read_or_none(_REPORT, each.payload or {}, "sync_report_unreadable") for each in records]
            for report in filter(None, read):
                self._stored[report.source] = report
                self._last.setdefault(report.source, report)
            self._loaded.update(unknown)
        return {source: self._last[source] for source in sources if source in self._last}

    def note(self, report: SyncReport) -> None:
        """Keep the report in memory only."""
        self._last[report.source] = report

    async def save(self, report: SyncReport) -> None:
        """Store the report if it differs from the stored one, or that is old."""
        self.note(report)
        stored = self._stored.get(report.source)
        if stored and _same(stored, report) and report.ended_us - stored.ended_us < WRITE_EVERY_US:
            return
        payload = {**asdict(report), "record": RECORD}
        point = Point(id=_id(report.source), vector={}, payload=payload)
        await self._store.upsert(self._collection, [point])
        self._stored[report.source] = report

    async def forget(self, source: str) -> None:
        self._last.pop(source, None)
        self._stored.pop(source, None)
        ids: Sequence[AnyPointId] = [_id(source)]
        await self._store.delete(self._collection, by_ids(ids))


def _id(source: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, source))


def _same(one: SyncReport, other: SyncReport) -> bool:
    return replace(one, began_us=0, ended_us=0) == replace(other, began_us=0, ended_us=0)


class SourceCounts:
    """Methods raise StoreUnavailableError."""

    def __init__(self, store: VectorStore, collection: str) -> None:
        self._store = store
        self._collection = collection

    async def left(self, configured: Container[str]) -> list[LeftSource]:
        """Return sources that documents name but the configuration does not, sorted by name."""
        facet = await self._store.facet(self._collection, "source", limit=MAX_SOURCES)
        counts = {str(hit.value): hit.count for hit in facet.hits if hit.count}  # the engine lists deleted
        return [LeftSource(name, counts[name]) for name in sorted(counts) if name and name not in configured]

    async def ready(self, source: str, owner: str) -> int:
        """Count the documents that can be searched."""
        conditions: list[Condition] = [
            equals("source", source),
            equals("owner", owner),
            equals("status", DocumentStatus.READY.value),
        ]
        return (await self._store.count(self._collection, Filter(must=conditions))).count
