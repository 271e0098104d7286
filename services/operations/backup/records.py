"""Conversion between stored points and the records of an archive, and reading of record streams."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec
from qdrant_client.http.models import models

from config.settings import StoreSettings
from core.operations.archive import (
    LENGTH,
    MAX_RECORD_BYTES,
    BadArchiveError,
    DenseShape,
    IdOnly,
    PointId,
    PointRecord,
    Role,
    Shape,
    SparseValues,
)
from core.text import canonical_uuid
from services.store.collections import CollectionSpec, FieldSchema, collection_specs
from services.store.dialect import Point, Record, SparseVector, UnsupportedByStoreError, VectorStore

CHUNK_BYTES = 1 << 18
_FLOAT_BYTES = 4
_encoder = msgspec.msgpack.Encoder()
_records = msgspec.msgpack.Decoder(PointRecord)
_ids = msgspec.msgpack.Decoder(IdOnly)


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def record_of(point: Record) -> PointRecord:
    """Raises UnsupportedByStoreError for a vector without a name, which we never write."""
    vectors = point.vector or {}
    if not isinstance(vectors, dict):
        raise UnsupportedByStoreError(f"point {point.id} has a vector without a name")
    packed = {name: _packed(vector) for name, vector in vectors.items()}
    return PointRecord(point.id if isinstance(point.id, int) else str(point.id), packed, point.payload or {})


def _packed(vector: object) -> bytes | SparseValues:
    if isinstance(vector, SparseVector):
        return SparseValues(array("I", vector.indices).tobytes(), array("f", vector.values).tobytes())
    assert isinstance(vector, list)
    return array("f", vector).tobytes()


def point_of(record: PointRecord) -> Point:
    """Convert without pydantic validation, which would check every number: `fault_of` has done that."""
    vectors: dict[str, Any] = {name: _unpacked(vector) for name, vector in record.vectors.items()}
    return Point.model_construct(id=record.id, vector=vectors, payload=record.payload)


def _unpacked(vector: bytes | SparseValues) -> list[float] | SparseVector:
    if isinstance(vector, bytes):
        return array("f", vector).tolist()
    indices, values = array("I", vector.indices).tolist(), array("f", vector.values).tolist()
    return SparseVector.model_construct(indices=indices, values=values)


def framed(record: PointRecord) -> bytes:
    body = _encoder.encode(record)
    return LENGTH.pack(len(body)) + body


def decode(body: bytes) -> PointRecord:
    """Raises BadArchiveError."""
    try:
        return _records.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadArchiveError(f"the archive has a record that cannot be read: {error}") from error


def id_of(body: bytes) -> PointId:
    return _ids.decode(body).id


def bodies(stream: Readable) -> Iterator[bytes]:
    """Yield the records of a stream, undecoded. Raises BadArchiveError."""
    while header := _exactly(stream, LENGTH.size):
        (size,) = LENGTH.unpack(header)
        if not 0 < size <= MAX_RECORD_BYTES:
            raise BadArchiveError(f"the archive has a record of {size} bytes")
        body = _exactly(stream, size)
        if not body:
            raise BadArchiveError("the archive ends inside a record")
        yield body


def _exactly(stream: Readable, size: int) -> bytes:
    """Read exactly `size` bytes; b"" at the end of the stream. Raises BadArchiveError."""
    received = stream.read(min(size, CHUNK_BYTES))
    while received and len(received) < size:
        more = stream.read(min(size - len(received), CHUNK_BYTES))
        if not more:
            raise BadArchiveError("the archive ends inside a record")
        received += more
    return received


def fault_of(record: PointRecord, shape: Shape) -> str:
    """Return why the store would refuse the record, or "" if it would not."""
    if not _is_point_id(record.id):
        return f"the id {str(record.id)[:80]!r} is none"
    for name, vector in record.vectors.items():
        if isinstance(vector, bytes):
            dense = shape.dense.get(name)
            if dense is None or len(vector) != dense.size * _FLOAT_BYTES or not _finite(vector):
                return f"its vector {name!r} does not fit"
        elif name not in shape.sparse or not _is_sparse(vector):
            return f"its sparse vector {name!r} does not fit"
    return ""


def _is_point_id(point_id: PointId) -> bool:
    return 0 <= point_id < 1 << 64 if isinstance(point_id, int) else canonical_uuid(point_id) == point_id


def _is_sparse(vector: SparseValues) -> bool:
    whole = len(vector.indices) % _FLOAT_BYTES == 0 and len(vector.indices) == len(vector.values)
    if not whole or not _finite(vector.values):
        return False
    indices = array("I", vector.indices)
    return len(set(indices)) == len(indices)


def _finite(values: bytes) -> bool:
    return all(map(math.isfinite, array("f", values)))


def records_of(points: Iterable[Record]) -> list[PointRecord]:
    return [record_of(point) for point in points]


# A collection's shape (vectors, indexes, metadata), read from one store and recreated in another.


_MAX_VECTORS = 16
_MAX_DIMENSIONS = 65_536
_MAX_INDEXES = 64


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
    """Return the names of the collections that exist."""
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


async def make_collection(store: VectorStore, role: Role, shape: Shape, settings: StoreSettings) -> None:
    """Create the role's collection. Raises subclasses of ValueError if it already exists."""
    name = names_of(settings)[role]
    ours = next(spec for spec in collection_specs(settings) if spec.name == name)
    await store.create_collection(
        name,
        vectors_config={
            vector: models.VectorParams(size=dense.size, distance=models.Distance(dense.distance))
            for vector, dense in shape.dense.items()
        },
        sparse_vectors_config={
            vector: ours.words if idf else models.SparseVectorParams() for vector, idf in shape.sparse.items()
        },
        replication_factor=settings.replication_factor,
        write_consistency_factor=settings.confirming_replicas,
        metadata=shape.metadata,
    )
    for field, schema in _schemas(ours, shape).items():
        await store.create_payload_index(name, field, schema)


def _schemas(ours: CollectionSpec, shape: Shape) -> dict[str, FieldSchema]:
    """Return this version's indexes, whose details an engine does not report, and the archive's others."""
    others = {field: models.PayloadSchemaType(kind) for field, kind in shape.indexes.items()}
    return {**others, **ours.indexes}


def check_shape(role: Role, shape: Shape) -> None:
    """Validate a shape from an archive, which is untrusted. Raises BadArchiveError."""
    sizes = [dense.size for dense in shape.dense.values()]
    try:
        for dense in shape.dense.values():
            models.Distance(dense.distance)
        for kind in shape.indexes.values():
            models.PayloadSchemaType(kind)
    except ValueError as error:
        raise BadArchiveError(f"the archive's collection {role.value} cannot be made: {error}") from error
    few = len(shape.dense) + len(shape.sparse) <= _MAX_VECTORS and len(shape.indexes) <= _MAX_INDEXES
    if not few or not all(1 <= size <= _MAX_DIMENSIONS for size in sizes):
        raise BadArchiveError(
            f"the archive's collection {role.value} cannot be made: its vectors are refused"
        )
