"""All shards of one data folder, and what may be asked of them. Runs in the store process only.

Each collection is a folder of that name. It appears and disappears by a rename, so that a crash leaves
it whole or absent.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import qdrant_edge as edge

from services.adapters.edge import engine, wire
from services.adapters.edge.collection import (
    OLD,
    UNKNOWN_POINT,
    Collection,
    Refusal,
    adopt,
    check_room,
    check_vectors,
    close_collection,
    create_collection,
    open_collection,
    put_back,
)
from services.adapters.edge.engine import query_batch
from services.adapters.edge.journal import MOST_BYTES, Journal
from services.adapters.edge.wire import RESERVE_BYTES, free_bytes, remove_copies
from services.store.durable import ReserveFile, sync_folder, sync_tree

# Who follows which collections, and what changed there. Runs in the store process only.


MOST_IDS = 1_000_000
"""A feed keeps ids only, about 150 bytes each; one that nobody takes from is given up."""

Changes = dict[str, set[wire.PointId]]


class Feed:
    """`collections` None follows all. `lost` says why it can no longer tell what changed."""

    def __init__(self, collections: Iterable[str] | None, most_ids: int) -> None:
        self._most_ids = most_ids
        self._only = None if collections is None else frozenset(collections)
        self.changes: Changes = {}
        self.lost = ""

    def follows(self, collection: str) -> bool:
        return not self.lost and (self._only is None or collection in self._only)

    def note(self, collection: str, ids: Iterable[wire.PointId]) -> None:
        self.changes.setdefault(collection, set()).update(ids)
        if self.size() > self._most_ids:
            self.lose(f"more than {self._most_ids} points changed")

    def size(self) -> int:
        return sum(map(len, self.changes.values()))

    def lose(self, why: str) -> None:
        self.lost = why
        self.changes.clear()


class Feeds:
    """Feeds by the number that the follower chose, so that it can end one whose beginning it did not see."""

    def __init__(self, most_ids: int = MOST_IDS) -> None:
        self._most_ids = most_ids
        self._feeds: dict[int, Feed] = {}

    def open(self, request: wire.Follow) -> None:
        self._feeds[request.feed] = Feed(request.collections, self._most_ids)

    def close(self, request: wire.Unfollow) -> None:
        self._feeds.pop(request.feed, None)

    def following(self, collection: str) -> list[Feed]:
        return [feed for feed in self._feeds.values() if feed.follows(collection)]

    def made_or_dropped(self, collection: str) -> None:
        """Points cannot tell it, so whoever copies must begin anew."""
        for feed in self.following(collection):
            feed.lose(f"the collection {collection} was created or deleted")

    def find(self, number: int) -> Feed:
        """Raises Refusal when it is lost or has ended."""
        feed = self._feeds.get(number)
        if feed is None:
            raise Refusal(wire.Verdict.REFUSED, "this feed of changes has ended")
        if feed.lost:
            sentence = f"{feed.lost} while the store was being copied: the copy must begin anew"
            raise Refusal(wire.Verdict.UNAVAILABLE, sentence)
        return feed

    def take(self, request: wire.TakeChanged) -> dict[str, list[wire.PointId]]:
        feed = self.find(request.feed)
        taken = {name: list(ids) for name, ids in feed.changes.items() if ids}
        feed.changes.clear()
        return taken


_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NEW, _DELETED = ".new", ".gone"
_GROWING = (
    wire.CreateCollection, wire.CreateIndex, wire.Upsert, wire.UpdateVectors, wire.SetPayload, wire.Adopt,
)  # fmt: skip
_DELETING = (wire.Delete, wire.DeletePayload, wire.DeleteCollection)
_LEAST_BYTES = 4 << 20  # of the deletions' reserve: left for the engine to flush what was deleted


class Shards:
    """Open with `open_all`, ask with `answer`, then `close`.

    Writes that need room are refused while the disk has less than `reserve_bytes` left: a mapped file that
    cannot grow kills the process. Deletions go on: they use the reserve. `unflushed` means that a write is in
    the engine's log only, which a start would have to replay.
    """

    def __init__(self, folder: Path, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._folder = folder
        self._journal: Journal | None = None
        self._reserve_bytes = reserve_bytes
        self._for_deletions = ReserveFile(folder / wire.DELETIONS_FILE, wire.DELETIONS_BYTES)
        self._collections: dict[str, Collection] = {}
        self._feeds = Feeds()
        self.unflushed = False
        self._answers: dict[type[Any], Callable[[Any], object]] = {
            wire.ListCollections: lambda _: list(self._collections),
            wire.CreateCollection: self._create,
            wire.DeleteCollection: self._drop,
            wire.Describe: self._describe,
            wire.CreateIndex: self._create_index,
            wire.Upsert: self._upsert,
            wire.UpdateVectors: self._update_vectors,
            wire.SetPayload: self._set_payload,
            wire.DeletePayload: self._delete_payload,
            wire.Delete: self._delete,
            wire.Retrieve: self._read(engine.retrieve),
            wire.Scroll: self._read(engine.scroll),
            wire.Count: self._read(engine.count),
            wire.Facet: self._read(engine.facet),
            wire.QueryBatch: self._read(query_batch),
            wire.Follow: self._feeds.open,
            wire.Unfollow: self._feeds.close,
            wire.TakeChanged: self._feeds.take,
            wire.TakeLast: self._take_last,
            wire.Release: self._release,
            wire.Adopt: self._adopt,
        }

    def answer(self, request: wire.Request) -> object:
        self._make_room(request)
        if not isinstance(request, wire.CHANGES):
            return self._answers[type(request)](request)
        change = self._by_ids(request)
        try:
            answer = self._answers[type(request)](change)
        except Refusal as refusal:
            if refusal.verdict is wire.Verdict.UNKNOWN_POINT:  # the others were changed
                self._note_in_journal(change)
            raise
        self._note_in_journal(change)
        return answer

    def _make_room(self, request: wire.Request) -> None:
        """Raises Refusal for what would grow a file on a full disk."""
        deletes = isinstance(request, _DELETING) or getattr(request, "deletes", False)
        if deletes and free_bytes(self._folder) < self._reserve_bytes:
            self._for_deletions.give()
        if isinstance(request, _GROWING):
            least = min(_LEAST_BYTES, self._reserve_bytes) if deletes else self._reserve_bytes
            check_room(self._folder, least)

    def hold_reserve(self) -> None:
        """Again, once there is room."""
        if self._journal is not None:
            self._for_deletions.hold(self._reserve_bytes)

    def _by_ids(self, request: wire.Change) -> wire.Change:
        """What is replayed later must not reach points that match only since then."""
        if isinstance(request, wire.SetPayload | wire.DeletePayload | wire.Delete) and request.filter:
            ids = engine.matching_ids(self._shard(request.collection), request.filter)
            return msgspec.structs.replace(request, ids=ids, filter=None)
        return request

    def _note_in_journal(self, change: wire.Change) -> None:
        if self._journal is not None:
            self._journal.note(wire.encode(change))

    def without_path(self, refusal: Refusal) -> str:
        """A request's answer may reach a person elsewhere, whom the folder's place does not concern."""
        return str(refusal).replace(str(self._folder), "the data folder")

    # ---- life -----------------------------------------------------------------------------------

    def open_all(self) -> None:
        """Raises Refusal(UNREADABLE) naming the first collection that cannot be read."""
        remove_copies(self._folder)
        if free_bytes(self._folder) < _LEAST_BYTES:  # a start writes a little, too
            self._for_deletions.give()
        for entry in sorted(self._folder.glob(f"*{OLD}")):
            put_back(entry)
        for entry in sorted(self._folder.iterdir()):
            if entry.suffix in {_NEW, _DELETED}:
                shutil.rmtree(entry)
            elif entry.is_dir() and _NAME.fullmatch(entry.name):
                self._collections[entry.name] = open_collection(entry)

    def replay(self, journal: Journal) -> None:
        """Bring back what was acknowledged and is in the journal only; from now on changes are noted there.

        What was not acknowledged may be in the engine's files or not. Raises Refusal(UNREADABLE) when a
        collection is missing, sqlite3.Error when the journal is damaged.
        """
        for name in journal.expected() - self._collections.keys():
            sentence = f"the collection in {self._folder / name} is missing: put it back from a backup"
            raise Refusal(wire.Verdict.UNREADABLE, sentence)
        decoder = msgspec.msgpack.Decoder(wire.Request)
        for change in journal.changes():
            self._repeat(decoder.decode(change))
        self._journal = journal
        self.flush()

    def _repeat(self, change: wire.Request) -> None:
        try:
            self._answers[type(change)](change)
        except Refusal as refusal:
            if refusal.verdict is not wire.Verdict.UNKNOWN_POINT:  # it was deleted later
                raise

    def flush(self) -> None:
        """All that was answered is in the engine's files, and the journal empty."""
        for collection in self._collections.values():
            collection.shard.flush()
        self.unflushed = False
        if self._journal is not None:
            self._empty(self._journal)

    def _empty(self, journal: Journal) -> None:
        journal.forget()
        try:
            journal.empty(self._collections)
        except (sqlite3.Error, OSError) as error:  # all is in the engine's files
            print(f"store: the journal is made anew: {error}", file=sys.stderr)  # noqa: T201
            journal.renew()

    @property
    def uncommitted(self) -> int:
        """How many changes were answered that `commit` has yet to write."""
        return self._journal.noted if self._journal is not None else 0

    def commit(self) -> None:
        """What was answered is on the disk when this returns."""
        if self._journal is None:
            return
        try:
            self._journal.commit()
        except (sqlite3.Error, OSError) as error:
            print(f"store: {error}: the engine flushes instead", file=sys.stderr)  # noqa: T201
            self.flush()
        if self._journal.size > MOST_BYTES:
            self.flush()

    def close(self) -> None:
        if self._journal is not None:
            self._flush_last()
            self._journal.close()
        while self._collections:
            name, collection = self._collections.popitem()
            close_collection(self._folder / name, collection)

    def _flush_last(self) -> None:
        """What cannot be flushed is in the journal, and comes back at the next start."""
        try:
            self.flush()
        except Exception as error:  # noqa: BLE001 — the engine raises bare Exception
            print(f"store: the last flush failed: {error}", file=sys.stderr)  # noqa: T201

    # ---- collections ----------------------------------------------------------------------------

    def _shard(self, name: str) -> edge.EdgeShard:
        return self._collection(name).shard

    def _collection(self, name: str) -> Collection:
        try:
            return self._collections[name]
        except KeyError:
            raise Refusal(wire.Verdict.REFUSED, f"Collection {name} not found") from None

    def _create(self, request: wire.CreateCollection) -> bool:
        name = request.collection
        if not _NAME.fullmatch(name):
            raise Refusal(wire.Verdict.REFUSED, f"Collection name {name!r} is not allowed")
        if name in self._collections:
            raise Refusal(wire.Verdict.REFUSED, f"Collection {name} already exists")
        target = self._folder / name
        fresh = self._folder / (name + _NEW)
        shutil.rmtree(fresh, ignore_errors=True)
        create_collection(fresh, request.spec)
        sync_tree(fresh)
        fresh.rename(target)
        sync_folder(self._folder)
        self._collections[name] = open_collection(target)
        self._feeds.made_or_dropped(name)
        if self._journal is not None:
            self._journal.expect(name)
        return True

    def _drop(self, request: wire.DeleteCollection) -> bool:
        if request.collection not in self._collections:
            return False
        self.flush()  # else a start would replay its changes into another of this name
        if self._journal is not None:
            self._journal.expect_no_more(request.collection)
        collection = self._collections.pop(request.collection)
        self._feeds.made_or_dropped(request.collection)
        collection.shard.close()
        deleted = (self._folder / request.collection).rename(self._folder / (request.collection + _DELETED))
        sync_folder(self._folder)
        shutil.rmtree(deleted, ignore_errors=True)
        return True

    def _release(self, request: wire.Release) -> None:
        collection = self._collection(request.collection)
        del self._collections[request.collection]
        close_collection(self._folder / request.collection, collection)
        sync_tree(self._folder / request.collection)

    def _adopt(self, request: wire.Adopt) -> bool:
        """All that followers are owed stays: no point changes by it."""
        name = request.collection
        place, copy = self._folder / name, self._folder / request.copies / name
        last = self._take_last(wire.TakeLast(request.feed, request.most))
        if last is None:
            return False
        old = self._collections[name]
        changed = last.get(name, wire.LastChanged([], []))
        self.unflushed = True
        try:
            self._collections[name] = adopt(place, old, copy, changed)
        except Refusal:
            self._collections[name] = open_collection(place)
            raise
        self.flush()  # the journal knows nothing of what was written to the copy
        return True

    def _describe(self, request: wire.Describe) -> wire.Description:
        collection = self._collection(request.collection)
        info = collection.shard.info()
        return wire.Description(
            collection.spec,
            collection.shard.count(edge.CountRequest(exact=True)),
            info.segments_count,
            {field: engine.index_state(index) for field, index in info.payload_schema.items()},
        )

    def _create_index(self, request: wire.CreateIndex) -> None:
        self._update(
            request.collection,
            edge.UpdateOperation.create_field_index(request.field, engine.index_schema(request.spec)),
        )

    # ---- writes ---------------------------------------------------------------------------------

    def _update(self, name: str, operation: edge.UpdateOperation) -> None:
        shard = self._shard(name)
        self.unflushed = True
        shard.update(operation)

    def _upsert(self, request: wire.Upsert) -> None:
        check_vectors(self._collection(request.collection).spec, request.points)
        self._note(request.collection, [point.id for point in request.points])
        self._update(request.collection, edge.UpdateOperation.upsert_points(engine.points(request.points)))

    def _update_vectors(self, request: wire.UpdateVectors) -> None:
        check_vectors(self._collection(request.collection).spec, request.points)

        def write(ids: set[wire.PointId]) -> edge.UpdateOperation:
            known = [point for point in request.points if point.id in ids]
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
        """Write to the points that exist, then refuse naming the first that does not, as a server does.

        The engine alone would stop at the first unknown point and leave the rest unwritten.
        """
        known = engine.known_ids(self._shard(name), ids)
        if known:
            self._note(name, known)
            self._update(name, write(known))
        for point_id in ids:
            if point_id not in known:
                raise Refusal(wire.Verdict.UNKNOWN_POINT, f"{UNKNOWN_POINT} {point_id}")

    def _delete(self, request: wire.Delete) -> None:
        self._note(request.collection, request.ids or [])
        self._update(request.collection, edge.UpdateOperation.delete_points(list(request.ids or [])))

    # ---- reads ----------------------------------------------------------------------------------

    def _read(self, read: Callable[[edge.EdgeShard, Any], object]) -> Callable[[Any], object]:
        return lambda request: read(self._shard(request.collection), request)

    # ---- followers ------------------------------------------------------------------------------

    def _note(self, name: str, ids: Iterable[wire.PointId]) -> None:
        for feed in self._feeds.following(name):
            feed.note(name, ids)

    def _take_last(self, request: wire.TakeLast) -> dict[str, wire.LastChanged] | None:
        feed = self._feeds.find(request.feed)
        if feed.size() > request.most:
            return None
        taken = {name: self._now(name, list(ids)) for name, ids in feed.changes.items() if ids}
        self._feeds.close(wire.Unfollow(request.feed))
        return taken

    def _now(self, name: str, ids: list[wire.PointId]) -> wire.LastChanged:
        request = wire.Retrieve(name, ids, with_vectors=True)
        records = engine.retrieve(self._shard(name), request)
        existing = {record.id for record in records}
        return wire.LastChanged(records, [point_id for point_id in ids if point_id not in existing])
