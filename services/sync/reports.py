"""The last report of every source, in memory and as one record each in the operations collection."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from services.store.dialect import AnyPointId, Point, VectorStore
from services.store.filters import by_ids
from services.sync.scanner import KindCount

# What a run did, for the operator: counts, and every file that could not be read with its reason.


MOST_FAILURES = 1_000
MOST_KINDS = 50


@dataclass(frozen=True, slots=True)
class SyncFailure:
    """`path` is below the source's folder; `since_us` is when a run first said so, UTC microseconds."""

    path: str
    reason: str
    since_us: int


@dataclass(frozen=True, slots=True)
class SyncReport:
    """One run over one source. Times are UTC microseconds.

    `failed` files cannot be read as they are; `failures` names at most 1,000 of them. `changing` were being
    written and `not_reached` were left, for the reason in `stopped`; the next run takes both up. `skipped`
    are kinds of files that cannot be read at all. `problem` is a plain sentence when the folder could not be
    followed, or when `held_back` documents were not removed. `cancelled`: a shutdown ended it early.
    """

    source: str
    began_us: int
    ended_us: int
    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    failed: int = 0
    failures: tuple[SyncFailure, ...] = ()
    skipped: tuple[KindCount, ...] = ()
    held_back: int = 0
    changing: int = 0
    not_reached: int = 0
    problem: str = ""
    stopped: str = ""
    cancelled: bool = False

    @property
    def is_fine(self) -> bool:
        return not (self.failed or self.held_back or self.not_reached or self.problem or self.cancelled)


class Tally:
    """A report in the making."""

    def __init__(self, source: str, began_us: int, before: SyncReport | None = None) -> None:
        """`before` is the report of the last run: failures that it had, too, keep their time."""
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
        failures = sorted(self._failures)[:MOST_FAILURES]
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
            skipped=tuple(self.skipped[:MOST_KINDS]),
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


def skipped_words(skipped: Sequence[KindCount]) -> str:
    """12 files of kinds that cannot be read: .exe ×10, .mp4 ×2. Empty when there are none."""
    if not skipped:
        return ""
    total = sum(kind.count for kind in skipped)
    shown = ", ".join(f"{kind.ending or 'no ending'} ×{kind.count}" for kind in skipped)
    files, kinds = ("file", "a kind") if total == 1 else ("files", "kinds")
    return f"{total} {files} of {kinds} that cannot be read: {shown}"


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


def _read(payload: dict[str, Any]) -> SyncReport | None:
    fields = {name: value for name, value in payload.items() if name != "record"}
    try:
        return _REPORT.validate_python(fields)
    except ValidationError as error:
        log.warning("sync_report_unreadable", errors=error.error_count())
        return None
