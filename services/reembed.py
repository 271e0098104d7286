"""Re-embedding: every collection is copied into a fresh one whose vectors are the configured embedding's.

The collections that are copied from are only read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from qdrant_client import models

from config.settings import StoreSettings
from core.errors import StartRefusedError, WenmaiError
from core.query import SparseTerms
from core.sparse import encode_document
from services.collections import (
    SPARSE,
    CollectionSpec,
    collection_specs,
    described_embedding,
    ensure_collections,
    fits,
)
from services.embedding import EmbeddingService, Vector
from services.reembed_texts import point_texts
from services.store import VectorStore
from services.turn_payload import sparse_vector

PAGE = 32  # points read, embedded and written at a time; a turn with its prompt may have 100 kB
SAMPLE = 8  # points that are embedded to estimate the time

Progress = Callable[[int], object]  # told how many points more are copied


class CopyIncompleteError(WenmaiError):
    """The copy does not have the points that are stored; it must not be used."""

    code = "copy_incomplete"


@dataclass(frozen=True, slots=True)
class StoredCollection:
    """`embedding` names what its vectors are from; empty when it has none."""

    name: str
    points: int
    embedding: str
    fits: bool


@dataclass(frozen=True, slots=True)
class ReembedPlan:
    """What there is to copy. `seconds` is an estimate, 0 when nothing needs to be done."""

    collections: tuple[StoredCollection, ...]
    seconds: float

    @property
    def needed(self) -> bool:
        return not all(collection.fits for collection in self.collections)

    @property
    def points(self) -> int:
        return sum(collection.points for collection in self.collections)


@dataclass(frozen=True, slots=True)
class CopiedCollection:
    """`embedded` counts the points that got vectors."""

    source: str
    target: str
    points: int
    embedded: int


@dataclass(frozen=True, slots=True)
class ReembedReport:
    collections: tuple[CopiedCollection, ...]


class Reembed:
    """`settings` names the collections that are copied from; those that are missing are left out."""

    def __init__(self, source: VectorStore, settings: StoreSettings, embedding: EmbeddingService) -> None:
        self._source = source
        self._settings = settings
        self._embedding = embedding

    async def plan(self) -> ReembedPlan:
        """Raises StartRefusedError when another version's schema is stored, UnavailableError kinds."""
        specs = [spec async for spec in self._stored_specs()]
        collections = tuple([await self._look_at(spec) for spec in specs])
        plan = ReembedPlan(collections, 0.0)
        if not plan.needed:
            return plan
        costs = [
            await self._seconds(spec, found.points) for spec, found in zip(specs, collections, strict=True)
        ]
        return ReembedPlan(collections, sum(costs))

    async def run(
        self, target: VectorStore, names: StoreSettings, progress: Progress, *, replace: bool = False
    ) -> ReembedReport:
        """Copy everything into the collections `names` of `target`, and count that nothing is missing.

        `replace` removes what such a collection holds already, else StartRefusedError. Raises
        CopyIncompleteError when the stored points changed meanwhile, UnavailableError kinds.
        """
        await _make_room(target, names, replace=replace)
        await ensure_collections(
            target, names, embedding_name=self._embedding.name, dimension=self._embedding.dimension
        )
        new_names = dict(zip(_names(self._settings), _names(names), strict=True))
        copied = [
            await self._copy(spec, target, new_names[spec.name], progress)
            async for spec in self._stored_specs()
        ]
        for each in copied:
            await self._compare(each, target)
        return ReembedReport(tuple(copied))

    async def _stored_specs(self) -> AsyncIterator[CollectionSpec]:
        for spec in collection_specs(self._settings):
            if await self._source.collection_exists(spec.name):
                yield spec

    async def _look_at(self, spec: CollectionSpec) -> StoredCollection:
        name, dimension = self._embedding.name, self._embedding.dimension
        return StoredCollection(
            name=spec.name,
            points=(await self._source.count(spec.name)).count,
            embedding=await described_embedding(self._source, spec) if spec.dense else "",
            fits=await fits(self._source, spec, embedding_name=name, dimension=dimension),
        )

    async def _seconds(self, spec: CollectionSpec, points: int) -> float:
        """Measured on a few points, which is no more than a hint: texts differ in length."""
        records, _ = await self._source.scroll(spec.name, limit=SAMPLE, with_payload=True)
        if not records or not spec.dense:
            return 0.0
        await self._embedding.embed_passages(["warm"])  # the first call loads the model
        began = time.monotonic()
        await self._points(spec, records)
        return (time.monotonic() - began) / len(records) * points

    async def _copy(
        self, spec: CollectionSpec, target: VectorStore, name: str, progress: Progress
    ) -> CopiedCollection:
        points = embedded = 0
        offset: Any = None
        while True:
            records, offset = await self._source.scroll(
                spec.name, limit=PAGE, offset=offset, with_payload=True, with_vectors=False
            )
            if records:
                batch = await self._points(spec, records)
                await target.upsert(name, batch)
                points += len(batch)
                embedded += sum(bool(point.vector) for point in batch)
                progress(len(batch))
            if offset is None:
                return CopiedCollection(spec.name, name, points, embedded)

    async def _compare(self, copied: CopiedCollection, target: VectorStore) -> None:
        stored = (await self._source.count(copied.source)).count
        written = (await target.count(copied.target)).count
        if not stored == copied.points == written:
            raise CopyIncompleteError(
                f"collection {copied.source!r} has {stored} points, of which {copied.points} were read and "
                f"{written} are in the copy; stop what writes to it and run this again"
            )

    async def _points(
        self, spec: CollectionSpec, records: Sequence[models.Record]
    ) -> list[models.PointStruct]:
        texts = [point_texts(spec, record.payload or {}) for record in records]
        questions = await _embedded(self._embedding.embed_queries, [each.question for each in texts])
        passages = await _embedded(self._embedding.embed_passages, [each.passage for each in texts])
        words = await asyncio.to_thread(_sparse, [each.words for each in texts])
        passage_name = spec.dense[0] if spec.dense else ""
        points = []
        for record, *found in zip(records, questions, passages, words, strict=True):
            named = dict(zip(("question", passage_name, SPARSE), found, strict=True))
            vector = {name: value for name, value in named.items() if value is not None}
            points.append(models.PointStruct(id=record.id, vector=vector, payload=record.payload))
        return points


async def _embedded(
    embed: Callable[[Sequence[str]], Awaitable[list[Vector]]], texts: Sequence[str]
) -> list[Vector | None]:
    """In the order of `texts`; None for an empty one."""
    wanted = [text for text in texts if text]
    vectors = iter(await embed(wanted) if wanted else [])
    return [next(vectors) if text else None for text in texts]


def _sparse(texts: Sequence[str]) -> list[models.SparseVector | None]:
    encoded: list[SparseTerms] = [encode_document(text) for text in texts]
    return [sparse_vector(terms) if terms.indices else None for terms in encoded]


def _names(settings: StoreSettings) -> list[str]:
    return [spec.name for spec in collection_specs(settings)]


async def _make_room(target: VectorStore, names: StoreSettings, *, replace: bool) -> None:
    there = [name for name in _names(names) if await target.collection_exists(name)]
    if there and not replace:
        raise StartRefusedError(
            f"there already: {', '.join(there)}; name others with --suffix, or add --replace to remove what "
            f"an interrupted run left"
        )
    for name in there:
        await target.delete_collection(name)
