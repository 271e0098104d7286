"""The store seam: the part of the AsyncQdrantClient dialect that Wenmai speaks.

`AsyncQdrantClient` satisfies it as it is; `EdgeClient` gives the same over the embedded engine.
At our adapters it fails with StoreUnavailableError (retryable), StoreRequestError (a mistake of ours, such
as an unknown collection or a wrong dimension), UnknownPointError or UnsupportedByStoreError, never with a
foreign exception.
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
    """The engine refuses the request as it stands; trying again cannot help."""


class UnknownPointError(StoreRequestError):
    """A partial update named a point that is not there; the other points of the request were written."""


class UnsupportedByStoreError(WenmaiError, NotImplementedError):
    """A part of the dialect that an adapter does not translate; the message names it."""


class ScoredPoint(Protocol):
    """What is read of qdrant-client's own; the embedded store makes hundreds for a question, with no more."""

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
        """All of them, or none when the vectors of one do not fit the collection."""
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


# What an engine that keeps its own files can do besides the dialect: tell its size, give space back, and
# say which points changed while it was copied. A Qdrant server sees to the first two itself.


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """Bytes that are free, and how many of them are never written by the store."""

    free_bytes: int
    reserve_bytes: int


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """Bytes on the disk before and after a compaction."""

    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class Changed:
    """The points of one collection that changed, as they are now: whole, or gone (by id)."""

    points: Sequence[models.Record]
    deleted: Sequence[models.ExtendedPointId]


@dataclass(frozen=True, slots=True)
class StoreCondition:
    """`damage` has a line for each part that is lost, or is not what was written; `flushes` counts what was
    written to the disk before it was acknowledged. `writable` is false while the disk refuses writes."""

    damage: Sequence[str] = ()
    read_only: bool = False
    flushes: int = 0
    writable: bool = True


class ChangeFeed(Protocol):
    """Which points were written or deleted since the feed began."""

    async def changed(self) -> Mapping[str, Sequence[models.ExtendedPointId]]:
        """By collection, those since the last call; each once. Raises StoreUnavailableError."""
        ...

    async def last(self, most: int) -> Mapping[str, Changed] | None:
        """All that changed since the last call, as it is at one moment in every collection, and the feed
        ends; None, and nothing is taken, while more than `most` points changed.

        Points come with payload and vectors. Raises StoreUnavailableError, also when the engine was started
        again meanwhile: then the copy must begin anew.
        """
        ...


@runtime_checkable
class StoreUpkeep(Protocol):
    """The embedded engine; one is asked for by `isinstance(store, StoreUpkeep)`."""

    async def size_bytes(self) -> int:
        """What the store takes on the disk."""
        ...

    async def sizes(self, collection_name: str) -> Reclaimed:
        """What a collection takes, and about what it would take after a compaction.

        Raises StoreUnavailableError, StoreRequestError.
        """
        ...

    async def room(self) -> DiskRoom: ...

    async def condition(self, *, whole: bool = False) -> StoreCondition:
        """With `whole` everything is read and compared first. Raises StoreUnavailableError."""
        ...

    async def accept_loss(self) -> list[str]:
        """What is there is all there is from now on, and may be written to again; returns what was lost, a
        line each. Raises StoreUnavailableError."""
        ...

    async def compact(self, collection_name: str) -> Reclaimed:
        """Write the collection anew, without what was deleted, while it goes on being used.

        Raises StoreUnavailableError; then the collection is as it was.
        """
        ...

    def follow(self, collections: Sequence[str] | None = None) -> AbstractAsyncContextManager[ChangeFeed]:
        """From now on changes of these collections (None: all) are noted; several may follow at once."""
        ...
