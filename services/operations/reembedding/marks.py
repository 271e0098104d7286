"""Collections of a Qdrant server brought level with others beside them, and since when they are.

A note in the new collections says until when they were level. It keeps a server that uses them already from
losing what only it has, and lets what was still written to the old ones be added afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from config.settings import StoreSettings
from core.errors import StartRefusedError
from core.operations.receipts import Receipt, ReceiptKind
from services.models.embedding import EmbeddingService
from services.operations.reembedding.level import MARK_ID, Limits
from services.operations.reembedding.run import Manner, Progress, Reembed, ReembedReport
from services.store.dialect import Point, Record, VectorStore
from services.store.receipts import ReceiptStore

RECORD = "reembedded"


@dataclass(frozen=True, slots=True)
class Level:
    """`began_us`: what was written before is in the copy. `ended_us`: nothing in it was copied later."""

    began_us: int
    ended_us: int


class CollectionsBeside:
    """`old` names what is copied, `new` what it is copied into; both are on the server of `store`."""

    def __init__(
        self, store: VectorStore, old: StoreSettings, new: StoreSettings, embedding: EmbeddingService
    ) -> None:
        self._store = store
        self._old = old
        self._new = new
        self._embedding = embedding

    async def make(
        self, on_progress: Progress, *, catch_up: bool = False, replace: bool = False
    ) -> ReembedReport:
        """With `catch_up` only what was written to the old ones after the copy is added to the new ones.

        Raises StartRefusedError when the new ones are in use and neither is said, CopyIncompleteError,
        UnavailableError kinds.
        """
        began_us = _now_us()
        limits = await self._limits(catch_up=catch_up, replace=replace)
        reembed = Reembed(self._store, self._old, self._embedding)
        report = await reembed.run(
            self._store, self._new, on_progress, Manner(live=True, limits=limits, replace=replace)
        )
        if not catch_up:
            await self._write(Level(report.last_round_us, _now_us()))
        await self._add_receipt(report, began_us)
        return report

    async def _limits(self, *, catch_up: bool, replace: bool) -> Limits:
        """The note is in the new collections; on the way back it is in those that are copied from."""
        levels = [
            level
            for names in (self._new, self._old)
            if (level := await self._read(names.operations_collection)) is not None
        ]
        if catch_up and not levels:
            raise StartRefusedError("--catch-up adds to collections that were copied before: there are none")
        if replace or not levels:
            return Limits()
        newest = max(levels, key=lambda level: level.ended_us)
        return Limits(only_since_us=newest.began_us if catch_up else None, served_since_us=newest.ended_us)

    async def _read(self, collection: str) -> Level | None:
        if not await self._store.collection_exists(collection):
            return None
        records: Sequence[Record] = await self._store.retrieve(collection, [MARK_ID])
        payload = (records[0].payload or {}) if records else {}
        began, ended = payload.get("level_began_us"), payload.get("level_ended_us")
        return Level(began, ended) if isinstance(began, int) and isinstance(ended, int) else None

    async def _write(self, level: Level) -> None:
        payload = {"record": RECORD, "level_began_us": level.began_us, "level_ended_us": level.ended_us}
        note = Point(id=MARK_ID, vector={}, payload=payload)
        await self._store.upsert(self._new.operations_collection, [note])

    async def _add_receipt(self, report: ReembedReport, began_us: int) -> None:
        """Into the old ones: into the new ones it is copied when they are level again."""
        details = {"embedding": self._embedding.name, "dimension": str(self._embedding.dimension)}
        receipt = Receipt(
            "", ReceiptKind.REEMBEDDING, "command", began_us, _now_us(), report.counts, details=details
        )
        await ReceiptStore(self._store, self._old.operations_collection).add(receipt)


def _now_us() -> int:
    return time.time_ns() // 1_000
