"""What every collection must contain, and which parts are lost or altered. Runs in the store process only.

The journal knows the state of the last flush; later changes are noted here. Payloads are verified whenever
one is read whole. Vectors are verified after a kill, since damage would go unnoticed: a search only ranks by
them. The engine rounds them, so their checksums are taken of what it returns, while it is idle. Payload
indexes are verified after a kill, too, and rebuilt if they disagree with the payloads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from core.text import counted
from services.adapters.edge import engine, wire
from services.adapters.edge.collection import Collection, log_line, refusal_from
from services.adapters.edge.journal import Journal, checksum, vectors_checksum
from services.adapters.edge.wire import PointId

_MAX_NAMED = 3
_START_BUDGET_S = 0.5
"""How long a start compares vectors and indexes; the rest is compared when the store is idle."""
_STEP = 50
"""Points read at once when idle: this takes some three milliseconds, which a request may have to wait."""

# Placeholders for a checksum: part of the payload was changed, or the point may or may not exist; the engine
# is asked once it has flushed.
_CHANGED, _UNSURE = -1, -2


class UnreadablePointsError(Exception):
    """A collection was loaded but cannot be read to its end."""


@contextmanager
def unreadable_unless_done(name: str) -> Iterator[None]:
    """Wraps the engine's work on this collection at a start. Raises UnreadablePointsError for whatever it
    raises, including its panics, and Refusal when the disk is full."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        if isinstance(error, Exception) and refusal_from(error).verdict is wire.Verdict.DISK_FULL:
            raise refusal_from(error) from error
        raise UnreadablePointsError(f"{name}: {error}") from error


class Expected:
    """The points and checksums that must be there. With `journal` None, whatever is read counts as right."""

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal
        self._since: dict[str, dict[PointId, int | None]] = {}
        self._embedded: dict[str, set[PointId]] = {}

    def wrote(self, name: str, payloads: Mapping[PointId, Mapping[str, Any] | None]) -> None:
        self._note(name, ((point_id, checksum(payload)) for point_id, payload in payloads.items()))
        self.embedded(name, payloads)

    def embedded(self, name: str, ids: Iterable[PointId]) -> None:
        """Note that their vectors were written."""
        if self._journal is not None:
            self._embedded.setdefault(name, set()).update(ids)

    def changed(self, name: str, ids: Iterable[PointId]) -> None:
        self._note(name, ((point_id, _CHANGED) for point_id in ids))

    def unsure(self, name: str, ids: Iterable[PointId]) -> None:
        """Note that the engine refused a change to them."""
        some = list(ids)
        self._note(name, ((point_id, _UNSURE) for point_id in some))
        self.embedded(name, some)

    def deleted(self, name: str, ids: Iterable[PointId]) -> None:
        self._note(name, ((point_id, None) for point_id in ids))

    def _note(self, name: str, points: Iterable[tuple[PointId, int | None]]) -> None:
        if self._journal is not None:
            self._since.setdefault(name, {}).update(points)

    def ids(self, name: str) -> set[PointId]:
        """The ids of the points that the collection must have."""
        assert self._journal is not None
        since = self._since.get(name, {})
        deleted = {point_id for point_id, value in since.items() if value is None}
        written = {point_id for point_id, value in since.items() if value not in (None, _UNSURE)}
        return self._journal.ids(name) - deleted | written

    def damaged(self, name: str, payloads: Mapping[PointId, Mapping[str, Any] | None]) -> set[PointId]:
        """The points whose payload differs from what was written."""
        if self._journal is None:
            return set()
        since = self._since.get(name, {})
        known = self._journal.checksums(name, payloads.keys() - since.keys())
        known |= {
            point_id: value
            for point_id in payloads.keys() & since.keys()
            if (value := since[point_id]) is not None and value >= 0
        }
        return {point_id for point_id, value in known.items() if checksum(payloads[point_id]) != value}

    def damaged_vectors(self, name: str, vectors: Mapping[PointId, wire.Vectors | None]) -> set[PointId]:
        """The points whose vectors differ from what was written."""
        if self._journal is None:
            return set()
        known = self._journal.vectors(name, vectors.keys() - self._embedded.get(name, set()))
        return {point_id for point_id, value in known.items() if vectors_checksum(vectors[point_id]) != value}

    def settle(
        self, read: Callable[[str, list[PointId]], Mapping[PointId, Mapping[str, Any] | None]]
    ) -> None:
        """Empty the journal after the engine has flushed; `read` returns the payloads of existing points.
        Raises sqlite3.Error, OSError."""
        assert self._journal is not None
        for name, since in self._since.items():
            changed = [point_id for point_id, value in since.items() if value in (_CHANGED, _UNSURE)]
            payloads = read(name, changed) if changed else {}
            since.update(dict.fromkeys(changed))
            since.update({point_id: checksum(payload) for point_id, payload in payloads.items()})
        self._journal.empty(self._since, self._embedded)
        self.forget()

    def forget(self) -> None:
        self._since.clear()
        self._embedded.clear()


