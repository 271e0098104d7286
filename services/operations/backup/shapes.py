"""What a collection is made of, read from one store and made again in another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from qdrant_client import models

from config.settings import StoreSettings
from core.operations.archive import BadArchiveError, DenseShape, Role, Shape
from services.store.collections import FieldSchema, StoredAs, collection_specs
from services.store.dialect import VectorStore

_MOST_VECTORS = 16
_MOST_DIMENSIONS = 65_536
_MOST_INDEXES = 64


def names_of(settings: StoreSettings) -> dict[Role, str]:
    return {
        Role.CONVERSATIONS: settings.conversation_collection,
        Role.KNOWLEDGE: settings.knowledge_collection,
        Role.DOCUMENTS: settings.document_collection,
        Role.SESSIONS: settings.session_collection,
        Role.MEMORIES: settings.memory_collection,
        Role.OPERATIONS: settings.operations_collection,
    }


async def stored_names(store: VectorStore, settings: StoreSettings) -> dict[Role, str]:
    """Those that are there."""
    names = names_of(settings).items()
    return {role: name for role, name in names if await store.collection_exists(name)}


async def read_shape(store: VectorStore, collection: str) -> Shape:
    info = await store.get_collection(collection)
    dense, sparse = info.config.params.vectors, info.config.params.sparse_vectors
    named: Mapping[str, models.VectorParams] = dense if isinstance(dense, dict) else {}
    return Shape(
        dense={
            name: DenseShape(params.size, models.Distance(params.distance).value)
            for name, params in named.items()
        },
        sparse={name: params.modifier == models.Modifier.IDF for name, params in (sparse or {}).items()},
        indexes={field: index.data_type.value for field, index in info.payload_schema.items()},
        metadata=info.config.metadata,
    )


async def make_collection(
    store: VectorStore, role: Role, shape: Shape, settings: StoreSettings, *, indexed: bool = True
) -> None:
    """Raises ValueError kinds when it is there already."""
    name = names_of(settings)[role]
    await store.create_collection(
        name,
        vectors_config={
            vector: models.VectorParams(size=dense.size, distance=models.Distance(dense.distance))
            for vector, dense in shape.dense.items()
        },
        sparse_vectors_config={
            vector: models.SparseVectorParams(modifier=models.Modifier.IDF if idf else None)
            for vector, idf in shape.sparse.items()
        },
        shard_number=settings.shard_number,
        replication_factor=settings.replication_factor,
        write_consistency_factor=settings.write_consistency_factor,
        metadata=shape.metadata,
    )
    if indexed:
        for field, schema in _schemas(name, shape, settings).items():
            await store.create_payload_index(name, field, schema)


def _schemas(name: str, shape: Shape, settings: StoreSettings) -> dict[str, FieldSchema]:
    """Ours as this version makes them, whose details an engine does not tell; then what else was there."""
    ours = next(spec for spec in collection_specs(settings) if spec.name == name).indexes
    others = {field: models.PayloadSchemaType(kind) for field, kind in shape.indexes.items()}
    return {**others, **ours}


def check_shape(role: Role, shape: Shape) -> None:
    """An archive's shape is not ours until it was looked at. Raises BadArchiveError."""
    sizes = [dense.size for dense in shape.dense.values()]
    try:
        for dense in shape.dense.values():
            models.Distance(dense.distance)
        for kind in shape.indexes.values():
            models.PayloadSchemaType(kind)
    except ValueError as error:
        raise BadArchiveError(f"the archive's collection {role.value} cannot be made: {error}") from error
    few = len(shape.dense) + len(shape.sparse) <= _MOST_VECTORS and len(shape.indexes) <= _MOST_INDEXES
    if not few or not all(1 <= size <= _MOST_DIMENSIONS for size in sizes):
        raise BadArchiveError(
            f"the archive's collection {role.value} cannot be made: its vectors are refused"
        )


def stored_as(metadata: dict[str, Any] | None) -> StoredAs | None:
    """None: it does not say which embedding its vectors are from."""
    try:
        return StoredAs.model_validate(metadata or {})
    except ValidationError:
        return None
