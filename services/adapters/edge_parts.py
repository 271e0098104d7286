"""The parts of requests and replies: vectors, points, filters, queries.

Dense vectors travel as raw little-endian float32. Store process and server import this file, so it knows
neither engine nor client.
"""

from __future__ import annotations

from typing import Any

import msgspec

PointId = int | str
Number = int | float


class Message(msgspec.Struct, array_like=True, tag=True):
    """A request, or a part of one that is told from its alternatives by its tag."""


class Part(msgspec.Struct, array_like=True):
    """A part of a message that needs no tag."""


class SparseValues(Part):
    """`indices` are little-endian uint32, `values` float32, equally many."""

    indices: bytes
    values: bytes


Vector = bytes | SparseValues
Vectors = dict[str, Vector]


class Point(Part):
    id: PointId
    vectors: Vectors
    payload: dict[str, Any] | None = None


# ---- filters ------------------------------------------------------------------------------------


class MatchValue(Message):
    key: str
    value: bool | int | str


class MatchAny(Message):
    key: str
    values: list[int | str]


class MatchExcept(Message):
    key: str
    values: list[int | str]


class MatchText(Message):
    key: str
    text: str


class InRange(Message):
    key: str
    gt: float | None = None
    gte: float | None = None
    lt: float | None = None
    lte: float | None = None


class InTime(Message):
    """Bounds are RFC 3339 texts."""

    key: str
    gt: str | None = None
    gte: str | None = None
    lt: str | None = None
    lte: str | None = None


class HasCount(Message):
    key: str
    gt: int | None = None
    gte: int | None = None
    lt: int | None = None
    lte: int | None = None


class IsEmpty(Message):
    key: str


class IsNull(Message):
    key: str


class HasId(Message):
    ids: list[PointId]


class HasVector(Message):
    name: str


class Nested(Message):
    key: str
    filter: Filter


class Filter(Message):
    """Absent and empty lists differ for the engine; `min_count` belongs to `min_should`."""

    must: list[Condition] | None = None
    should: list[Condition] | None = None
    must_not: list[Condition] | None = None
    min_should: list[Condition] | None = None
    min_count: int = 0


Condition = (
    MatchValue | MatchAny | MatchExcept | MatchText | InRange | InTime | HasCount
    | IsEmpty | IsNull | HasId | HasVector | Nested | Filter
)  # fmt: skip


# ---- queries ------------------------------------------------------------------------------------


class PayloadKeys(Message):
    """Only these keys, or all but these."""

    keys: list[str]
    exclude: bool = False


PayloadChoice = bool | PayloadKeys
VectorChoice = bool | list[str]


class OrderBy(Message):
    key: str
    descending: bool = False
    start_from: Number | str | None = None


class Nearest(Message):
    vector: Vector
    using: str


class Rrf(Message):
    k: int
    weights: list[float] | None = None


class Dbsf(Message):
    pass


Ranking = Nearest | Rrf | Dbsf | OrderBy


class Prefetch(Part):
    limit: int
    ranking: Ranking | None = None
    filter: Filter | None = None
    score_threshold: float | None = None
    prefetches: list[Prefetch] = []


class Query(Part):
    limit: int
    offset: int = 0
    ranking: Ranking | None = None
    filter: Filter | None = None
    score_threshold: float | None = None
    prefetches: list[Prefetch] = []
    with_payload: PayloadChoice = True
    with_vectors: VectorChoice = False
    exact: bool = False
    idf_corpus: Filter | None = None
