"""Restore and migration into an empty store: nothing is overwritten, a half-filled store is never used."""

from __future__ import annotations

import asyncio
import shutil
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from config.settings import StoreSettings
from core.errors import StartRefusedError, WenmaiError
from core.failpoints import failpoint
from core.operations.archive import BadArchiveError, Kind, Manifest, Member, Role, Shape
from core.operations.reports import Receipt, ReceiptKind
from services.conversation.images import FOLDER, ImageFiles
from services.operations.backup.making import Snapshots
from services.operations.backup.reader import Archive
from services.operations.backup.records import (
    make_collection,
    names_of,
    point_of,
    read_shape,
    records_of,
    stored_names,
)
from services.operations.copying import PAGE
from services.store.clock import utc_now_us
from services.store.collections import REEMBED_COMMAND, SCHEMA_VERSION, SPARSE, StoredAs, read_stored_as
from services.store.dialect import Filter, Point, Record, VectorStore
from services.store.durable import store_locked, sync_folder
from services.store.points import by_ids, equals, scroll_pages
from services.store.receipts import RECORD, ReceiptStore

RESTORING = "restoring"
MARKER_ID = str(uuid.uuid5(uuid.NAMESPACE_URL, "wenmai:restoring"))
_MAX_RECEIPTS = 10_000


class StoreNotEmptyError(StartRefusedError):
    """Only an empty store can be filled. Exit code 2."""

    code = "store_not_empty"


async def check_empty(store: VectorStore, settings: StoreSettings) -> list[Record]:
    """Return the existing receipts; the operations collection may have records, the others must be empty.

    Raises StoreNotEmptyError, which names what the store holds.
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
    receipts, _ = await store.scroll(names[Role.OPERATIONS], scroll_filter=chosen, limit=_MAX_RECEIPTS)
    return receipts


async def refuse_half_filled(store: VectorStore, operations_collection: str) -> None:
    """Refuse to start on a half-filled Qdrant server. Raises StartRefusedError."""
    marker = await _marker(store, operations_collection)
    if marker is not None:
        raise StartRefusedError(
            f"{marker} into this store was started but not finished: run it again to finish it, or delete "
            "the collections to abandon it"
        )


async def _marker(store: VectorStore, operations_collection: str) -> str | None:
    """Return the name of an unfinished restore or migration, None without one."""
    if not await store.collection_exists(operations_collection):
        return None
    records = await store.retrieve(operations_collection, [MARKER_ID])
    return str((records[0].payload or {}).get("what", "a restore")) if records else None


@dataclass(frozen=True, slots=True)
class FillReport:
    """`points` are counts by role."""

    points: dict[str, int]
    seconds: float = 0.0


class Target:
    """`fill` calls `begin`, then `make` and `write` for each role with the operations last, then `finish`.

    `receipts` are those that the store already had; they are kept.
    """

    def __init__(self, store: VectorStore, settings: StoreSettings, receipts: Sequence[Record] = ()) -> None:
        self.store = store
        self.settings = settings
        self.names = names_of(settings)
        self._receipts = list(receipts)

    async def fill(
        self,
        what: str,
        shapes: Mapping[Role, Shape],
        copy: Callable[[Role], Awaitable[int]],
        check: Callable[[Role, int], Awaitable[None]],
        receipt: Receipt,
    ) -> FillReport:
        """Fill the store: `copy` copies one role's points and returns how many; at the end `check` compares.

        `receipt` is completed with counts and end time. Raises StoreNotEmptyError, and what both raise.
        """
        began = time.monotonic()
        roles = sorted(shapes, key=lambda role: role is Role.OPERATIONS)
        metadata = next((shape.metadata for shape in shapes.values()), None)
        bare = Shape(dense={}, sparse={SPARSE: True}, indexes={}, metadata=metadata)
        await self.begin(what, shapes.get(Role.OPERATIONS, bare))
        copied = {role: await copy(role) for role in roles}
        for role, number in copied.items():
            await check(role, number)
        points = {role.value: number for role, number in copied.items()}
        await self.finish(replace(receipt, counts=points, ended_us=utc_now_us()))
        return FillReport(points, round(time.monotonic() - began, 2))

    async def begin(self, what: str, operations: Shape) -> None:
        """Mark the store as being filled. `what` names the run; the same run may continue an interrupted one.

        Raises StoreNotEmptyError, or StartRefusedError if another run was interrupted.
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
        """Create the collection. An empty existing one may be for another embedding, so it is recreated."""
        name = self.names[role]
        if role is Role.OPERATIONS:
            return  # `begin` has created it
        if await self.store.collection_exists(name):
            if (await self.store.count(name)).count:
                return  # from the interrupted run
            await self.store.delete_collection(name)
        await make_collection(self.store, role, shape, self.settings)

    async def write(self, role: Role, points: Sequence[Point]) -> None:
        await self.store.upsert(self.names[role], points)
        failpoint("restore.batch")

    async def has(self, role: Role, points: int) -> bool:
        """Whether the store has this many points; operations also has earlier records and the marker."""
        count = (await self.store.count(self.names[role])).count
        return count == points if role is not Role.OPERATIONS else count > points

    async def finish(self, receipt: Receipt) -> None:
        """Write the receipts and remove the marker: from here on the store may be used."""
        operating = self.names[Role.OPERATIONS]
        if self._receipts:
            receipts = [Point(id=each.id, vector={}, payload=each.payload) for each in self._receipts]
            await self.store.upsert(operating, receipts)
        await ReceiptStore(self.store, operating).add(receipt)
        await self.store.delete(operating, by_ids([MARKER_ID]))


