"""All shards of one data folder, and what may be asked of them. Runs in the store process only.

Each collection is a folder of that name. It appears and disappears by a rename, so that a crash leaves
it whole or absent.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import qdrant_edge as edge

from services.adapters import edge_engine as engine
from services.adapters import edge_parts as parts
from services.adapters import edge_wire as wire
from services.adapters.edge_collection import (
    UNKNOWN_POINT,
    Collection,
    Refusal,
    check_room,
    check_vectors,
    close_collection,
    create_collection,
    open_collection,
)
from services.adapters.edge_files import sync_folder

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NEW, _GONE = ".new", ".gone"
RESERVE_BYTES = 64 << 20
_GROWING = (
    wire.CreateCollection, wire.CreateIndex, wire.Upsert, wire.UpdateVectors, wire.SetPayload, wire.Optimize,
)  # fmt: skip


class Shards:
    """Open with `open_all`, ask with `answer`, then `close`.

    Writes that need room are refused while the disk has less than `reserve_bytes` left: a mapped file that
    cannot grow kills the process. `unflushed` tells that a write is in the engine's log only, which a start
    would have to replay.
    """

    def __init__(self, folder: Path, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._folder = folder
        self._reserve_bytes = reserve_bytes
        self._collections: dict[str, Collection] = {}
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
            wire.Retrieve: self._retrieve,
            wire.Scroll: self._scroll,
            wire.Count: self._count,
            wire.Facet: self._facet,
            wire.QueryBatch: self._query_batch,
            wire.Optimize: lambda r: self._shard(r.collection).optimize(),
        }

    def answer(self, request: wire.Request) -> object:
        if isinstance(request, _GROWING):
            check_room(self._folder, self._reserve_bytes)
        return self._answers[type(request)](request)

    def without_path(self, refusal: Refusal) -> str:
        """A request's answer may reach a person elsewhere, whom the folder's place does not concern."""
        return str(refusal).replace(str(self._folder), "the data folder")

    def __len__(self) -> int:
        return len(self._collections)

    # ---- life -----------------------------------------------------------------------------------

    def open_all(self) -> None:
        """Raises Refusal(UNREADABLE) naming the first collection that cannot be read."""
        for entry in sorted(self._folder.iterdir()):
            if entry.suffix in {_NEW, _GONE}:
                shutil.rmtree(entry)
            elif entry.is_dir() and _NAME.fullmatch(entry.name):
                self._collections[entry.name] = open_collection(entry)

    def flush(self) -> None:
        for collection in self._collections.values():
            collection.shard.flush()
        self.unflushed = False

    def close(self) -> None:
        while self._collections:
            name, collection = self._collections.popitem()
            close_collection(self._folder / name, collection)

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
        fresh.rename(target)
        sync_folder(self._folder)
        self._collections[name] = open_collection(target)
        return True

    def _drop(self, request: wire.DeleteCollection) -> bool:
        collection = self._collections.pop(request.collection, None)
        if collection is None:
            return False
        collection.shard.close()
        gone = (self._folder / request.collection).rename(self._folder / (request.collection + _GONE))
        sync_folder(self._folder)
        shutil.rmtree(gone, ignore_errors=True)
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
        self._update(request.collection, edge.UpdateOperation.upsert_points(engine.points(request.points)))

    def _update_vectors(self, request: wire.UpdateVectors) -> None:
        check_vectors(self._collection(request.collection).spec, request.points)

        def write(ids: set[parts.PointId]) -> edge.UpdateOperation:
            known = [point for point in request.points if point.id in ids]
            return edge.UpdateOperation.update_vectors(engine.point_vectors(known))

        self._update_known(request.collection, [point.id for point in request.points], write)

    def _set_payload(self, request: wire.SetPayload) -> None:
        if request.filter is not None:
            chosen = engine.filter_(request.filter)
            operation = edge.UpdateOperation.set_payload_by_filter(chosen, request.payload)
            return self._update(request.collection, operation)
        return self._update_known(
            request.collection,
            request.ids or [],
            lambda ids: edge.UpdateOperation.set_payload(list(ids), request.payload),
        )

    def _delete_payload(self, request: wire.DeletePayload) -> None:
        if request.filter is not None:
            chosen = engine.filter_(request.filter)
            operation = edge.UpdateOperation.delete_payload_by_filter(chosen, request.keys)
            return self._update(request.collection, operation)
        return self._update_known(
            request.collection,
            request.ids or [],
            lambda ids: edge.UpdateOperation.delete_payload(list(ids), request.keys),
        )

    def _update_known(
        self,
        name: str,
        ids: list[parts.PointId],
        write: Callable[[set[parts.PointId]], edge.UpdateOperation],
    ) -> None:
        """Write to the points that exist, then refuse naming the first that does not, as a server does.

        The engine alone would stop at the first unknown point and leave the rest unwritten.
        """
        found = {engine.plain_id(record.id) for record in self._shard(name).retrieve(list(ids), False, False)}
        known = {point_id for point_id in ids if point_id in found}
        if known:
            self._update(name, write(known))
        for point_id in ids:
            if point_id not in known:
                raise Refusal(wire.Verdict.UNKNOWN_POINT, f"{UNKNOWN_POINT} {point_id}")

    def _delete(self, request: wire.Delete) -> None:
        if request.filter is not None:
            operation = edge.UpdateOperation.delete_points_by_filter(engine.filter_(request.filter))
        else:
            operation = edge.UpdateOperation.delete_points(list(request.ids or []))
        self._update(request.collection, operation)

    # ---- reads ----------------------------------------------------------------------------------

    def _retrieve(self, request: wire.Retrieve) -> list[wire.Found]:
        records = self._shard(request.collection).retrieve(
            list(request.ids), engine.payload_choice(request.with_payload), request.with_vectors
        )
        by_id = {engine.plain_id(found.id): found for found in records}
        return [engine.record(by_id[point_id]) for point_id in request.ids if point_id in by_id]

    def _scroll(self, request: wire.Scroll) -> wire.Page:
        order = request.order_by
        records, next_offset = self._shard(request.collection).scroll(
            edge.ScrollRequest(
                offset=request.offset,
                limit=request.limit,
                filter=engine.optional_filter(request.filter),
                with_payload=engine.payload_choice(request.with_payload),
                with_vector=request.with_vectors,
                order_by=None if order is None else engine.order_by(order),
            )
        )
        following = None if next_offset is None else engine.plain_id(next_offset)
        return wire.Page([engine.record(found) for found in records], following)

    def _count(self, request: wire.Count) -> int:
        wanted = edge.CountRequest(exact=True, filter=engine.optional_filter(request.filter))
        return self._shard(request.collection).count(wanted)

    def _facet(self, request: wire.Facet) -> list[wire.FacetHit]:
        chosen = engine.optional_filter(request.filter)
        wanted = edge.FacetRequest(request.key, limit=request.limit, exact=True, filter=chosen)
        return [wire.FacetHit(hit.value, hit.count) for hit in self._shard(request.collection).facet(wanted)]

    def _query_batch(self, request: wire.QueryBatch) -> list[list[wire.Found]]:
        batch = edge.QueryBatchRequest([engine.query(query) for query in request.queries])
        found = self._shard(request.collection).query_batch(batch)
        return [[engine.scored(point) for point in points] for points in found]
