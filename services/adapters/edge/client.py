"""The AsyncQdrantClient dialect over Qdrant's embedded engine, which runs in a process of its own."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from msgspec.msgpack import Decoder
from pydantic_core import to_jsonable_python
from qdrant_client.http.models import models

from core.errors import StartRefusedError, StoreUnavailableError
from services.adapters.edge import convert, wire
from services.adapters.edge.channel import EdgeChannel, EdgeFeed, open_channel, open_feed
from services.adapters.edge.compaction import compact, estimated_size
from services.adapters.edge.convert import optional_filter, point_id, point_ids, target
from services.adapters.edge.wire import RESERVE_BYTES
from services.store.dialect import DiskRoom, Reclaimed, StoreCondition, StoreRequestError
from services.store.durable import ReserveFile, allocated_bytes, free_bytes
from services.store.space import IS_DELETION
from services.store.spawn import flags_of

T = TypeVar("T")

_NAMES = Decoder(list[str])
_FLAG = Decoder(bool)
_NOTHING = Decoder(None)
_NUMBER = Decoder(int)
_DESCRIPTION = Decoder(wire.Description)
_RECORDS = Decoder(list[wire.Record])
_PAGE = Decoder(wire.Page)
_HITS = Decoder(list[wire.FacetHit])
_RANKINGS = Decoder(wire.Rankings)
_STATE = Decoder(wire.State)


class EdgeClient:
    """Satisfies `services.store.dialect.VectorStore`. If its process dies, the next request restarts it."""

    def __init__(self, folder: Path, channel: EdgeChannel, flags: Sequence[str]) -> None:
        self._folder = folder
        self._flags = flags
        self._channel = channel
        self._restarting = asyncio.Lock()
        self._feed_numbers = itertools.count(1)
        self._compacting = asyncio.Lock()
        self._closed = False

    @property
    def process_id(self) -> int:
        return self._channel.pid

    async def _ask(self, request: wire.Request, decoder: Decoder[T]) -> T:
        channel = await self._live_channel()
        return decoder.decode(await channel.exchange(request))

    async def _live_channel(self) -> EdgeChannel:
        if self._closed:
            raise StoreUnavailableError("the store is closed")
        if self._channel.ended:
            await self._restart()
        return self._channel

    async def _restart(self) -> None:
        """Restart once per death, for the first caller; the new process has everything acknowledged."""
        async with self._restarting:
            if not self._channel.ended or self._closed:
                return
            await self._channel.close()
            probing = (wire.PROBING_FLAG,) if self._channel.crashed else ()
            try:
                self._channel = await open_channel(self._folder, *self._flags, *probing)
            except StartRefusedError as error:
                raise StoreUnavailableError("the store process ended and cannot be started again") from error

    async def close(self) -> None:
        """Idempotent. Later requests fail with StoreUnavailableError."""
        self._closed = True
        async with self._restarting:
            await self._channel.close()

    # ---- collections ----------------------------------------------------------------------------

    async def collection_exists(self, collection_name: str) -> bool:
        return collection_name in await self._ask(wire.ListCollections(), _NAMES)

    async def create_collection(
        self,
        collection_name: str,
        vectors_config: Mapping[str, models.VectorParams] | None = None,
        sparse_vectors_config: Mapping[str, models.SparseVectorParams] | None = None,
        *,
        metadata: dict[str, Any] | None = None,
        **_cluster: int,
    ) -> bool:
        """Ignores the cluster settings: one process has one shard."""
        spec = convert.collection_spec(vectors_config, sparse_vectors_config, metadata)
        return await self._ask(wire.CreateCollection(collection_name, spec), _FLAG)

    async def delete_collection(self, collection_name: str) -> bool:
        return await self._ask(wire.DeleteCollection(collection_name), _FLAG)

    async def get_collection(self, collection_name: str) -> models.CollectionInfo:
        return convert.collection_info(await self._ask(wire.Describe(collection_name), _DESCRIPTION))

    async def create_payload_index(
        self, collection_name: str, field_name: str, field_schema: Any = None
    ) -> models.UpdateResult:
        spec = convert.index_spec(field_schema)
        return await self._update(wire.CreateIndex(collection_name, field_name, spec))

    # ---- writes ---------------------------------------------------------------------------------

    async def _update(self, request: wire.Request) -> models.UpdateResult:
        await self._ask(request, _NOTHING)
        return models.UpdateResult(operation_id=0, status=models.UpdateStatus.COMPLETED)

    async def upsert(self, collection_name: str, points: Sequence[models.PointStruct]) -> models.UpdateResult:
        batch = [convert.point(struct) for struct in _some(points)]
        return await self._update(wire.Upsert(collection_name, batch, IS_DELETION.get()))

    async def update_vectors(
        self, collection_name: str, points: Sequence[models.PointVectors]
    ) -> models.UpdateResult:
        batch = [convert.point_vectors(struct) for struct in _some(points)]
        return await self._update(wire.UpdateVectors(collection_name, batch))

    async def set_payload(
        self, collection_name: str, payload: dict[str, Any], points: Any
    ) -> models.UpdateResult:
        to = target(points)
        values = to_jsonable_python(payload)
        return await self._update(
            wire.SetPayload(collection_name, values, to.ids, to.filter, IS_DELETION.get())
        )

    async def delete_payload(
        self, collection_name: str, keys: Sequence[str], points: Any
    ) -> models.UpdateResult:
        to = target(points)
        return await self._update(wire.DeletePayload(collection_name, list(keys), to.ids, to.filter))

    async def delete(self, collection_name: str, points_selector: Any) -> models.UpdateResult:
        to = target(points_selector)
        return await self._update(wire.Delete(collection_name, to.ids, to.filter))

    # ---- reads ----------------------------------------------------------------------------------

    async def retrieve(
        self, collection_name: str, ids: Sequence[Any], with_payload: Any = True, with_vectors: Any = False
    ) -> list[models.Record]:
        """Return points in the order of `ids`; unknown ones are left out."""
        request = wire.Retrieve(
            collection_name,
            point_ids(ids),
            convert.fields(with_payload),
            convert.fields(with_vectors),
        )
        return [convert.record(each) for each in await self._ask(request, _RECORDS)]

    async def scroll(
        self,
        collection_name: str,
        scroll_filter: models.Filter | None = None,
        limit: int = 10,
        order_by: Any = None,
        offset: Any = None,
        with_payload: Any = True,
        with_vectors: Any = False,
    ) -> tuple[list[models.Record], Any]:
        """Return points in id order, or by `order_by`, whose key needs an index and excludes `offset`."""
        if order_by is not None and offset is not None:
            raise StoreRequestError("Offset is not supported in conjunction with `order_by` scroll parameter")
        request = wire.Scroll(
            collection_name,
            limit,
            optional_filter(scroll_filter),
            None if offset is None else point_id(offset),
            convert.order_by(order_by),
            convert.fields(with_payload),
            convert.fields(with_vectors),
        )
        page = await self._ask(request, _PAGE)
        return [convert.record(each) for each in page.records], page.next_offset

    async def count(
        self, collection_name: str, count_filter: models.Filter | None = None
    ) -> models.CountResult:
        number = await self._ask(wire.Count(collection_name, optional_filter(count_filter)), _NUMBER)
        return models.CountResult(count=number)

    async def facet(
        self,
        collection_name: str,
        key: str,
        facet_filter: models.Filter | None = None,
        limit: int = 10,
        exact: bool = True,
    ) -> models.FacetResponse:
        """Counts are always exact; the key needs an index."""
        request = wire.Facet(collection_name, key, limit, optional_filter(facet_filter))
        hits = await self._ask(request, _HITS)
        return models.FacetResponse(
            hits=[models.FacetValueHit(value=hit.value, count=hit.count) for hit in hits]
        )

    async def query_batch_points(
        self, collection_name: str, requests: Sequence[models.QueryRequest]
    ) -> list[convert.EdgeRanking]:
        """One round trip, planned by the engine as one batch. A point that several queries return shares its
        payload and vector between their results, without copies."""
        batch = wire.QueryBatch(collection_name, convert.queries(requests))
        return convert.rankings(await self._ask(batch, _RANKINGS))

    # ---- upkeep ---------------------------------------------------------------------------------

    async def compact(self, collection_name: str) -> Reclaimed:
        """One compaction at a time. Raises DiskFullError when there is no space for the copy."""
        async with self._compacting, self.follow([collection_name]) as feed:
            return await compact(self._folder, collection_name, feed)

    async def sizes(self, collection_name: str) -> Reclaimed:
        """The collection's size, and its estimated size after a compaction."""
        channel = await self._live_channel()
        taken = await asyncio.to_thread(allocated_bytes, self._folder / collection_name)
        return Reclaimed(taken, await estimated_size(channel, collection_name))

    async def size_bytes(self) -> int:
        reserve = ReserveFile(self._folder / wire.DELETIONS_FILE, wire.DELETIONS_BYTES)
        return await asyncio.to_thread(lambda: allocated_bytes(self._folder) - reserve.taken_bytes())

    async def condition(self, *, whole: bool = False) -> StoreCondition:
        state = await self._ask(wire.LookAt(whole), _STATE)
        return StoreCondition(state.damage, state.read_only, state.flushes, state.writable)

    async def accept_loss(self) -> list[str]:
        return await self._ask(wire.AcceptLoss(), _NAMES)

    async def room(self) -> DiskRoom:
        try:
            return DiskRoom(await asyncio.to_thread(free_bytes, self._folder), RESERVE_BYTES)
        except OSError as error:
            raise StoreUnavailableError(f"the disk of the data folder cannot be asked: {error}") from error

    @asynccontextmanager
    async def follow(self, collections: Sequence[str] | None = None) -> AsyncIterator[EdgeFeed]:
        """Follow these collections, or all; see EdgeFeed for what ends a feed early."""
        channel = await self._live_channel()
        async with open_feed(channel, next(self._feed_numbers), collections) as feed:
            yield feed


def _some(points: Sequence[T]) -> Sequence[T]:
    if not points:
        raise StoreRequestError("Empty update request")
    return points


@asynccontextmanager
async def open_edge_client(folder: Path, *, durable: bool = True) -> AsyncIterator[EdgeClient]:
    """Open the embedded store in `folder`, creating it if it is missing.

    Raises StoreLockedError when another process has it open, StartRefusedError when it cannot be read or
    written.
    """
    flags = flags_of(durable=durable)
    client = EdgeClient(folder, await open_channel(folder, *flags), flags)
    try:
        yield client
    finally:
        await client.close()
