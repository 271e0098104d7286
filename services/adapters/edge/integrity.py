"""What every collection must hold, and what of it is lost, or not what was written. Runs in the store process
only.

The journal knows it as of the last flush; what was changed since is noted here. Payloads are compared by
every read of a whole one. Vectors are compared after a kill, since nobody would notice: a search only ranks
by them. The engine rounds them, so their checksums are of what it gives back, and are taken when it is idle.
The indexes of payloads are compared after a kill, too, and one that does not agree with them is made anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from services.adapters.edge import engine, wire
from services.adapters.edge.collection import Collection, log_line, refusal_from
from services.adapters.edge.journal import Journal, checksum, vectors_checksum
from services.adapters.edge.wire import PointId

_NAMED = 3
_START_S = 0.5
"""So long a start compares vectors and indexes; the rest is compared when the store is idle."""
_STEP = 50
"""Points that are read at once when it is idle: some three milliseconds, which a request may wait."""

# Instead of a checksum: a part of it was changed, or it may be there or not; the engine is asked when it has
# flushed.
_CHANGED, _UNSURE = -1, -2


class UnreadablePointsError(Exception):
    """A collection that could be loaded cannot be read to its end."""


@contextmanager
def unreadable_unless_done(name: str) -> Iterator[None]:
    """Of what the engine does to this collection at a start. Raises UnreadablePointsError for whatever it
    raises, its panics, too, and Refusal when the disk is full."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        if isinstance(error, Exception) and refusal_from(error).verdict is wire.Verdict.DISK_FULL:
            raise refusal_from(error) from error
        raise UnreadablePointsError(f"{name}: {error}") from error


class Expected:
    """`journal` None: nobody knows, and whatever is read is taken for right."""

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal
        self._since: dict[str, dict[PointId, int | None]] = {}
        self._embedded: dict[str, set[PointId]] = {}

    def wrote(self, name: str, payloads: Mapping[PointId, Mapping[str, Any] | None]) -> None:
        self._note(name, ((point_id, checksum(payload)) for point_id, payload in payloads.items()))
        self.embedded(name, payloads)

    def embedded(self, name: str, ids: Iterable[PointId]) -> None:
        """Their vectors were written."""
        if self._journal is not None:
            self._embedded.setdefault(name, set()).update(ids)

    def changed(self, name: str, ids: Iterable[PointId]) -> None:
        self._note(name, ((point_id, _CHANGED) for point_id in ids))

    def unsure(self, name: str, ids: Iterable[PointId]) -> None:
        """A change of them was refused by the engine."""
        some = list(ids)
        self._note(name, ((point_id, _UNSURE) for point_id in some))
        self.embedded(name, some)

    def deleted(self, name: str, ids: Iterable[PointId]) -> None:
        self._note(name, ((point_id, None) for point_id in ids))

    def _note(self, name: str, points: Iterable[tuple[PointId, int | None]]) -> None:
        if self._journal is not None:
            self._since.setdefault(name, {}).update(points)

    def ids(self, name: str) -> set[PointId]:
        """That the collection must have."""
        assert self._journal is not None
        since = self._since.get(name, {})
        deleted = {point_id for point_id, value in since.items() if value is None}
        written = {point_id for point_id, value in since.items() if value not in (None, _UNSURE)}
        return self._journal.ids(name) - deleted | written

    def damaged(self, name: str, payloads: Mapping[PointId, Mapping[str, Any] | None]) -> set[PointId]:
        """Those of which another payload was written."""
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
        """Those of which others were written."""
        if self._journal is None:
            return set()
        known = self._journal.vectors(name, vectors.keys() - self._embedded.get(name, set()))
        return {point_id for point_id, value in known.items() if vectors_checksum(vectors[point_id]) != value}

    def settle(
        self, read: Callable[[str, list[PointId]], Mapping[PointId, Mapping[str, Any] | None]]
    ) -> None:
        """The engine has flushed; `read` gives the payloads of those that are there. The journal is empty
        then. Raises sqlite3.Error, OSError."""
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
    """Of a store with these open collections. `lost` says of each part what of it is lost: while there is
    anything, nothing may be written."""

    def __init__(self, collections: Mapping[str, Collection]) -> None:
        self._collections = collections
        self.expected = Expected(None)
        self._journal: Journal | None = None
        self.lost: dict[str, str] = {}
        self._payloads: dict[str, dict[PointId, str]] = {}
        self._vectors: dict[str, dict[PointId, str]] = {}
        self._uncompared: dict[str, PointId | None] = {}
        self._anew: set[tuple[str, str]] = set()
        self._unread: set[str] = set()

    def begin(self, journal: Journal | None) -> None:
        """From now on this one knows what must be there."""
        self._journal, self.expected = journal, Expected(journal)

    @property
    def line(self) -> str:
        return "; ".join(self._lost_lines())

    def lines(self, *, whole: bool = False) -> list[str]:
        """What is lost or damaged; with `whole` everything is read and compared."""
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
        """Those whose payload is not what was written, by collection."""
        return [(name, list(points)) for name, points in self._payloads.items()]

    def accepted(self) -> None:
        """What is there is all that there is."""
        for noted in (self.lost, self._payloads, self._vectors, self._uncompared):
            noted.clear()
        self._unread = set(self._collections)

    # ---- after an unorderly end -----------------------------------------------------------------

    def compare(self, name: str) -> None:
        """Which points are there; their vectors are compared by `look_on`."""
        present = engine.ids(self._collections[name].shard)
        expected = self.expected.ids(name)
        if missing := expected - present:
            self.lost[name] = f"{len(missing)} of {len(expected)} points are missing: {_named(missing)}"
        elif more := present - expected:
            self.lost[name] = f"{len(more)} points are there that must not be: {_named(more)}"
        self._uncompared[name] = None

    def compare_more(self) -> None:
        """Vectors and indexes, as many as a start has time for, small collections first. Raises
        UnreadablePointsError."""
        end = time.monotonic() + _START_S
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
            if (name, field) not in self._anew and not engine.is_indexed(shard, field, spec, page.records):
                self._anew.add((name, field))
                engine.index_anew(shard, field, spec)
                log_line(f"{name}: the index of {field} was damaged, and is made anew")
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
        """Those whose payload is not what was written."""
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
        """Vectors and all, or deleted: what was wrong with them is no longer so."""
        for damaged in (self._payloads.get(name, {}), self._vectors.get(name, {})):
            for point_id in ids if damaged else ():
                damaged.pop(point_id, None)

    def dropped(self, name: str) -> None:
        """The whole collection."""
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
        """`look_on` has something to do, and may do it once all is flushed."""
        return self._journal is not None and bool(self._uncompared or self._unread) and not self.lost

    def look_on(self) -> None:
        """A step: compare some vectors, or take the checksums of some. Raises sqlite3.Error, OSError, and
        what the engine raises."""
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
        """Until something is flushed again."""
        self._uncompared.clear()
        self._unread.clear()


def _named(ids: set[PointId]) -> str:
    some = ", ".join(sorted(map(str, ids))[:_NAMED])
    return some if len(ids) <= _NAMED else f"{some}…"