# The folders of an embedded store that is filled from elsewhere: filled beside it, then renamed into place.
#
# `store.restoring` is being filled, `store.restored` is complete and about to replace `store`, and
# `store.emptied` is the empty store it replaces. A server must not start while one of the first two exists.


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
        """Refuse to start after an interrupted run: the server would use an empty store, unnoticed.

        Raises StartRefusedError.
        """
        for folder in (self.whole, self.unfinished):
            if folder.exists():
                raise StartRefusedError(
                    f"a restore or a move into {self.store} was interrupted: run it again to finish it, or "
                    f"delete {folder} to abandon it"
                )

    def finish_interrupted(self) -> bool:
        """Put a complete copy in place if an earlier run ended before doing so; False if there is none."""
        if not self.whole.exists():
            return False
        self._put_in_place()
        return True

    def discard_unfinished(self) -> bool:
        """Delete an unfinished copy; False if there was none."""
        shutil.rmtree(self._emptied, ignore_errors=True)
        if not self.unfinished.exists():
            return False
        shutil.rmtree(self.unfinished)
        return True

    def replace(self) -> None:
        """Replace the store, which is empty, by the filled and closed copy. Raises StoreLockedError."""
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


# Restoring an archive into an empty store.


BATCH = 128
Progress = Callable[[int], object]  # called with the number of points written since the last call


class RestoreIncompleteError(WenmaiError):
    """The store lacks points of the archive; it must not be used."""

    code = "restore_incomplete"


def embedding_of(manifest: Manifest) -> StoredAs | None:
    """Return the embedding of the archive's vectors; None if no collection names one."""
    dense = [member.shape for member in manifest.members if member.shape.dense]
    return next(filter(None, (read_stored_as(shape.metadata) for shape in dense)), None)


def check_restorable(manifest: Manifest, configured: StoredAs | None, *, into_server: bool) -> None:
    """Check engine, schema and embedding; `configured` None accepts any embedding.

    Raises StartRefusedError and subclasses of it.
    """
    for member in manifest.members:
        if member.kind is Kind.SNAPSHOT and not into_server:
            raise StartRefusedError(
                "this archive holds a Qdrant server's snapshots, which only a server can read: restore it "
                "with QDRANT_URL, then move it with `wenmai migrate`"
            )
        stored = read_stored_as(member.shape.metadata)
        if stored is not None and stored.schema_version != SCHEMA_VERSION:
            raise BadArchiveError(
                f"the archive has schema {stored.schema_version} and this version of Wenmai knows schema "
                f"{SCHEMA_VERSION}; restore it with the version that made it ({manifest.made_by})"
            )
        if configured is not None and member.shape.dense:
            _check_embedding(stored, configured)


def _check_embedding(archived: StoredAs | None, configured: StoredAs) -> None:
    if archived == configured:
        return
    description = (
        f"{archived.embedding} ({archived.dimension} dimensions)"
        if archived
        else "an embedding that it does not name"
    )
    raise StartRefusedError(
        f"the archive was embedded with {description} and the configured embedding is {configured.embedding} "
        f"({configured.dimension} dimensions); set EMBEDDING to the archive's, or restore it with --as-is "
        f"and then re-embed everything with `{REEMBED_COMMAND}`"
    )


