"""Reads and writes of points in open collections, and feeds of their changes. Runs in the store process
only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import qdrant_edge as edge

from services.adapters.edge import engine, wire
from services.adapters.edge.collection import UNKNOWN_POINT, Collection, Refusal
from services.adapters.edge.integrity import Integrity

MAX_IDS = 1_000_000
"""A feed keeps only ids, about 150 bytes each; a feed that nobody reads is abandoned at this size."""

Changes = dict[str, set[wire.PointId]]


class Feed:
    """`collections` None means all. `lost` says why it no longer knows what changed."""

    def __init__(self, collections: Iterable[str] | None, max_ids: int) -> None:
        self._max_ids = max_ids
        self._only = None if collections is None else frozenset(collections)
        self.changes: Changes = {}
        self.lost = ""

    def follows(self, collection: str) -> bool:
        return not self.lost and (self._only is None or collection in self._only)

    def note(self, collection: str, ids: Iterable[wire.PointId]) -> None:
        self.changes.setdefault(collection, set()).update(ids)
        if self.size() > self._max_ids:
            self.lose(f"more than {self._max_ids} points changed")

    def size(self) -> int:
        return sum(map(len, self.changes.values()))

    def lose(self, why: str) -> None:
        self.lost = why
        self.changes.clear()


class Feeds:
    """Feeds by numbers chosen by the followers, so that one can be ended without a reply to its start."""

    def __init__(self, max_ids: int = MAX_IDS) -> None:
        self._max_ids = max_ids
        self._feeds: dict[int, Feed] = {}

    def open(self, request: wire.Follow) -> None:
        self._feeds[request.feed] = Feed(request.collections, self._max_ids)

    def close(self, request: wire.Unfollow) -> None:
        self._feeds.pop(request.feed, None)

    def following(self, collection: str) -> list[Feed]:
        return [feed for feed in self._feeds.values() if feed.follows(collection)]

    def created_or_deleted(self, collection: str) -> None:
        """The feeds are lost, since point changes cannot express this: a copy must start over."""
        for feed in self.following(collection):
            feed.lose(f"the collection {collection} was created or deleted")

    def find(self, number: int) -> Feed:
        """Raises Refusal when the feed is lost or has ended."""
        feed = self._feeds.get(number)
        if feed is None:
            raise Refusal(wire.Verdict.REFUSED, "this feed of changes has ended")
        if feed.lost:
            sentence = f"{feed.lost} while the store was being copied: start the copy again"
            raise Refusal(wire.Verdict.UNAVAILABLE, sentence)
        return feed

    def take(self, request: wire.TakeChanged) -> dict[str, list[wire.PointId]]:
        feed = self.find(request.feed)
        taken = {name: list(ids) for name, ids in feed.changes.items() if ids}
        feed.changes.clear()
        return taken


def ids_of(change: wire.Change) -> list[wire.PointId]:
    if isinstance(change, wire.Upsert | wire.UpdateVectors):
        return [point.id for point in change.points]
    return [] if isinstance(change, wire.CreateIndex) else list(change.ids or [])


class Points:
    """`unflushed`: a write is only in the engine's log, which a start would have to replay."""

    def __init__(self, collections: Mapping[str, Collection], integrity: Integrity, feeds: Feeds) -> None:
        self._collections = collections
        self._integrity = integrity
        self._feeds = feeds
        self.unflushed = False
        self.answers: dict[type[Any], Callable[[Any], object]] = {
            wire.CreateIndex: self._create_index,
            wire.Upsert: self._upsert,
            wire.UpdateVectors: self._update_vectors,
            wire.SetPayload: self._set_payload,
            wire.DeletePayload: self._delete_payload,
            wire.Delete: self._delete,
            wire.Retrieve: self._retrieve,
            wire.Scroll: self._scroll,
            wire.Count: self._read(engine.count),
            wire.Facet: self._read(engine.facet),
            wire.QueryBatch: self._query,
            wire.Follow: feeds.open,
            wire.Unfollow: feeds.close,
            wire.TakeChanged: feeds.take,
            wire.TakeLast: self.take_last,
        }

    def collection(self, name: str) -> Collection:
        """Raises Refusal."""
        try:
            return self._collections[name]
        except KeyError:
            raise Refusal(wire.Verdict.REFUSED, f"Collection {name} not found") from None

    def by_ids(self, request: wire.Change) -> wire.Change:
        """Replace a filter by the matching ids: a later replay must not reach points that match only then."""
        if isinstance(request, wire.SetPayload | wire.DeletePayload | wire.Delete) and request.filter:
            ids = engine.matching_ids(self._shard(request.collection), request.filter)
            return msgspec.structs.replace(request, ids=ids, filter=None)
        return request

    def _shard(self, name: str) -> edge.EdgeShard:
        return self.collection(name).shard

    # ---- writes ---------------------------------------------------------------------------------

    def _create_index(self, request: wire.CreateIndex) -> None:
        self._update(
            request.collection,
            edge.UpdateOperation.create_field_index(request.field, engine.index_schema(request.spec)),
        )

    def _update(self, name: str, operation: edge.UpdateOperation) -> None:
        shard = self._shard(name)
        self.unflushed = True
        shard.update(operation)

    def _upsert(self, request: wire.Upsert) -> None:
        name, points = request.collection, request.points
        self._note(name, [point.id for point in points])
        self._update(name, edge.UpdateOperation.upsert_points(engine.points(points)))
        self._integrity.expected.wrote(name, {point.id: point.payload for point in points})
        self._integrity.written(name, [point.id for point in points])

    def _update_vectors(self, request: wire.UpdateVectors) -> None:
        def write(ids: set[wire.PointId]) -> edge.UpdateOperation:
            known = [point for point in request.points if point.id in ids]
            self._integrity.expected.embedded(request.collection, ids)
            return edge.UpdateOperation.update_vectors(engine.point_vectors(known))

        self._update_known(request.collection, [point.id for point in request.points], write)

    def _set_payload(self, request: wire.SetPayload) -> None:
        self._update_known(
            request.collection,
            request.ids or [],
            lambda ids: edge.UpdateOperation.set_payload(list(ids), request.payload),
        )

    def _delete_payload(self, request: wire.DeletePayload) -> None:
        self._update_known(
            request.collection,
            request.ids or [],
            lambda ids: edge.UpdateOperation.delete_payload(list(ids), request.keys),
        )

    def _update_known(
        self,
        name: str,
        ids: list[wire.PointId],
        write: Callable[[set[wire.PointId]], edge.UpdateOperation],
    ) -> None:
        """Write to the points that exist, then refuse, naming the first that does not, as a server does.

        The engine itself would stop at the first unknown point and leave the rest unwritten.
        """
        known = engine.known_ids(self._shard(name), ids)
        if known:
            self._note(name, known)
            self._update(name, write(known))
            self._integrity.expected.changed(name, known)
        for point_id in ids:
            if point_id not in known:
                raise Refusal(wire.Verdict.UNKNOWN_POINT, f"{UNKNOWN_POINT} {point_id}")

    def _delete(self, request: wire.Delete) -> None:
        self._note(request.collection, request.ids or [])
        self._update(request.collection, edge.UpdateOperation.delete_points(list(request.ids or [])))
        self._integrity.expected.deleted(request.collection, request.ids or [])
        self._integrity.written(request.collection, request.ids or [])

    # ---- reads ----------------------------------------------------------------------------------

    def _read(self, read: Callable[[edge.EdgeShard, Any], object]) -> Callable[[Any], object]:
        return lambda request: read(self._shard(request.collection), request)

    def _retrieve(self, request: wire.Retrieve) -> list[wire.Record]:
        records = engine.retrieve(self._shard(request.collection), request)
        return self._whole(request.collection, records, request.with_payload)

    def _scroll(self, request: wire.Scroll) -> wire.Page:
        page = engine.scroll(self._shard(request.collection), request)
        return wire.Page(
            self._whole(request.collection, page.records, request.with_payload), page.next_offset
        )

    def _query(self, request: wire.QueryBatch) -> wire.Rankings:
        answer = engine.query_batch(self._shard(request.collection), request)
        if any(isinstance(query.with_payload, list) for query in request.queries):
            return answer
        damaged = self._integrity.damaged_among(request.collection, answer.records)
        if not damaged:
            return answer
        rankings = [
            [scored for scored in ranking if answer.records[scored.record].id not in damaged]
            for ranking in answer.rankings
        ]
        return wire.Rankings(answer.records, rankings)

    def _whole(self, name: str, records: list[wire.Record], payload: wire.PayloadChoice) -> list[wire.Record]:
        """Leave out records with a damaged payload; with only a part of one, damage cannot be detected."""
        if payload is not True:
            return records
        damaged = self._integrity.damaged_among(name, records)
        return [record for record in records if record.id not in damaged] if damaged else records

    # ---- followers ------------------------------------------------------------------------------

    def _note(self, name: str, ids: Iterable[wire.PointId]) -> None:
        for feed in self._feeds.following(name):
            feed.note(name, ids)

    def take_last(self, request: wire.TakeLast) -> dict[str, wire.LastChanged] | None:
        feed = self._feeds.find(request.feed)
        if feed.size() > request.max_points:
            return None
        taken = {name: self._current(name, list(ids)) for name, ids in feed.changes.items() if ids}
        self._feeds.close(wire.Unfollow(request.feed))
        return taken

    def _current(self, name: str, ids: list[wire.PointId]) -> wire.LastChanged:
        request = wire.Retrieve(name, ids, with_vectors=True)
        records = engine.retrieve(self._shard(name), request)
        existing = {record.id for record in records}
        return wire.LastChanged(records, [point_id for point_id in ids if point_id not in existing])
