"""Disk space for retention and the health page: reclaim it, and report in time when it runs low."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import structlog

from core.errors import WenmaiError
from core.operations.reports import Receipt, ReceiptKind
from services.store.clock import Clock
from services.store.dialect import DiskRoom, Reclaimed, StoreUpkeep, VectorStore
from services.store.receipts import ReceiptStore

log = structlog.get_logger()

_MIN_BYTES = 1 << 20
_MIN_SHARE = 0.1


IS_DELETION: ContextVar[bool] = ContextVar("is_deletion", default=False)


@contextmanager
def deleting() -> Iterator[None]:
    """Writes inside the block are part of a deletion and may use the space the store reserves for these."""
    token = IS_DELETION.set(True)
    try:
        yield
    finally:
        IS_DELETION.reset(token)


class StoreSpace:
    """The store's space on disk. A Qdrant server manages its own, so nothing is done there.

    A collection is compacted when a sample of its points suggests that at least a tenth of its size, and
    1 MB, would come back, on top of what the last compaction was expected to reclaim and did not. What must
    be rewritten is noted in the store until it is done, so that a stop or a crash only postpones it.
    """

    def __init__(
        self, store: VectorStore, collections: Sequence[str], receipts: ReceiptStore, clock: Clock
    ) -> None:
        self._store = store
        self._collections = collections
        self._receipts = receipts
        self._clock = clock
        self._left_over: dict[str, int] = {}
        self._noted: Counter[str] = Counter()

    async def size_bytes(self) -> int | None:
        return await self._store.size_bytes() if isinstance(self._store, StoreUpkeep) else None

    async def reclaim(self) -> Reclaimed | None:
        """Compact what is worth it, with one receipt for all; returns the store's size before and after.

        The smallest copy is made first: the space it frees may be what the next one needs.
        When one fails, raises StoreUnavailableError, including DiskFullError, after compacting the others.
        """
        store = self._store
        if not isinstance(store, StoreUpkeep):
            return None
        worth = [
            (sizes.bytes_after, name)
            for name in self._collections
            if await self._store.collection_exists(name)
            and self._is_worth_it(name, sizes := await store.sizes(name))
        ]
        return await self._compact(store, [name for _, name in sorted(worth)]) if worth else None

    async def rewrite(self, collections: Sequence[str]) -> Reclaimed | None:
        """Compact these, however little comes back, so that no file contains erased data any more. None with
        a Qdrant server. Raises StoreUnavailableError, including DiskFullError."""
        if not isinstance(self._store, StoreUpkeep):
            return None
        existing = [name for name in collections if await self._store.collection_exists(name)]
        await self.note(existing)
        return await self._compact(self._store, existing, "request") if existing else None

    async def note(self, collections: Collection[str]) -> None:
        """Note in the store that these must be rewritten. Raises StoreUnavailableError."""
        if collections and isinstance(self._store, StoreUpkeep):
            self._noted.update(collections)
            with deleting():  # even on a full disk
                await self._receipts.note_rewrites(sorted(collections))

    async def noted(self) -> list[str]:
        """Return what must still be rewritten, also after a restart. Raises StoreUnavailableError."""
        return await self._receipts.rewrites() if isinstance(self._store, StoreUpkeep) else []

    def _is_worth_it(self, collection: str, sizes: Reclaimed) -> bool:
        excess = sizes.bytes_before - sizes.bytes_after - self._left_over.get(collection, 0)
        return excess >= max(_MIN_BYTES, _MIN_SHARE * sizes.bytes_before)

    async def _compact(
        self, store: StoreUpkeep, collections: Sequence[str], reason: str = "schedule"
    ) -> Reclaimed:
        began_us, before = self._clock(), await store.size_bytes()
        done = 0
        failure: WenmaiError | None = None
        for name in collections:
            try:
                await self._compact_one(store, name)
                done += 1
            except WenmaiError as error:
                log.warning("compaction_failed", collection=name, reason=str(error))
                failure = failure or error
        reclaimed = Reclaimed(before, await store.size_bytes())
        await self._receipts.add(self._receipt(reason, began_us, reclaimed, done, failure))
        if failure is not None:
            raise failure
        return reclaimed

    async def _compact_one(self, store: StoreUpkeep, collection: str) -> None:
        noted = self._noted[collection]
        reclaimed = await store.compact(collection)
        if noted and self._noted[collection] == noted:  # else more was deleted, and the copy may hold it
            del self._noted[collection]
            await self._receipts.drop_rewrite(collection)
        sizes = await store.sizes(collection)
        self._left_over[collection] = max(0, sizes.bytes_before - sizes.bytes_after)
        log.info(
            "compacted",
            collection=collection,
            bytes_before=reclaimed.bytes_before,
            bytes_after=reclaimed.bytes_after,
        )

    def _receipt(
        self, reason: str, began_us: int, reclaimed: Reclaimed, done: int, failure: WenmaiError | None
    ) -> Receipt:
        return Receipt(
            receipt_id="",
            kind=ReceiptKind.COMPACTION,
            reason=reason,
            began_us=began_us,
            ended_us=self._clock(),
            counts={"collections": done},
            bytes_before=reclaimed.bytes_before,
            bytes_after=reclaimed.bytes_after,
            error=str(failure) if failure else "",
        )


class DiskWatch:
    """Whether there is disk space left to write to. A store that does not report it is never a problem."""

    def __init__(self, store: VectorStore, low_disk_bytes: int) -> None:
        self._store = store
        self._low_disk_bytes = low_disk_bytes

    async def problem(self) -> str | None:
        """A plain sentence when little space is left, else None. Never raises."""
        room = await self._room()
        if room is None or room.free_bytes >= max(self._low_disk_bytes, room.reserve_bytes):
            return None
        left, reserve = room.free_bytes >> 20, room.reserve_bytes >> 20
        how = "full" if room.free_bytes < room.reserve_bytes else "nearly full"
        return f"The disk of the data folder is {how}: {left} MB are left, the last {reserve} are kept free."

    async def is_full(self) -> bool:
        """Whether writes are being refused. Never raises."""
        room = await self._room()
        return room is not None and room.free_bytes < room.reserve_bytes

    async def _room(self) -> DiskRoom | None:
        if not isinstance(self._store, StoreUpkeep):
            return None
        try:
            return await self._store.room()
        except WenmaiError as error:
            log.warning("disk_room_unknown", reason=str(error))
            return None