class Restore:
    """`archive` has been verified. `snapshots` is needed for an archive of a Qdrant server's snapshots."""

    def __init__(self, archive: Archive, snapshots: Snapshots | None = None) -> None:
        self._archive = archive
        self._snapshots = snapshots

    @property
    def what(self) -> str:
        """The run's name, for a start that finds it interrupted, and for recognizing it when repeated."""
        return f"a restore of {self._archive.path.name} of {self._archive.manifest.created}"

    async def into(self, target: Target, progress: Progress) -> FillReport:
        """Raises StoreNotEmptyError, RestoreIncompleteError, BadArchiveError, StoreUnavailableError."""
        members = {member.role: member for member in self._archive.manifest.members}

        images = members.pop(Role.IMAGES, None)

        async def copy(role: Role) -> int:
            if images is not None and role is Role.CONVERSATIONS:  # images exist before their turns
                await asyncio.to_thread(self._put_back, images, target)
            await self._restore(members[role], target, progress)
            return members[role].points

        async def check(role: Role, points: int) -> None:
            await _compare(members[role], target)

        details = {"file": self._archive.path.name, "moment": self._archive.manifest.created}
        receipt = Receipt("", ReceiptKind.RESTORE, "command", utc_now_us(), 0, details=details)
        shapes = {role: member.shape for role, member in members.items()}
        return await target.fill(self.what, shapes, copy, check, receipt)

    def _put_back(self, member: Member, target: Target) -> None:
        files = ImageFiles(target.settings.data_dir / FOLDER)
        for record in self._archive.records(member):
            images = record.payload.get("images")
            if isinstance(record.id, str) and isinstance(images, list):
                files.put_back(record.id, [pair for each in images if (pair := _pair(each)) is not None])

    async def _restore(self, member: Member, target: Target, progress: Progress) -> None:
        if member.kind is Kind.SNAPSHOT:
            await self._upload(member, target)
            progress(member.points)
            return
        await target.make(member.role, member.shape)
        points = map(point_of, self._archive.records(member))
        while batch := await asyncio.to_thread(_take, points):
            await target.write(member.role, batch)
            progress(len(batch))

    async def _upload(self, member: Member, target: Target) -> None:
        if self._snapshots is None:
            raise StartRefusedError("this archive holds a Qdrant server's snapshots: set QDRANT_URL")
        content = _in_steps(self._archive.chunks(member))
        await self._snapshots.upload(target.names[member.role], content, member.sha256)


def _pair(value: object) -> tuple[str, bytes] | None:
    match value:
        case [str(kind), bytes(content)]:
            return kind, content
    return None


def _take(points: Iterator[Point]) -> list[Point]:
    return list(islice(points, BATCH))


async def _in_steps(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(next, chunks, b""):
        yield chunk


async def _compare(member: Member, target: Target) -> None:
    """Compare counts. A snapshot's points were counted while they changed: a difference proves nothing."""
    if member.kind is Kind.SNAPSHOT or await target.has(member.role, member.points):
        return
    raise RestoreIncompleteError(
        f"collection {target.names[member.role]!r} does not have the {member.points} points of the archive "
        f"after the restore: it must not be used"
    )


# Migration: every point of every collection is copied from one engine into another that is empty.


WHAT = "a move"


class MoveIncompleteError(WenmaiError):
    """The two stores do not have the same number of points."""

    code = "move_incomplete"


class Migration:
    """The source is only read; both stores have the collection names of `settings`."""

    def __init__(self, source: VectorStore, settings: StoreSettings) -> None:
        self._source = source
        self._settings = settings

    async def plan(self) -> FillReport:
        """Count the points to move. Raises StartRefusedError if there is no collection."""
        names = await stored_names(self._source, self._settings)
        if not names:
            raise StartRefusedError("none of the collections to move exists")
        counts = {role.value: (await self._source.count(name)).count for role, name in names.items()}
        return FillReport(counts)

    async def into(self, target: Target, progress: Progress) -> FillReport:
        """Raises StoreNotEmptyError, MoveIncompleteError, StoreUnavailableError."""
        names = await stored_names(self._source, self._settings)
        shapes = {role: await read_shape(self._source, name) for role, name in names.items()}

        async def copy(role: Role) -> int:
            await target.make(role, shapes[role])
            copied = 0
            async for page in scroll_pages(self._source, names[role], size=PAGE, with_vectors=True):
                await target.write(role, [point_of(record) for record in records_of(page)])
                copied += len(page)
                progress(len(page))
            return copied

        async def check(role: Role, copied: int) -> None:
            await self._compare(names[role], role, copied, target)

        receipt = Receipt("", ReceiptKind.MIGRATION, "command", utc_now_us(), 0)
        return await target.fill(WHAT, shapes, copy, check, receipt)

    async def _compare(self, name: str, role: Role, copied: int, target: Target) -> None:
        stored = (await self._source.count(name)).count
        if stored != copied or not await target.has(role, copied):
            raise MoveIncompleteError(
                f"collection {name!r} has {stored} points, {copied} were read, and the target has a "
                "different number; stop whatever writes to it, empty the target and run this again"
            )
