"""Points and queries of the client dialect, turned into wire messages."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from pydantic_core import to_jsonable_python
from qdrant_client import models

from services.adapters import edge_parts as parts
from services.adapters.edge_filters import optional_filter, point_id, to_filter, unsupported
from services.store import StoreRequestError

# What a server takes when a fusion names no constant.
DEFAULT_RRF_K = 2
DEFAULT_LIMIT = 10


def point(struct: models.PointStruct) -> parts.Point:
    payload = None if struct.payload is None else to_jsonable_python(struct.payload)
    return parts.Point(point_id(struct.id), _vectors(struct.vector), payload)


def point_vectors(struct: models.PointVectors) -> parts.Point:
    return parts.Point(point_id(struct.id), _vectors(struct.vector))


def _vectors(vectors: object) -> parts.Vectors:
    if not isinstance(vectors, dict):
        raise unsupported("an unnamed vector")
    return {name: _vector(vector) for name, vector in vectors.items()}


def _vector(vector: object) -> parts.Vector:
    if isinstance(vector, models.SparseVector):
        if len(vector.indices) != len(vector.values):
            raise StoreRequestError("a sparse vector has as many values as indices")
        return parts.SparseValues(array("I", vector.indices).tobytes(), _float32(vector.values))
    if isinstance(vector, list) and not (vector and isinstance(vector[0], list)):
        return _float32(vector)
    raise unsupported(f"a vector of type {type(vector).__name__}")


def _float32(values: list[float]) -> bytes:
    return array("f", values).tobytes()


def payload_choice(choice: object) -> parts.PayloadChoice:
    match choice:
        case None:
            return False
        case bool():
            return choice
        case list() | tuple():
            return parts.PayloadKeys(list(choice))
        case models.PayloadSelectorInclude():
            return parts.PayloadKeys(choice.include)
        case models.PayloadSelectorExclude():
            return parts.PayloadKeys(choice.exclude, exclude=True)
        case _:
            raise unsupported(choice)


def vector_choice(choice: object) -> parts.VectorChoice:
    match choice:
        case None:
            return False
        case bool():
            return choice
        case list() | tuple():
            return list(choice)
        case _:
            raise unsupported(choice)


def order_by(order: str | models.OrderBy | None) -> parts.OrderBy | None:
    if order is None:
        return None
    if isinstance(order, str):
        return parts.OrderBy(order)
    start = order.start_from
    from_ = start if start is None or isinstance(start, int | float | str) else start.isoformat()
    return parts.OrderBy(order.key, order.direction == models.Direction.DESC, from_)


def query(request: models.QueryRequest) -> parts.Query:
    if request.lookup_from is not None:
        raise unsupported("lookup_from")
    return parts.Query(
        limit=_positive_limit(request.limit),
        offset=request.offset or 0,
        ranking=_ranking(request.query, request.using),
        filter=optional_filter(request.filter),
        score_threshold=request.score_threshold,
        prefetches=_prefetches(request.prefetch),
        with_payload=payload_choice(request.with_payload),
        with_vectors=vector_choice(request.with_vector),
        exact=bool(request.params and request.params.exact),
        idf_corpus=_idf_corpus(request.params and request.params.idf),
    )


def _idf_corpus(idf: object) -> parts.Filter | None:
    """None is the whole collection."""
    return to_filter(idf.corpus) if isinstance(idf, models.IdfCorpusParams) else None


def _positive_limit(limit: int | None) -> int:
    if limit is not None and limit < 1:
        raise StoreRequestError(f"limit value {limit} is invalid. Must be 1 or larger.")
    return DEFAULT_LIMIT if limit is None else limit


def _prefetches(prefetch: Any) -> list[parts.Prefetch]:
    if prefetch is None:
        return []
    given: Sequence[models.Prefetch] = [prefetch] if isinstance(prefetch, models.Prefetch) else prefetch
    if any(inner.lookup_from is not None for inner in given):
        raise unsupported("lookup_from")
    return [
        parts.Prefetch(
            limit=_positive_limit(inner.limit),
            ranking=_ranking(inner.query, inner.using),
            filter=optional_filter(inner.filter),
            score_threshold=inner.score_threshold,
            prefetches=_prefetches(inner.prefetch),
        )
        for inner in given
    ]


def _ranking(asked: object, using: str | None) -> parts.Ranking | None:
    match asked:
        case None:
            return None
        case models.NearestQuery(mmr=None):
            return _ranking(asked.nearest, using)
        case models.FusionQuery(fusion=models.Fusion.RRF):
            return parts.Rrf(DEFAULT_RRF_K)
        case models.FusionQuery(fusion=models.Fusion.DBSF):
            return parts.Dbsf()
        case models.RrfQuery():
            return parts.Rrf(asked.rrf.k or DEFAULT_RRF_K, asked.rrf.weights)
        case models.OrderByQuery():
            return order_by(asked.order_by)
        case list() | models.SparseVector():
            return parts.Nearest(_vector(asked), _named(using))
        case _:
            raise unsupported(f"a query of type {type(asked).__name__}")


def _named(using: str | None) -> str:
    if not using:
        raise unsupported("a query without the name of its vector")
    return using
