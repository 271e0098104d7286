"""An archive, brought back into an empty store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from core.errors import StartRefusedError, WenmaiError
from core.operations.archive import BadArchiveError, Kind, Manifest, Member, Role, Shape
from core.operations.receipts import Receipt, ReceiptKind
from services.operations.backup.reader import Archive
from services.operations.backup.records import point_of
from services.operations.backup.shapes import stored_as
from services.operations.backup.snapshots import Snapshots
from services.operations.backup.target import Target
from services.store.clock import Clock, utc_now_us
from services.store.collections import REEMBED_COMMAND, SCHEMA_VERSION, SPARSE
from services.store.dialect import Point

BATCH = 128
Progress = Callable[[int], object]  # called with how many points more are written


class RestoreIncompleteError(WenmaiError):
    """The store does not have the points that the archive has; it must not be used."""

    code = "restore_incomplete"


@dataclass(frozen=True, slots=True)
class Embedding:
    name: str
    dimension: int


@dataclass(frozen=True, slots=True)
class RestoreReport:
    points: dict[str, int]
    seconds: float


def embedding_of(manifest: Manifest) -> Embedding | None:
    """Which embedding its vectors are from; None when no collection says so."""
    embeddings = [stored_as(member.shape.metadata) for member in manifest.members if member.shape.dense]
    named = [each for each in embeddings if each is not None]
    return Embedding(named[0].embedding, named[0].dimension) if named else None


def check_restorable(manifest: Manifest, configured: Embedding | None, *, into_server: bool) -> None:
    """`configured` None: whatever the archive's embedding is. Raises StartRefusedError kinds."""
    for member in manifest.members:
        if member.kind is Kind.SNAPSHOT and not into_server:
            raise StartRefusedError(
                "this archive holds a Qdrant server's snapshots, which only a server can read: restore it "
                "with QDRANT_URL, then move it with `wenmai migrate`"
            )
        stored = stored_as(member.shape.metadata)
        if stored is not None and stored.schema_version != SCHEMA_VERSION:
            raise BadArchiveError(
                f"the archive has schema {stored.schema_version} and this version of Wenmai knows schema "
                f"{SCHEMA_VERSION}; restore it with the version that made it ({manifest.made_by})"
            )
        if configured is not None and member.shape.dense:
            _check_embedding(Embedding(stored.embedding, stored.dimension) if stored else None, configured)


def _check_embedding(archived: Embedding | None, configured: Embedding) -> None:
    if archived == configured:
        return
    description = (
        f"{archived.name} ({archived.dimension} dimensions)"
        if archived
        else "an embedding that it does not name"
    )
    raise StartRefusedError(
        f"the archive was embedded with {description} and the configured embedding is {configured.name} "
        f"({configured.dimension} dimensions); set EMBEDDING to the archive's, or restore it with --as-is "
        f"and then embed everything again with `{REEMBED_COMMAND}`"
    )


class Restore:
    """`archive` was verified. `snapshots` is what a Qdrant server needs for an archive of its own."""

    def __init__(
        self, archive: Archive, snapshots: Snapshots | None = None, clock: Clock = utc_now_us
    ) -> None:
        self._archive = archive
        self._snapshots = snapshots
        self._clock = clock

    @property
    def what(self) -> str:
        """Names it for a start that finds it interrupted, and for itself when it is run again."""
        return f"a restore of {self._archive.path.name} of {self._archive.manifest.created}"

    async def into(self, target: Target, progress: Progress, *, reason: str = "command") -> RestoreReport:
        """Raises StoreNotEmptyError, RestoreIncompleteError, BadArchiveError, StoreUnavailableError kinds."""
        began_us, began = self._clock(), time.monotonic()
        members = sorted(self._archive.manifest.members, key=lambda member: member.role is Role.OPERATIONS)
        operations = self._archive.member(Role.OPERATIONS)
        await target.begin(self.what, operations.shape if operations else self._bare_shape())
        for member in members:
            await self._restore(member, target, progress)
        for member in members:
            await _compare(member, target)
        points = {member.role.value: member.points for member in members}
        details = {"file": self._archive.path.name, "moment": self._archive.manifest.created}
        await target.finish(
            Receipt("", ReceiptKind.RESTORE, reason, began_us, self._clock(), points, details=details)
        )
        return RestoreReport(points, round(time.monotonic() - began, 2))

    def _bare_shape(self) -> Shape:
        metadata = next((member.shape.metadata for member in self._archive.manifest.members), None)
        return bare_shape(metadata)

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


def bare_shape(metadata: dict[str, object] | None) -> Shape:
    """Of a collection without dense vectors."""
    return Shape(dense={}, sparse={SPARSE: True}, indexes={}, metadata=metadata)


def _take(points: Iterator[Point]) -> list[Point]:
    return list(islice(points, BATCH))


async def _in_steps(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(next, chunks, b""):
        yield chunk


async def _compare(member: Member, target: Target) -> None:
    """A snapshot's points were counted while they changed, so that a difference proves nothing."""
    if member.kind is Kind.SNAPSHOT or await target.has(member.role, member.points):
        return
    raise RestoreIncompleteError(
        f"collection {target.names[member.role]!r} does not have the {member.points} points of the archive "
        f"after the restore: it must not be used"
    )
