"""The store seam: the part of the AsyncQdrantClient dialect that Wenmai speaks.

`AsyncQdrantClient` satisfies it as it is; `EdgeClient` gives the same over the embedded engine.
At our adapters it fails with StoreUnavailableError (retryable), StoreRequestError (a mistake of ours, such
as an unknown collection or a wrong dimension), UnknownPointError or UnsupportedByStoreError, never with a
foreign exception.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from qdrant_client import models
from qdrant_client.http.models import QueryResponse

from core.errors import WenmaiError

PointId = str


class StoreRequestError(WenmaiError, ValueError):
    """The engine refuses the request as it stands; trying again cannot help."""


class UnknownPointError(StoreRequestError):
    """A partial update named a point that is not there; the other points of the request were written."""


class UnsupportedByStoreError(WenmaiError, NotImplementedError):
    """A part of the dialect that an adapter does not translate; the message names it."""


class VectorStore(Protocol):
    async def collection_exists(self, collection_name: str) -> bool: ...

    async def create_collection(
        self,
        collection_name: str,
        vectors_config: Mapping[str, models.VectorParams] | None = None,
        sparse_vectors_config: Mapping[str, models.SparseVectorParams] | None = None,
        shard_number: int | None = None,
        replication_factor: int | None = None,
        write_consistency_factor: int | None = None,
        *,
        metadata: dict[str, Any] | None = None,
    ) -> bool: ...

    async def delete_collection(self, collection_name: str) -> bool: ...

    async def get_collection(self, collection_name: str) -> models.CollectionInfo: ...

    async def create_payload_index(
        self, collection_name: str, field_name: str, field_schema: Any = None
    ) -> models.UpdateResult: ...

    async def upsert(
        self, collection_name: str, points: Sequence[models.PointStruct]
    ) -> models.UpdateResult: ...

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

    async def query_points(
        self,
        collection_name: str,
        query: Any = None,
        using: str | None = None,
        prefetch: Any = None,
        query_filter: models.Filter | None = None,
        search_params: models.SearchParams | None = None,
        limit: int = 10,
        offset: int | None = None,
        with_payload: Any = True,
        with_vectors: Any = False,
        score_threshold: float | None = None,
    ) -> QueryResponse: ...

    async def query_batch_points(
        self, collection_name: str, requests: Sequence[models.QueryRequest]
    ) -> list[QueryResponse]: ...

    async def close(self) -> None: ...
