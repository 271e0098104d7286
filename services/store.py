"""The store seam: the part of the AsyncQdrantClient dialect that Wenmai speaks.

`AsyncQdrantClient` satisfies it as it is; `EdgeClient` gives the same over the embedded engine.
Times out or fails with StoreUnavailableError at our adapters, never with a foreign exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from qdrant_client import models

Vectors = dict[str, models.VectorParams]
SparseVectors = dict[str, models.SparseVectorParams]
PointId = str


class VectorStore(Protocol):
    async def collection_exists(self, collection_name: str) -> bool: ...

    async def create_collection(
        self,
        collection_name: str,
        vectors_config: Any = None,
        sparse_vectors_config: Any = None,
        shard_number: int | None = None,
        replication_factor: int | None = None,
        write_consistency_factor: int | None = None,
        *,
        metadata: dict[str, Any] | None = None,
    ) -> bool: ...

    async def get_collection(self, collection_name: str) -> models.CollectionInfo: ...

    async def create_payload_index(
        self, collection_name: str, field_name: str, field_schema: Any = None
    ) -> models.UpdateResult: ...

    async def upsert(self, collection_name: str, points: Any) -> models.UpdateResult: ...

    async def update_vectors(
        self, collection_name: str, points: Sequence[models.PointVectors]
    ) -> models.UpdateResult: ...

    async def set_payload(
        self, collection_name: str, payload: dict[str, Any], points: Any
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

    async def query_batch_points(
        self, collection_name: str, requests: Sequence[models.QueryRequest]
    ) -> list[models.QueryResponse]: ...

    async def close(self) -> None: ...
