"""The protocol between the server and its store process: frames, requests, replies, and the disk reserve.

A frame is a header (body length as u32, verdict as u8, big endian) and a msgpack body. Replies come back in
the order of the requests; a request's verdict is always OK. Both sides import this file, so it depends on
neither engine nor client.
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
# Dense vectors are sent as raw little-endian float32.


PointId = int | str
Number = int | float


class Message(msgspec.Struct, array_like=True, tag=True):
    """A request, or a part of one that is distinguished from its alternatives by its tag."""


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
    """The engine treats absent and empty lists differently."""

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
"""The previous process died of the data it read: find out which collection causes that."""
ENDED_BY_READING = 3
"""Exit code for a death by unreadable data that the engine reported, without a signal."""


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
    """`sparse_scan`: up to how many points that pass a filter are scored one by one, where configured."""

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
    """`deletes`, here and in SetPayload: a step of a deletion, which may use the reserve for deletions."""

    collection: str
    points: list[Point]
    deletes: bool = False


class UpdateVectors(Message):
    collection: str
    points: list[Point]


class SetPayload(Message):
    """Exactly one of `ids` and `filter` is set, here and in the next two messages."""

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
    """`feed` is an unused number; `collections` None follows every collection, including future ones."""

    feed: int
    collections: list[str] | None = None


class Unfollow(Message):
    feed: int


class TakeChanged(Message):
    feed: int


class TakeLast(Message):
    """Answered with None while more than `max_points` points changed."""

    feed: int
    max_points: int


class Release(Message):
    """Close the collection with everything flushed to disk, and forget it."""

    collection: str


class Adopt(Message):
    """Replace the collection by its released copy in `copies`, a folder beside the collections.

    Answered with false, doing nothing, while more than `max_points` changed since the feed was last read.
    """

    collection: str
    feed: int
    copies: str
    max_points: int


class LookAt(Message):
    """Report the store's condition; with `whole`, read and compare every payload first."""

    whole: bool = False


class AcceptLoss(Message):
    """Treat what is left as complete. Answered with what was lost, one line each."""


Request = (
    ListCollections | CreateCollection | DeleteCollection | Describe | CreateIndex
    | Upsert | UpdateVectors | SetPayload | DeletePayload | Delete
    | Retrieve | Scroll | Count | Facet | QueryBatch
    | Follow | Unfollow | TakeChanged | TakeLast | Release | Adopt | LookAt | AcceptLoss
)  # fmt: skip


CHANGES = (CreateIndex, Upsert, UpdateVectors, SetPayload, DeletePayload, Delete)
"""Requests that change points. Each names one collection."""
Change = CreateIndex | Upsert | UpdateVectors | SetPayload | DeletePayload | Delete


# ---- replies ------------------------------------------------------------------------------------


class Record(Part):
    id: PointId
    payload: dict[str, Any] | None = None
    vectors: Vectors | None = None


class Scored(Part):
    """An entry of a ranking: `record` is the index of its record in `Rankings.records`."""

    record: int
    score: float


class Rankings(Part):
    """Results of a batch of queries, in their order. A point that several queries return is sent once."""

    records: list[Record]
    rankings: list[list[Scored]]


def point_of(record: Record) -> Point:
    """A record that was read with its vectors, as a point to write."""
    return Point(record.id, record.vectors or {}, record.payload)


class Page(Part):
    records: list[Record]
    next_offset: PointId | None = None


class LastChanged(Part):
    """One collection's changed points in their current state, and the ids of deleted ones."""

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
    """`damage` has a line for each part that is lost or altered; `flushes` are the journal's."""

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
    """Remove and return the first frame, or None while it is incomplete."""
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
"""Kept free by all writes: a mapped file that cannot grow kills its process."""
DELETIONS_BYTES = 32 << 20
"""The size of a file that is deleted to make space when a deletion finds the disk full."""
DELETIONS_FILE = "reserve"
COPIES = ".compacting-"
"""Prefix of a folder in which a collection is being copied; no collection can have such a name."""


def remove_copies(folder: Path) -> None:
    """Folders that cannot be removed are left for the next time."""
    for entry in folder.glob(f"{COPIES}*"):
        shutil.rmtree(entry, ignore_errors=True)
