"""Erasures that were begun: noted before the first change, so that one that is cut is finished later."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from core.failpoints import failpoint
from core.operations.erasure import ErasedKind
from services.store.clock import Clock, utc_now_us
from services.store.dialect import Filter, Point, VectorStore
from services.store.filters import by_ids, equals, in_range
from services.store.pages import scroll_all

RECORD = "begun_erasure"
_IDS = uuid.UUID("5f0a35b5-6e5c-4f29-a0f1-36a3f6c0a0f9")


@dataclass(frozen=True, slots=True)
class Begun:
    """`owner` None: whoever's it is. `full` and `with_answers` are of its options."""

    kind: ErasedKind
    name: str
    owner: str | None
    full: bool
    with_answers: bool


class BegunErasures:
    """In the operations collection. Every method raises StoreUnavailableError."""

    def __init__(self, store: VectorStore, collection: str, clock: Clock = utc_now_us) -> None:
        self._store = store
        self._collection = collection
        self._clock = clock
        self.doubtful = False
        """One of this process was cut."""

    @asynccontextmanager
    async def noted(self, begun: Begun) -> AsyncIterator[None]:
        """Around all that it changes; the note stays when that fails."""
        point_id = str(uuid.uuid5(_IDS, f"{begun.kind.value} {begun.name}"))
        payload = {
            "record": RECORD,
            "kind": begun.kind.value,
            "name": begun.name,
            "owner": begun.owner,
            "full": begun.full,
            "with_answers": begun.with_answers,
            "began_us": self._clock(),
        }
        try:
            await self._store.upsert(self._collection, [Point(id=point_id, vector={}, payload=payload)])
            failpoint("erase.noted")
            yield
            failpoint("erase.made")
            await self._store.delete(self._collection, by_ids([point_id]))
        except BaseException:
            self.doubtful = True
            raise

    async def pending(self, min_age_s: float = 0) -> list[Begun]:
        """Begun at least so long ago, and not ended."""
        old = in_range("began_us", lte=self._clock() - int(min_age_s * 1_000_000))
        point_filter = Filter(must=[equals("record", RECORD), old])
        pending = []
        async for record in scroll_all(self._store, self._collection, point_filter):
            noted = record.payload or {}
            pending.append(
                Begun(
                    ErasedKind(noted["kind"]), noted["name"], noted["owner"], noted["full"],
                    noted["with_answers"],
                )
            )  # fmt: skip
        return pending
