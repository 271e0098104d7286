"""Whether a copy is whole: as many points, a vector wherever one is due, and vectors of this embedding."""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from random import Random
from typing import cast

from core.errors import WenmaiError
from services.operations.reembedding.level import MARK_ID
from services.operations.reembedding.points import PointMaker, deserves, has_all, lacks
from services.store.collections import CollectionSpec
from services.store.dialect import Filter, Point, Record, VectorStore
from services.store.filters import has_id
from services.store.pages import IDS_AT_ONCE, scroll_pages

LEAST_COSINE = 0.999
SAMPLES, SAMPLE = 4, 4  # places in a collection that are looked at, and points at each

_NOT_THE_MARK = Filter(must_not=[has_id([MARK_ID])])


class CopyIncompleteError(WenmaiError):
    """The copy does not have what is stored; it must not be used."""

    code = "copy_incomplete"


async def count_points(store: VectorStore, collection: str) -> int:
    """Without the note that re-embedding leaves."""
    return (await store.count(collection, _NOT_THE_MARK)).count


async def check_counts(
    source: VectorStore, stored: str, target: VectorStore, copied: str, tolerance: int
) -> int:
    """The points in the copy. `tolerance` is how many may be written while it is counted.

    Raises CopyIncompleteError.
    """
    expected, copied_points = await count_points(source, stored), await count_points(target, copied)
    if abs(expected - copied_points) > tolerance:
        raise CopyIncompleteError(
            f"collection {stored!r} has {expected} points and its copy {copied_points}; run this again"
        )
    return copied_points


async def check_vectors(
    spec: CollectionSpec, target: VectorStore, copied: str, maker: PointMaker, choice: Random
) -> int:
    """A sample is made again. Returns how many were compared. Raises CopyIncompleteError."""
    if not spec.dense:
        return 0
    sample = await _sample(target, copied, choice)
    for record, made in zip(sample, await maker.points(spec, sample), strict=True):
        if not _agree(spec, record, made):
            raise CopyIncompleteError(f"a vector in the copy of {spec.name!r} is not the configured model's")
    return len(sample)


async def check_none_lacks(spec: CollectionSpec, target: VectorStore, copied: str) -> None:
    """Raises CopyIncompleteError when a point has no vector that should have all."""
    if not spec.dense:
        return
    without = 0
    async for records in scroll_pages(target, copied, lacks(spec.dense), size=IDS_AT_ONCE):
        without += sum(has_all(spec, record) for record in records)
    if without:
        raise CopyIncompleteError(f"{without} points in the copy of {spec.name!r} have no vector")


async def _sample(target: VectorStore, copied: str, choice: Random) -> list[Record]:
    sample: dict[str, Record] = {}
    places = [None, *(str(uuid.UUID(int=choice.getrandbits(128))) for _ in range(SAMPLES - 1))]
    for place in places:
        records, _ = await target.scroll(
            copied, limit=SAMPLE, offset=place, with_payload=True, with_vectors=True
        )
        sample |= {str(record.id): record for record in records}
    return list(sample.values())


def _agree(spec: CollectionSpec, record: Record, made: Point) -> bool:
    """Vectors that are not due yet, as those of a turn that just ended, are not asked for."""
    stored, fresh = record.vector or {}, made.vector
    if not isinstance(stored, dict) or not isinstance(fresh, dict):
        return False
    due = [name for name in deserves(spec, record) if name in stored]
    return all(
        _cosine(cast(list[float], stored[name]), cast(list[float], fresh[name])) >= LEAST_COSINE
        for name in due
    )


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    lengths = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 1.0
