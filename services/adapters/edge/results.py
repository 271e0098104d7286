"""Replies, turned into records and collection descriptions of the client dialect; specs the other way."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_jsonable_python
from qdrant_client import models

from services.adapters.edge import wire
from services.adapters.edge.convert import unsupported


def record(stored: wire.Record) -> models.Record:
    return models.Record(id=stored.id, payload=stored.payload, vector=_vectors_out(stored.vectors))


def rankings(answer: wire.Rankings) -> list[list[models.ScoredPoint]]:
    """Not validated: that takes longer than the rest, and nobody but this process's own child wrote it."""
    vectors = [_vectors_out(record.vectors) for record in answer.records]
    return [
        [_scored(scored, answer.records[scored.record], vectors[scored.record]) for scored in ranking]
        for ranking in answer.rankings
    ]


def _scored(scored: wire.Scored, record: wire.Record, vector: Any) -> models.ScoredPoint:
    return models.ScoredPoint.model_construct(
        id=record.id, version=0, score=scored.score, payload=record.payload, vector=vector
    )


def _vectors_out(vectors: wire.Vectors | None) -> Any:
    return None if vectors is None else {name: _vector_out(vector) for name, vector in vectors.items()}


def _vector_out(vector: wire.Vector) -> list[float] | models.SparseVector:
    if isinstance(vector, bytes):
        return array("f", vector).tolist()
    indices, values = array("I", vector.indices), array("f", vector.values)
    return models.SparseVector(indices=indices.tolist(), values=values.tolist())


# ---- collections --------------------------------------------------------------------------------


def collection_spec(
    vectors: object, sparse: Mapping[str, models.SparseVectorParams] | None, metadata: dict[str, Any] | None
) -> wire.CollectionSpec:
    if vectors is not None and not isinstance(vectors, Mapping):
        raise unsupported("an unnamed vector")
    return wire.CollectionSpec(
        {name: _dense_spec(params) for name, params in (vectors or {}).items()},
        {name: params.modifier == models.Modifier.IDF for name, params in (sparse or {}).items()},
        to_jsonable_python(metadata),
    )


def _dense_spec(params: models.VectorParams) -> wire.DenseSpec:
    if params.multivector_config is not None:
        raise unsupported("multivectors")
    return wire.DenseSpec(params.size, models.Distance(params.distance).value)


def index_spec(schema: object) -> wire.IndexSpec:
    match schema:
        case models.PayloadSchemaType():
            return wire.IndexSpec(schema.value)
        case models.KeywordIndexParams():
            return wire.IndexSpec("keyword", is_tenant=schema.is_tenant)
        case models.IntegerIndexParams():
            return wire.IndexSpec("integer", lookup=schema.lookup, range=schema.range)
        case _:
            raise unsupported(schema)


def collection_info(description: wire.Description) -> models.CollectionInfo:
    return models.CollectionInfo(
        status=models.CollectionStatus.GREEN,
        optimizer_status=models.OptimizersStatusOneOf.OK,
        points_count=description.points,
        indexed_vectors_count=0,
        segments_count=description.segments,
        payload_schema={field: _index_info(index) for field, index in description.indexes.items()},
        config=models.CollectionConfig(
            params=_collection_params(description.spec),
            hnsw_config=models.HnswConfig(m=16, ef_construct=100, full_scan_threshold=10_000),
            optimizer_config=models.OptimizersConfig(
                deleted_threshold=0.2,
                vacuum_min_vector_number=1_000,
                default_segment_number=0,
                flush_interval_sec=1,
            ),
            metadata=description.spec.metadata,
        ),
    )


def _collection_params(spec: wire.CollectionSpec) -> models.CollectionParams:
    return models.CollectionParams(
        vectors={
            name: models.VectorParams(size=dense.size, distance=models.Distance(dense.distance))
            for name, dense in spec.dense.items()
        },
        sparse_vectors={
            name: models.SparseVectorParams(modifier=models.Modifier.IDF if idf else None)
            for name, idf in spec.sparse_idf.items()
        },
    )


def _index_info(index: wire.IndexState) -> models.PayloadIndexInfo:
    params = None
    if index.spec.kind == "keyword":
        params = models.KeywordIndexParams(
            type=models.KeywordIndexType.KEYWORD, is_tenant=index.spec.is_tenant
        )
    return models.PayloadIndexInfo(
        data_type=models.PayloadSchemaType(index.spec.kind), params=params, points=index.points
    )
