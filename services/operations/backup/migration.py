"""A store, moved: every point of every collection copied from one engine into another that is empty."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from config.settings import StoreSettings
from core.errors import StartRefusedError, WenmaiError
from core.operations.archive import Role
from core.operations.receipts import Receipt, ReceiptKind
from services.operations.backup.records import point_of, records_of
from services.operations.backup.restore import bare_shape
from services.operations.backup.shapes import read_shape, stored_names
from services.operations.backup.target import Target
from services.operations.copying import PAGE
from services.store.clock import Clock, utc_now_us
from services.store.dialect import VectorStore
from services.store.pages import scroll_pages

WHAT = "a move"
Progress = Callable[[int], object]  # called with how many points more are written


class MoveIncompleteError(WenmaiError):
    """The two stores do not have the same number of points."""

    code = "move_incomplete"


@dataclass(frozen=True, slots=True)
class MoveReport:
    """Points by role."""

    points: dict[str, int]
    seconds: float = 0.0


class Migration:
    """The source is only read; both stores have the collection names of `settings`."""

    def __init__(self, source: VectorStore, settings: StoreSettings, clock: Clock = utc_now_us) -> None:
        self._source = source
        self._settings = settings
        self._clock = clock

    async def plan(self) -> MoveReport:
        """What there is to move. Raises StartRefusedError when there is nothing."""
        names = await stored_names(self._source, self._settings)
        if not names:
            raise StartRefusedError("there is none of the collections to move")
        counts = {role.value: (await self._source.count(name)).count for role, name in names.items()}
        return MoveReport(counts)

    async def into(self, target: Target, progress: Progress, *, reason: str = "command") -> MoveReport:
        """Raises StoreNotEmptyError, MoveIncompleteError, StoreUnavailableError."""
        began_us, began = self._clock(), time.monotonic()
        names = await stored_names(self._source, self._settings)
        roles = sorted(names, key=lambda role: role is Role.OPERATIONS)
        shapes = {role: await read_shape(self._source, names[role]) for role in roles}
        metadata = next((shape.metadata for shape in shapes.values()), None)
        await target.begin(WHAT, shapes.get(Role.OPERATIONS) or bare_shape(metadata))
        copied: dict[Role, int] = {}
        for role in roles:
            await target.make(role, shapes[role])
            copied[role] = await self._copy(names[role], role, target, progress)
        for role in roles:
            await self._compare(names[role], role, copied[role], target)
        points = {role.value: number for role, number in copied.items()}
        await target.finish(
            Receipt("", ReceiptKind.MIGRATION, reason, began_us, self._clock(), counts=points)
        )
        return MoveReport(points, round(time.monotonic() - began, 2))

    async def _copy(self, name: str, role: Role, target: Target, progress: Progress) -> int:
        copied = 0
        async for page in scroll_pages(self._source, name, size=PAGE, with_vectors=True):
            await target.write(role, [point_of(record) for record in records_of(page)])
            copied += len(page)
            progress(len(page))
        return copied

    async def _compare(self, name: str, role: Role, copied: int, target: Target) -> None:
        stored = (await self._source.count(name)).count
        if stored != copied or not await target.has(role, copied):
            raise MoveIncompleteError(
                f"collection {name!r} has {stored} points, {copied} were read, and the target does not have "
                f"as many; stop what writes to it, empty the target and run this again"
            )
