"""Re-embedding: every collection is copied into a second one with the vectors of another embedding.

The source collections are only read.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from random import Random

from config.settings import StoreSettings
from core.errors import StartRefusedError
from services.models.embedding import EmbeddingService
from services.operations.reembedding.level import (
    Changes,
    CollectionSync,
    CopyIncompleteError,
    Limits,
    Pause,
    PointMaker,
    check_counts,
    check_none_lacks,
    check_vectors,
    count_points,
)
from services.store.collections import (
    CollectionSpec,
    collection_specs,
    described_embedding,
    ensure_collections,
    fits,
)
from services.store.dialect import VectorStore

SAMPLE = 8  # points embedded to estimate the time
# While others write, this many changes in a round, or this share of all points, may remain for the next run.
FEW, FEW_OF_ALL = 32, 0.05
ROUNDS = 12
_NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class StoredCollection:
    """`embedding` names the embedding of its vectors; empty if it has none."""

    name: str
    points: int
    embedding: str
    fits: bool


@dataclass(frozen=True, slots=True)
class ReembedPlan:
    """The collections to copy. `seconds` is an estimate, 0 if there is nothing to do."""

    collections: tuple[StoredCollection, ...]
    seconds: float

    @property
    def needed(self) -> bool:
        return not all(collection.fits for collection in self.collections)

    @property
    def points(self) -> int:
        return sum(collection.points for collection in self.collections)


@dataclass(frozen=True, slots=True)
class SyncProgress:
    """`round` counts from 1; each compares all points, and later rounds embed few."""

    round: int
    done: int
    total: int
    embedded: int


Progress = Callable[[SyncProgress], object]


@dataclass(frozen=True, slots=True)
class CopiedCollection:
    """`points` are in the copy; `embedded` of them got vectors in this run; `removed` were deleted."""

    source: str
    target: str
    points: int
    embedded: int
    written: int = 0
    removed: int = 0
    checked: int = 0


@dataclass(frozen=True, slots=True)
class ReembedReport:
    """`last_round_us` is when the last round began: the copy has everything written before."""

    collections: tuple[CopiedCollection, ...]
    rounds: int = 1
    last_round_us: int = 0

    @property
    def counts(self) -> dict[str, int]:
        names = ("points", "written", "embedded", "removed", "checked")
        return {name: sum(getattr(each, name) for each in self.collections) for name in names}


async def no_pause() -> None:
    """Return at once, without a pause."""


@dataclass(frozen=True, slots=True)
class CopyMode:
    """How a copy is made. `live`: others write to the source meanwhile, so the last few changes may remain.

    `pause` is awaited before each unit of work; `limits` protect a target that others write to.
    """

    live: bool = False
    pause: Pause = no_pause
    limits: Limits = field(default_factory=lambda: _NO_LIMITS)
    replace: bool = False


class Reembed:
    """`settings` names the source collections; missing ones are skipped."""

    def __init__(self, source: VectorStore, settings: StoreSettings, embedding: EmbeddingService) -> None:
        self._source = source
        self._settings = settings
        self._embedding = embedding
        self._maker = PointMaker(embedding)

    async def plan(self, *, from_scratch: bool = False) -> ReembedPlan:
        """Plan a run; `from_scratch` embeds everything, even if it already has this embedding. Raises
        StartRefusedError if another version's schema is stored, UnavailableError subclasses."""
        specs = [spec async for spec in self._stored_specs()]
        collections = tuple([await self._inspect(spec) for spec in specs])
        plan = ReembedPlan(collections, 0.0)
        if not (plan.needed or from_scratch):
            return plan
        costs = [
            await self._seconds(spec, collection.points)
            for spec, collection in zip(specs, collections, strict=True)
        ]
        return ReembedPlan(collections, sum(costs))

    async def run(
        self, target: VectorStore, names: StoreSettings, on_progress: Progress, mode: CopyMode | None = None
    ) -> ReembedReport:
        """Bring the collections `names` of `target` up to date, and check that nothing is missing.

        Existing copies are continued. A live copy is complete once further rounds would bring it no closer.
        Raises StartRefusedError if the target has another embedding or is used by others,
        CopyIncompleteError if the check fails, or if the stored points change though the copy is not live,
        UnavailableError subclasses.
        """
        mode = mode or CopyMode()
        await self._make_collections(target, names, replace=mode.replace)
        new_names = dict(zip(_names(self._settings), _names(names), strict=True))
        specs = [spec async for spec in self._stored_specs()]
        made = {spec.name: Changes() for spec in specs}
        sync = CollectionSync(self._source, target, self._maker, mode.pause, mode.limits)
        before: int | None = None
        for number in range(1, ROUNDS + 1):
            began_us = time.time_ns() // 1_000
            stored = {spec.name: await count_points(self._source, spec.name) for spec in specs}
            progress = _RoundProgress(number, sum(stored.values()), on_progress)
            for spec in specs:
                changes = await sync.round(spec, new_names[spec.name], progress.report)
                progress.all.add(changes)
                made[spec.name].add(changes)
            if _is_level(progress.all, before, live=mode.live):
                break
            before = progress.all.changed
        else:
            if not mode.live:
                raise CopyIncompleteError(
                    f"the stored points changed faster than they were copied, {ROUNDS} times over; "
                    f"run this again"
                )
        copied = [
            await self._checked(spec, target, new_names[spec.name], made[spec.name], mode, stored[spec.name])
            for spec in specs
        ]
        return ReembedReport(tuple(copied), number, began_us)

    async def _make_collections(self, target: VectorStore, names: StoreSettings, *, replace: bool) -> None:
        if replace:
            for name in _names(names):
                await target.delete_collection(name)
        embedding = self._embedding
        try:
            await ensure_collections(
                target, names, embedding_name=embedding.name, dimension=embedding.dimension
            )
        except StartRefusedError as error:
            raise StartRefusedError(
                f"there are collections of other vectors ({error}); name others with --suffix, or add "
                f"--replace to remove what an interrupted run left"
            ) from error

    async def _checked(
        self,
        spec: CollectionSpec,
        target: VectorStore,
        name: str,
        changes: Changes,
        mode: CopyMode,
        stored: int,
    ) -> CopiedCollection:
        """Check one copy; `stored` is the source's number of points when the last round began."""
        if not mode.limits.keeps_all(spec):
            tolerance = await self._tolerance(spec, stored) if mode.live else 0
            points = await check_counts(self._source, spec.name, target, name, tolerance)
            await check_none_lacks(spec, target, name)
        else:  # both are written to and differ, and the target's own server embeds what it writes
            points = await count_points(target, name)
        checked = await check_vectors(spec, target, name, self._maker, Random())  # noqa: S311 — a sample
        return CopiedCollection(
            spec.name, name, points, changes.embedded, changes.written, changes.removed, checked
        )

    async def _tolerance(self, spec: CollectionSpec, stored: int) -> int:
        """Return by how many points the copy may differ: those added or deleted since the last round began.

        Judged by the source alone: a copy that loses points must not excuse itself with its own changes.
        """
        moved = abs(await count_points(self._source, spec.name) - stored)
        return moved + max(FEW, int(stored * FEW_OF_ALL))

    async def _stored_specs(self) -> AsyncIterator[CollectionSpec]:
        for spec in collection_specs(self._settings):
            if await self._source.collection_exists(spec.name):
                yield spec

    async def _inspect(self, spec: CollectionSpec) -> StoredCollection:
        name, dimension = self._embedding.name, self._embedding.dimension
        return StoredCollection(
            name=spec.name,
            points=(await self._source.count(spec.name)).count,
            embedding=await described_embedding(self._source, spec) if spec.dense else "",
            fits=await fits(self._source, spec, embedding_name=name, dimension=dimension),
        )

    async def _seconds(self, spec: CollectionSpec, points: int) -> float:
        """Estimate the time from a few points; only a hint, as texts differ in length."""
        records, _ = await self._source.scroll(spec.name, limit=SAMPLE, with_payload=True)
        if not records or not spec.dense:
            return 0.0
        await self._embedding.embed_passages(["warm"])  # the first call loads the model
        began = time.monotonic()
        await self._maker.points(spec, records)
        return (time.monotonic() - began) / len(records) * points


class _RoundProgress:
    """Adds up the collections' counts for the progress of the whole round."""

    def __init__(self, number: int, total: int, on_progress: Progress) -> None:
        self._number = number
        self._total = total
        self._on_progress = on_progress
        self.all = Changes()

    def report(self, now: Changes) -> None:
        done = self.all.compared + now.compared
        embedded = self.all.embedded + now.embedded
        self._on_progress(SyncProgress(self._number, done, max(self._total, done), embedded))


def _is_level(round_: Changes, before: int | None, *, live: bool) -> bool:
    """Whether this was the last round; `before` is how many points the previous round changed, if any.

    After a round, the copy has everything that was stored when it began. While others write as fast as it
    copies, every round finds as many changes as the last; they are copied when it replaces the store.
    """
    if not live:
        return round_.changed == 0
    shrinks = before is None or round_.changed < before
    return not shrinks or round_.changed <= max(FEW, round_.compared * FEW_OF_ALL)


def _names(settings: StoreSettings) -> list[str]:
    return [spec.name for spec in collection_specs(settings)]