class Integrity:
    """The integrity of a store with these open collections. `lost` says for each part what of it is lost;
    unless it is empty, nothing may be written."""

    def __init__(self, collections: Mapping[str, Collection]) -> None:
        self._collections = collections
        self.expected = Expected(None)
        self._journal: Journal | None = None
        self.lost: dict[str, str] = {}
        self._payloads: dict[str, dict[PointId, str]] = {}
        self._vectors: dict[str, dict[PointId, str]] = {}
        self._uncompared: dict[str, PointId | None] = {}
        self._rebuilt: set[tuple[str, str]] = set()
        self._unread: set[str] = set()

    def begin(self, journal: Journal | None) -> None:
        """Use this journal from now on to know what must be there."""
        self._journal, self.expected = journal, Expected(journal)

    @property
    def line(self) -> str:
        return "; ".join(self._lost_lines())

    def lines(self, *, whole: bool = False) -> list[str]:
        """What is lost or damaged, one line each; with `whole`, read and compare everything first."""
        if whole:
            for name, collection in self._collections.items():
                for records in engine.pages(collection.shard, with_vectors=True):
                    self.damaged_among(name, records)
                    self._compare_vectors(name, records)
        points = [*self._payloads.values(), *self._vectors.values()]
        return [*self._lost_lines(), *(line for lines in points for line in lines.values())]

    def _lost_lines(self) -> list[str]:
        return [f"{name}: {line}" for name, line in sorted(self.lost.items())]

    def damaged_points(self) -> list[tuple[str, list[PointId]]]:
        """The points whose payload differs from what was written, by collection."""
        return [(name, list(points)) for name, points in self._payloads.items()]

    def accepted(self) -> None:
        """Forget all damage: what is there counts as complete."""
        for noted in (self.lost, self._payloads, self._vectors, self._uncompared):
            noted.clear()
        self._unread = set(self._collections)

    # ---- after an unclean end -------------------------------------------------------------------

    def compare(self, name: str) -> None:
        """Compare which points exist; their vectors are compared by `idle_step`."""
        self.count_missing(name)
        self._uncompared[name] = None

    def count_missing(self, name: str) -> None:
        """Compare which points exist, and add the difference to what is known to be lost."""
        present = engine.ids(self._collections[name].shard)
        expected, files = self.expected.ids(name), f"{self.lost[name]}; " if name in self.lost else ""
        if missing := expected - present:
            points = counted(len(expected), "point")
            self.lost[name] = f"{files}{len(missing)} of {points} missing: {_named(missing)}"
        elif more := present - expected:
            self.lost[name] = f"{files}{counted(len(more), 'unexpected point')}: {_named(more)}"

    def compare_at_start(self) -> None:
        """Compare as many vectors and indexes as a start has time for, small collections first. Raises
        UnreadablePointsError."""
        end = time.monotonic() + _START_BUDGET_S
        sizes = {name: self._collections[name].shard.info().points_count for name in self._uncompared}
        self._uncompared = dict.fromkeys(sorted(sizes, key=lambda name: sizes[name]))
        while self._uncompared and time.monotonic() < end:
            with unreadable_unless_done(next(iter(self._uncompared))):
                self._compare_some()

    def _compare_some(self) -> None:
        name, offset = next(iter(self._uncompared.items()))
        shard = self._collections[name].shard
        indexes = engine.indexes(shard)
        request = wire.Scroll(name, _STEP, offset=offset, with_payload=[*indexes] or False, with_vectors=True)
        page = engine.scroll(shard, request)
        self._compare_vectors(name, page.records)
        for field, spec in indexes.items():
            if (name, field) not in self._rebuilt and not engine.is_indexed(shard, field, spec, page.records):
                self._rebuilt.add((name, field))
                engine.rebuild_index(shard, field, spec)
                log_line(f"{name}: the index of {field} was damaged and rebuilt")
        self._uncompared[name] = page.next_offset
        if page.next_offset is None:
            del self._uncompared[name]

    def _compare_vectors(self, name: str, records: list[wire.Record]) -> None:
        read = {record.id: record.vectors for record in records}
        for point_id in self.expected.damaged_vectors(name, read):
            sentence = "are not what was written, so that it may not be found: restore a backup"
            self._note(self._vectors, name, point_id, f"{name}: the vectors of {point_id} {sentence}")

    # ---- reads and writes -----------------------------------------------------------------------

    def damaged_among(self, name: str, records: list[wire.Record]) -> set[PointId]:
        """The points among `records` whose payload differs from what was written."""
        payloads = {record.id: record.payload for record in records if record.payload is not None}
        damaged = self.expected.damaged(name, payloads)
        for point_id in damaged:
            sentence = "is not what was written, and is not served"
            self._note(self._payloads, name, point_id, f"{name}: the payload of {point_id} {sentence}")
        return damaged

    def _note(self, damaged: dict[str, dict[PointId, str]], name: str, point_id: PointId, line: str) -> None:
        if point_id not in damaged.setdefault(name, {}):
            damaged[name][point_id] = line
            log_line(line)

    def written(self, name: str, ids: Iterable[PointId]) -> None:
        """The points were written whole or deleted, which ends any damage to them."""
        for damaged in (self._payloads.get(name, {}), self._vectors.get(name, {})):
            for point_id in ids if damaged else ():
                damaged.pop(point_id, None)

    def dropped(self, name: str) -> None:
        """The whole collection was deleted."""
        for noted in (self._payloads, self._vectors, self._uncompared):
            noted.pop(name, None)
        self._unread.discard(name)

    # ---- when the store is idle -----------------------------------------------------------------

    def flushed(self) -> None:
        """Raises sqlite3.Error, OSError."""
        self.expected.settle(self._payloads_of)
        self._unread = set(self._collections)

    def _payloads_of(self, name: str, ids: list[PointId]) -> dict[PointId, dict[str, Any] | None]:
        if name not in self._collections:
            return {}
        records = engine.retrieve(self._collections[name].shard, wire.Retrieve(name, ids))
        return {record.id: record.payload for record in records}

    @property
    def is_behind(self) -> bool:
        """Whether `idle_step` has work to do, which it may do once everything is flushed."""
        return self._journal is not None and bool(self._uncompared or self._unread) and not self.lost

    def idle_step(self) -> None:
        """Take one step: compare some vectors, or take the checksums of some. Raises sqlite3.Error, OSError,
        and what the engine raises."""
        assert self._journal is not None
        if self._uncompared:
            self._compare_some()
            return
        name = next(iter(self._unread))
        ids = self._journal.unread(name, _STEP) if name in self._collections else []
        if not ids:
            self._unread.discard(name)
            return
        request = wire.Retrieve(name, ids, with_payload=False, with_vectors=True)
        records = engine.retrieve(self._collections[name].shard, request)
        vectors = {record.id: record.vectors for record in records}
        self._journal.note_vectors(name, {each: vectors_checksum(vectors.get(each)) for each in ids})

    def give_up(self) -> None:
        """Stop until something is flushed again."""
        self._uncompared.clear()
        self._unread.clear()


def _named(ids: set[PointId]) -> str:
    some = ", ".join(sorted(map(str, ids))[:_MAX_NAMED])
    return some if len(ids) <= _MAX_NAMED else f"{some}…"
