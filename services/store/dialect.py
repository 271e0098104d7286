"""The store seam: the part of the AsyncQdrantClient dialect that Wenmai speaks.

`AsyncQdrantClient` satisfies it as it is; `EdgeClient` offers the same over the embedded engine.
Our adapters raise StoreUnavailableError (retryable), StoreRequestError (a mistake of ours, such as an unknown
collection or a wrong dimension), UnknownPointError or UnsupportedByStoreError, never a foreign exception.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from qdrant_client.http.models import models

from core.errors import WenmaiError

PointId = str
AnyPointId = models.ExtendedPointId
Point = models.PointStruct
PointVectors = models.PointVectors
PointSelector = models.PointIdsList | models.FilterSelector
Record = models.Record
SparseVector = models.SparseVector
QueryRequest = models.QueryRequest
Filter = models.Filter
Condition = models.Condition


class StoreRequestError(WenmaiError, ValueError):
    """The engine refuses the request as it stands; retrying cannot help."""


class UnknownPointError(StoreRequestError):
    """A partial update named a point that does not exist; the request's other points were written."""


class UnsupportedByStoreError(WenmaiError, NotImplementedError):
    """A part of the dialect that an adapter does not translate; the message names it."""


class ScoredPoint(Protocol):
    """The fields we read of qdrant-client's ScoredPoint; the embedded store makes hundreds per question, with
    just these."""

    @property
    def id(self) -> AnyPointId: ...

    @property
    def score(self) -> float: ...

    @property
    def payload(self) -> dict[str, Any] | None: ...

    @property
    def vector(self) -> Any: ...


class Ranking(Protocol):
    """The points that one query found, best first."""

    @property
    def points(self) -> Sequence[ScoredPoint]: ...


class VectorStore(Protocol):
    async def collection_exists(self, collection_name: str) -> bool: ...

    async def create_collection(
        self,
        collection_name: str,
        vectors_config: Mapping[str, models.VectorParams] | None = None,
        sparse_vectors_config: Mapping[str, models.SparseVectorParams] | None = None,
        *,
        metadata: dict[str, Any] | None = None,
        **cluster: int,
    ) -> bool:
        """`cluster`: replication_factor and write_consistency_factor, for a server."""
        ...

    async def delete_collection(self, collection_name: str) -> bool: ...

    async def get_collection(self, collection_name: str) -> models.CollectionInfo: ...

    async def create_payload_index(
        self, collection_name: str, field_name: str, field_schema: Any = None
    ) -> models.UpdateResult: ...

    async def upsert(self, collection_name: str, points: Sequence[models.PointStruct]) -> models.UpdateResult:
        """Write all points, or none when the vectors of one do not fit the collection."""
        ...

    async def update_vectors(
        self, collection_name: str, points: Sequence[models.PointVectors]
    ) -> models.UpdateResult: ...

    async def set_payload(
        self, collection_name: str, payload: dict[str, Any], points: Any
    ) -> models.UpdateResult: ...

    async def delete_payload(
        self, collection_name: str, keys: Sequence[str], points: Any
    ) -> models.UpdateResult: ...

    async def delete(self, collection_name: str, points_selector: Any) -> models.UpdateResult: ...

    async def retrieve(
        self, collection_name: str, ids: Sequence[Any], with_payload: Any = True, with_vectors: Any = False
    ) -> list[models.Record]: ...

    async def scroll(
        self,
        collection_name: str,
        scroll_filter: models.Filter | None = None,
        limit: int = 10,
        order_by: Any = None,
        offset: Any = None,
        with_payload: Any = True,
        with_vectors: Any = False,
    ) -> tuple[list[models.Record], Any]: ...

    async def count(
        self, collection_name: str, count_filter: models.Filter | None = None
    ) -> models.CountResult: ...

    async def facet(
        self,
        collection_name: str,
        key: str,
        facet_filter: models.Filter | None = None,
        limit: int = 10,
        exact: bool = False,
    ) -> models.FacetResponse: ...

    async def query_batch_points(
        self, collection_name: str, requests: Sequence[models.QueryRequest]
    ) -> Sequence[Ranking]: ...

    async def close(self) -> None: ...


# What an engine with its own files can do beyond the dialect: report its size, reclaim space, and list the
# points that changed while it was copied. A Qdrant server handles the first two itself.


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """Free bytes, and how many of them the store leaves unused."""

    free_bytes: int
    reserve_bytes: int


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """Bytes on the disk before and after a compaction."""

    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class Changed:
    """The points of one collection that changed: those that exist, whole, and the ids of deleted ones."""

    points: Sequence[models.Record]
    deleted: Sequence[models.ExtendedPointId]


@dataclass(frozen=True, slots=True)
class StoreCondition:
    """`damage` has a line for each part that is lost or differs from what was written; `flushes` counts the
    writes that were flushed to disk before they were acknowledged; `writable` is false while the disk refuses
    writes."""

    damage: Sequence[str] = ()
    read_only: bool = False
    flushes: int = 0
    writable: bool = True


class ChangeFeed(Protocol):
    """Which points were written or deleted since the feed began."""

    async def changed(self) -> Mapping[str, Sequence[models.ExtendedPointId]]:
        """Changes since the last call, by collection, without duplicates. Raises StoreUnavailableError."""
        ...

    async def last(self, most: int) -> Mapping[str, Changed] | None:
        """Everything that changed since the last call, as one consistent snapshot of all collections, which
        ends the feed; None, leaving the changes in the feed, while more than `most` points changed.

        Points come with payload and vectors. Raises StoreUnavailableError, also when the engine was restarted
        in the meantime: the copy must then start over.
        """
        ...


@runtime_checkable
class StoreUpkeep(Protocol):
    """Implemented by the embedded engine; test for it with `isinstance(store, StoreUpkeep)`."""

    async def size_bytes(self) -> int:
        """The size of the store on disk."""
        ...

    async def sizes(self, collection_name: str) -> Reclaimed:
        """The collection's size, and its estimated size after a compaction.

        Raises StoreUnavailableError, StoreRequestError.
        """
        ...

    async def room(self) -> DiskRoom: ...

    async def condition(self, *, whole: bool = False) -> StoreCondition:
        """With `whole`, read and verify everything first. Raises StoreUnavailableError."""
        ...

    async def accept_loss(self) -> list[str]:
        """Treat what is left as complete from now on and allow writes again; returns what was lost, one line
        each. Raises StoreUnavailableError."""
        ...

    async def compact(self, collection_name: str) -> Reclaimed:
        """Rewrite the collection without its deleted points, while it stays in use.

        Raises StoreUnavailableError; the collection is then unchanged.
        """
        ...

    def follow(self, collections: Sequence[str] | None = None) -> AbstractAsyncContextManager[ChangeFeed]:
        """Record changes to these collections (None: all) from now on; several feeds may run at once."""
        ...
