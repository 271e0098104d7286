"""What the server and its store process agree on: frames, requests, replies, and the room on the disk.

A frame is a header (body length as u32, verdict as u8, big endian) and a msgpack body. Requests go one
way, replies come back in the order of the requests; a request's verdict is always OK. Both sides import
this file, so it knows neither engine nor client.
"""

from __future__ import annotations

import shutil
import struct
from enum import IntEnum
from pathlib import Path
from typing import Any

import msgspec

# The parts of requests and replies: vectors, points, filters, queries.
#
# Dense vectors travel as raw little-endian float32. Store process and server import this file, so it knows
# neither engine nor client.


PointId = int | str
Number = int | float


class Message(msgspec.Struct, array_like=True, tag=True):
    """A request, or a part of one that differs from its alternatives by its tag."""


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


class InRange(Message):
    key: str
    gt: float | None = None
    gte: float | None = None
    lt: float | None = None
    lte: float | None = None


class IsEmpty(Message):
    key: str


class HasId(Message):
    ids: list[PointId]


class HasVector(Message):
    name: str


class Filter(Message):
    """Absent and empty lists differ for the engine."""

    must: list[Condition] | None = None
    should: list[Condition] | None = None
    must_not: list[Condition] | None = None


Condition = MatchValue | MatchAny | InRange | IsEmpty | HasId | HasVector | Filter


# ---- queries ------------------------------------------------------------------------------------


PayloadChoice = bool | list[str]
VectorChoice = bool | list[str]


class OrderBy(Message):
    key: str
    descending: bool = False
    start_from: Number | None = None


class Query(Part):
    """The points nearest to a vector, best first."""

    limit: int
    vector: Vector
    using: str
    filter: Filter | None = None
    with_payload: PayloadChoice = True
    with_vectors: VectorChoice = False


HEADER = struct.Struct(">IB")
MAX_BODY_BYTES = 2**32 - 1
COPIES_FLAG = "--copies"
PROBING_FLAG = "--probing"
"""The process before this one was ended by what it read: look which collection does that."""
ENDED_BY_READING = 3
"""Exit code: the same where the engine says it, and no signal."""


class Verdict(IntEnum):
    """How a request ended. Anything but OK has a plain sentence (UTF-8) as its body."""

    OK = 0
    REFUSED = 1
    UNAVAILABLE = 2
    UNKNOWN_POINT = 3
    LOCKED = 4
    UNREADABLE = 5
    DISK_FULL = 6
    READ_ONLY = 7


# ---- collections --------------------------------------------------------------------------------


class DenseSpec(Part):
    """`distance` is one of Cosine, Dot, Euclid, Manhattan."""

    size: int
    distance: str


class CollectionSpec(Part):
    """`sparse_scan`: up to how many points that a filter leaves are scored one by one, where it is said."""

    dense: dict[str, DenseSpec]
    sparse_idf: dict[str, bool]
    metadata: dict[str, Any] | None = None
    sparse_scan: dict[str, int] = {}


class IndexSpec(Part):
    """`kind` is a payload schema type: keyword, integer, float, bool, datetime, uuid, text, geo."""

    kind: str
    is_tenant: bool | None = None
    lookup: bool | None = None
    range: bool | None = None


# ---- requests -----------------------------------------------------------------------------------


class ListCollections(Message):
    pass


class CreateCollection(Message):
    collection: str
    spec: CollectionSpec


class DeleteCollection(Message):
    collection: str


class Describe(Message):
    collection: str


class CreateIndex(Message):
    collection: str
    field: str
    spec: IndexSpec


class Upsert(Message):
    """`deletes`: a step of a deletion, here and in what sets a payload; it may use the deletions' reserve."""

    collection: str
    points: list[Point]
    deletes: bool = False


class UpdateVectors(Message):
    collection: str
    points: list[Point]


class SetPayload(Message):
    """Exactly one of `ids` and `filter` is set, here and in the next two."""

    collection: str
    payload: dict[str, Any]
    ids: list[PointId] | None = None
    filter: Filter | None = None
    deletes: bool = False


class DeletePayload(Message):
    collection: str
    keys: list[str]
    ids: list[PointId] | None = None
    filter: Filter | None = None


class Delete(Message):
    collection: str
    ids: list[PointId] | None = None
    filter: Filter | None = None


class Retrieve(Message):
    collection: str
    ids: list[PointId]
    with_payload: PayloadChoice = True
    with_vectors: VectorChoice = False


