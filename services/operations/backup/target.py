"""The empty store that a restore or a move fills: nothing in it is overwritten, half of it is never used."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.settings import StoreSettings
from core.errors import StartRefusedError
from core.failpoints import failpoint
from core.operations.archive import Role, Shape
from core.operations.receipts import Receipt
from services.operations.backup.shapes import make_collection, names_of, stored_names
from services.store.dialect import Filter, Point, Record, VectorStore
from services.store.durable import store_locked, sync_folder
from services.store.filters import by_ids, equals
from services.store.receipts import RECORD, ReceiptStore

RESTORING = "restoring"
MARKER_ID = str(uuid.uuid5(uuid.NAMESPACE_URL, "wenmai:restoring"))
_MOST_RECEIPTS = 10_000


class StoreNotEmptyError(StartRefusedError):
    """Only an empty store is filled. Exit code 2."""

    code = "store_not_empty"


async def check_empty(store: VectorStore, settings: StoreSettings) -> list[Record]:
    """The receipts that are there; the operations collection may have records, all others must have none.

    Raises StoreNotEmptyError, which names what is there.
    """
    names = await stored_names(store, settings)
    counts = {
        name: (await store.count(name)).count for role, name in names.items() if role != Role.OPERATIONS
    }
    occupied = [f"{number} in {name}" for name, number in counts.items() if number]
    if occupied:
        raise StoreNotEmptyError(
            f"the store is not empty: it has points, {', '.join(occupied)}; choose another DATA_DIR or other "
            f"collections, nothing is ever overwritten"
        )
    if Role.OPERATIONS not in names:
        return []
    chosen = Filter(must=[equals("record", RECORD)])
    receipts, _ = await store.scroll(names[Role.OPERATIONS], scroll_filter=chosen, limit=_MOST_RECEIPTS)
    return receipts


async def refuse_half_filled(store: VectorStore, operations_collection: str) -> None:
    """For a start beside a Qdrant server. Raises StartRefusedError."""
    marker = await _marker(store, operations_collection)
    if marker is not None:
        raise StartRefusedError(
            f"{marker} was begun into this store and did not end: run it again to finish it, or delete the "
            f"collections to give it up"
        )


async def _marker(store: VectorStore, operations_collection: str) -> str | None:
    """What was begun and not ended."""
    if not await store.collection_exists(operations_collection):
        return None
    records = await store.retrieve(operations_collection, [MARKER_ID])
    return str((records[0].payload or {}).get("what", "a restore")) if records else None


class Target:
    """`begin`, then `make` and `write` for each role with the operations last, then `finish`.

    `receipts` are those that the store had before, which stay.
    """

    def __init__(self, store: VectorStore, settings: StoreSettings, receipts: Sequence[Record] = ()) -> None:
        self.store = store
        self.settings = settings
        self.names = names_of(settings)
        self._receipts = list(receipts)

    async def begin(self, what: str, operations: Shape) -> None:
        """`what` says what fills it; the same may be begun again where it was interrupted.

        Raises StoreNotEmptyError, StartRefusedError when something else was interrupted.
        """
        operating = self.names[Role.OPERATIONS]
        begun = await _marker(self.store, operating)
        if begun not in (None, what):
            await refuse_half_filled(self.store, operating)
        if begun is None:
            self._receipts += await check_empty(self.store, self.settings)
        if not await self.store.collection_exists(operating):
            await make_collection(self.store, Role.OPERATIONS, operations, self.settings)
        payload: dict[str, Any] = {"record": RESTORING, "what": what}
        await self.store.upsert(operating, [Point(id=MARKER_ID, vector={}, payload=payload)])

    async def make(self, role: Role, shape: Shape) -> None:
        """An empty collection of that name may have been made for another embedding, so it is made anew."""
        name = self.names[role]
        if role is Role.OPERATIONS:
            return  # `begin` has made it
        if await self.store.collection_exists(name):
            if (await self.store.count(name)).count:
                return  # of the run that was interrupted
            await self.store.delete_collection(name)
        await make_collection(self.store, role, shape, self.settings)

    async def write(self, role: Role, points: Sequence[Point]) -> None:
        await self.store.upsert(self.names[role], points)
        failpoint("restore.batch")

    async def has(self, role: Role, points: int) -> bool:
        """Whether these are all; the operations collection had records before, and has the marker."""
        count = (await self.store.count(self.names[role])).count
        return count == points if role is not Role.OPERATIONS else count > points

    async def finish(self, receipt: Receipt) -> None:
        """From here on it may be used."""
        operating = self.names[Role.OPERATIONS]
        if self._receipts:
            receipts = [Point(id=each.id, vector={}, payload=each.payload) for each in self._receipts]
            await self.store.upsert(operating, receipts)
        await ReceiptStore(self.store, operating).add(receipt)
        await self.store.delete(operating, by_ids([MARKER_ID]))


# The folders of an embedded store that is filled from elsewhere: made beside it, it takes its name whole.
#
# `store.restoring` is being filled, `store.restored` is whole and about to take the place of `store`,
# `store.emptied` is the empty store that stood there. A start must not pass over the first two.


@dataclass(frozen=True, slots=True)
class RestoreFolders:
    store: Path

    @property
    def unfinished(self) -> Path:
        return self._beside(".restoring")

    @property
    def whole(self) -> Path:
        return self._beside(".restored")

    @property
    def _emptied(self) -> Path:
        return self._beside(".emptied")

    def _beside(self, suffix: str) -> Path:
        return self.store.with_name(self.store.name + suffix)

    def refuse_interrupted(self) -> None:
        """For a start: an empty store would be made, and what was restored would be missing unseen.

        Raises StartRefusedError.
        """
        for folder in (self.whole, self.unfinished):
            if folder.exists():
                raise StartRefusedError(
                    f"a restore or a move into {self.store} was interrupted: run it again to finish it, or "
                    f"delete {folder} to give it up"
                )

    def finish_interrupted(self) -> bool:
        """Put a whole copy in place when an earlier run ended before it had done so; False: there is none."""
        if not self.whole.exists():
            return False
        self._put_in_place()
        return True

    def discard_unfinished(self) -> bool:
        """False when there was none."""
        shutil.rmtree(self._emptied, ignore_errors=True)
        if not self.unfinished.exists():
            return False
        shutil.rmtree(self.unfinished)
        return True

    def replace(self) -> None:
        """The filled, closed copy takes the store's place, which was found empty. Raises StoreLockedError."""
        self.unfinished.rename(self.whole)
        sync_folder(self.store.parent)
        failpoint("restore.renamed")
        self._put_in_place()

    def _put_in_place(self) -> None:
        shutil.rmtree(self._emptied, ignore_errors=True)
        if self.store.exists():
            with store_locked(self.store, ": stop it and run this again"):
                self.store.rename(self._emptied)
                failpoint("restore.emptied")
        self.whole.rename(self.store)
        sync_folder(self.store.parent)
        shutil.rmtree(self._emptied, ignore_errors=True)
