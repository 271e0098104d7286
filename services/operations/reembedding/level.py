"""One collection brought level with another whose vectors are another embedding's.

Only what differs is embedded and written, so it can be done again at any moment, and goes on after a crash.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from core.conversation.turns import TurnStatus
from core.errors import StartRefusedError
from core.failpoints import failpoint
from services.operations.reembedding.points import PointMaker, deserves, has_all, lacks, point_texts
from services.store.collections import CollectionSpec
from services.store.dialect import Point, Record, VectorStore
from services.store.filters import by_ids
from services.store.pages import IDS_AT_ONCE, batches, scroll_pages

PAGE = 32  # points compared at a time; a turn with its prompt may have 100 kB
BATCH = 4  # points embedded at a time
MARK_ID = (
    "5f0e6a0c-6f4b-5d6a-9f0d-2f1f6f1f7a11"  # the note of services.operations.reembedding.marks; never copied
)
STAMPS = ("created_us", "began_us")
LATE_US = 60_000_000  # a turn is stamped a little before it is written

Pause = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Changes:
    """Counts of one round, or of several: points compared, written (of these embedded anew), removed."""

    compared: int = 0
    written: int = 0
    embedded: int = 0
    removed: int = 0

    @property
    def changed(self) -> int:
        return self.written + self.removed

    def add(self, other: Changes) -> None:
        self.compared += other.compared
        self.written += other.written
        self.embedded += other.embedded
        self.removed += other.removed


OnChanges = Callable[[Changes], object]
"""Called with the round so far, after each page."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What is left alone in a target that may have been written to by others.

    `only_since_us`: nothing is removed or written over, only points made since then are added.
    `served_since_us`: a target's own point that is younger stops the run, since it would be removed.
    """

    only_since_us: int | None = None
    served_since_us: int | None = None

    def keeps_all(self, spec: CollectionSpec) -> bool:
        """Whether nothing is removed: receipts of either side stay, too."""
        is_log = "began_us" in spec.indexes and self.served_since_us is not None
        return self.only_since_us is not None or is_log


class CollectionSync:
    def __init__(
        self, source: VectorStore, target: VectorStore, maker: PointMaker, pause: Pause, limits: Limits
    ) -> None:
        self._source = source
        self._target = target
        self._maker = maker
        self._pause = pause
        self._limits = limits

    async def round(self, spec: CollectionSpec, target: str, on_changes: OnChanges) -> Changes:
        """Compare every point of `spec.name` with the one in `target`.

        Raises StartRefusedError when the target was written to by others, UnavailableError kinds.
        """
        changes = Changes()
        if not self._limits.keeps_all(spec):  # first, so that nothing is written to a target that is served
            changes.removed = await self._remove_missing(spec.name, target)
        lacking = await self._lacking(spec, target)
        async for records in scroll_pages(self._source, spec.name, size=PAGE):
            await self._page(spec, target, records, lacking, changes)
            on_changes(changes)
        return changes

    async def _lacking(self, spec: CollectionSpec, target: str) -> set[Any]:
        if not spec.dense:
            return set()
        lacking = scroll_pages(self._target, target, lacks(spec.dense), size=IDS_AT_ONCE, with_payload=False)
        return {record.id async for records in lacking for record in records}

    async def _page(
        self,
        spec: CollectionSpec,
        target: str,
        records: Sequence[Record],
        lacking: set[Any],
        changes: Changes,
    ) -> None:
        await self._pause()
        existing = {
            record.id: record
            for record in await self._target.retrieve(target, [record.id for record in records])
        }
        renewed, embedded = [], []
        for record in records:
            known = existing.get(record.id)
            if not self._is_due(record, known):
                continue
            if known is None or _needs_vectors(spec, record, known, lacking):
                embedded.append(record)
            elif record.payload != known.payload:
                renewed.append(record)
        await self._renew(target, renewed)
        await self._embed(spec, target, embedded)
        changes.compared += len(records)
        changes.written += len(renewed) + len(embedded)
        changes.embedded += sum(bool(deserves(spec, record)) for record in embedded)

    def _is_due(self, record: Record, known: Record | None) -> bool:
        if str(record.id) == MARK_ID:
            return False
        since_us = self._limits.only_since_us
        if since_us is None:
            return True
        if known is not None:
            return _is_running(known) and not _is_running(record)
        return stamp(record) >= since_us - LATE_US

    async def _renew(self, target: str, records: Sequence[Record]) -> None:
        """Other payloads with the same texts: the vectors are those that are there."""
        if not records:
            return
        ids = [record.id for record in records]
        copied = await self._target.retrieve(target, ids, with_payload=False, with_vectors=True)
        vectors: dict[Any, Any] = {record.id: record.vector or {} for record in copied}
        points = [
            Point(id=record.id, vector=vectors[record.id], payload=record.payload)
            for record in records
            if record.id in vectors
        ]
        if points:
            await self._target.upsert(target, points)
            failpoint("reembed.page")

    async def _embed(self, spec: CollectionSpec, target: str, records: Sequence[Record]) -> None:
        batch = BATCH if spec.dense else PAGE
        for few in batches(records, batch):
            if spec.dense:
                await self._pause()
            points = await self._maker.points(spec, few)
            await self._target.upsert(target, points)
            failpoint("reembed.page")

    async def _remove_missing(self, source: str, target: str) -> int:
        missing: list[Any] = []
        async for records in scroll_pages(self._target, target, size=IDS_AT_ONCE, with_payload=list(STAMPS)):
            ids = [record.id for record in records if str(record.id) != MARK_ID]
            records_left = await self._source.retrieve(source, ids, with_payload=False) if ids else []
            existing = {record.id for record in records_left}
            lost = [record for record in records if record.id in set(ids) - existing]
            self._check_served(target, lost)
            missing += [record.id for record in lost]
        for few in batches(missing):
            part = by_ids(few)
            await self._target.delete(target, part)
        return len(missing)

    def _check_served(self, target: str, lost: Sequence[Record]) -> None:
        since_us = self._limits.served_since_us
        if since_us is not None and any(stamp(record) > since_us for record in lost):
            raise StartRefusedError(
                f"collection {target!r} has been written to since it was copied: a server uses it already. "
                f"Add --catch-up to add only what is missing there, or --replace to copy everything anew"
            )


def stamp(record: Record) -> int:
    """When it was made (UTC microseconds); 0 when it does not say."""
    payload = record.payload or {}
    values = [payload.get(name) for name in STAMPS]
    return max((value for value in values if isinstance(value, int)), default=0)


def _needs_vectors(spec: CollectionSpec, record: Record, known: Record, lacking: set[Any]) -> bool:
    if not spec.dense:
        return False
    if record.id in lacking and has_all(spec, record):
        return True
    return point_texts(spec, record.payload or {}) != point_texts(spec, known.payload or {})


def _is_running(record: Record) -> bool:
    return (record.payload or {}).get("status") == TurnStatus.RUNNING.value