class Scroll(Message):
    collection: str
    limit: int
    filter: Filter | None = None
    offset: PointId | None = None
    order_by: OrderBy | None = None
    with_payload: PayloadChoice = True
    with_vectors: VectorChoice = False


class Count(Message):
    collection: str
    filter: Filter | None = None


class Facet(Message):
    collection: str
    key: str
    limit: int
    filter: Filter | None = None


class QueryBatch(Message):
    collection: str
    queries: list[Query]


class Follow(Message):
    """`feed` is a number that was not used before; None follows every collection, also one yet to be made."""

    feed: int
    collections: list[str] | None = None


class Unfollow(Message):
    feed: int


class TakeChanged(Message):
    feed: int


class TakeLast(Message):
    """Answered with None while more than `most` points changed."""

    feed: int
    most: int


class Release(Message):
    """Close the collection, with all that belongs to it on the disk, and forget it."""

    collection: str


class Adopt(Message):
    """Take the released copy in `copies`, a folder beside the collections, in the collection's place.

    Answered with false, and nothing is done, while more than `most` points changed since the feed was asked.
    """

    collection: str
    feed: int
    copies: str
    most: int


class LookAt(Message):
    """In what condition the store is; with `whole` every payload is read and compared."""

    whole: bool = False


class AcceptLoss(Message):
    """Take what is there for all that there is. Answered with what was lost, a line each."""


Request = (
    ListCollections | CreateCollection | DeleteCollection | Describe | CreateIndex
    | Upsert | UpdateVectors | SetPayload | DeletePayload | Delete
    | Retrieve | Scroll | Count | Facet | QueryBatch
    | Follow | Unfollow | TakeChanged | TakeLast | Release | Adopt | LookAt | AcceptLoss
)  # fmt: skip


CHANGES = (CreateIndex, Upsert, UpdateVectors, SetPayload, DeletePayload, Delete)
"""What changes points. Each names one collection."""
Change = CreateIndex | Upsert | UpdateVectors | SetPayload | DeletePayload | Delete


# ---- replies ------------------------------------------------------------------------------------


class Record(Part):
    id: PointId
    payload: dict[str, Any] | None = None
    vectors: Vectors | None = None


class Scored(Part):
    """A place in a ranking: `record` is the number of its record in `Rankings.records`."""

    record: int
    score: float


class Rankings(Part):
    """Of a batch of queries, in their order. A point that several found is sent once."""

    records: list[Record]
    rankings: list[list[Scored]]


def point_of(record: Record) -> Point:
    """As it was read with its vectors, to be written."""
    return Point(record.id, record.vectors or {}, record.payload)


class Page(Part):
    records: list[Record]
    next_offset: PointId | None = None


class LastChanged(Part):
    """Of one collection: the changed points as they are, and the ids of those that are no longer there."""

    records: list[Record]
    deleted: list[PointId]


class IndexState(Part):
    spec: IndexSpec
    points: int


class Description(Part):
    spec: CollectionSpec
    points: int
    segments: int
    indexes: dict[str, IndexState]


class State(Part):
    """`damage` has a line for each part that is lost or not what was written; `flushes` are the journal's."""

    damage: list[str]
    read_only: bool
    flushes: int = 0
    writable: bool = True


class FacetHit(Part):
    value: bool | int | str
    count: int


encode = msgspec.msgpack.Encoder().encode


def frame(body: bytes, verdict: Verdict = Verdict.OK) -> bytes:
    return HEADER.pack(len(body), verdict) + body


def take_frame(received: bytearray) -> tuple[Verdict, bytes] | None:
    """Remove and return the first frame, None while it is not there in full."""
    if len(received) < HEADER.size:
        return None
    size, verdict = HEADER.unpack_from(received)
    if len(received) < (end := HEADER.size + size):
        return None
    body = bytes(memoryview(received)[HEADER.size : end])
    del received[:end]
    return Verdict(verdict), body


# ---- the disk -----------------------------------------------------------------------------------

RESERVE_BYTES = 64 << 20
"""Left free by all writes: a mapped file that cannot grow kills its process."""
DELETIONS_BYTES = 32 << 20
"""Of a file that is given back to the disk when a deletion finds none left."""
DELETIONS_FILE = "reserve"
COPIES = ".compacting-"
"""Begins the name of a folder in which a collection is being copied; no collection is named so."""


def remove_copies(folder: Path) -> None:
    """What cannot be removed is left to the next time."""
    for entry in folder.glob(f"{COPIES}*"):
        shutil.rmtree(entry, ignore_errors=True)
