"""An archive, read without trusting it: members by their expected names only, as bounded streams.

Nothing is unpacked to the disk, nothing in it is run, and its own list of contents is believed only as far
as the checksums agree.
"""

from __future__ import annotations

import hashlib
import io
import stat
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from core.operations.archive import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    BadArchiveError,
    Kind,
    Manifest,
    Member,
    PointRecord,
    Role,
    decode_manifest,
)
from core.operations.erasure import has_id, is_owned_by, mentioning, non_uuids_of, uuids_of
from services.operations.backup.records import CHUNK_BYTES, bodies, check_shape, decode, fault_of, id_of

MOST_EXPANDED = 200  # text and vectors are far below that; a bomb is above
ALWAYS_EXPANDED_BYTES = 256 << 20
_MOST_MEMBERS = len(Role) + 1
_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OverflowError,
)  # fmt: skip
_ENCRYPTED = 0x1
_KNOWN = {f"{role}.{kind}" for role in Role for kind in Kind} | {MANIFEST}


class _BoundedFile(io.FileIO):
    """A zip's list of contents may claim any length, and would be read at once; and any place."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > CHUNK_BYTES:
            raise BadArchiveError("the archive's list of contents is refused for its size")
        return super().read(size) or b""

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence == io.SEEK_SET and offset < 0:  # the system's EINVAL would look like a disk at fault
            raise BadArchiveError("the archive's list of contents points before its beginning")
        return super().seek(offset, whence)


class Archive:
    """Blocking throughout. Every method raises BadArchiveError."""

    def __init__(self, path: Path, opened: zipfile.ZipFile) -> None:
        self.path = path
        self._zip = opened
        self._infos = _expected(opened.infolist())
        self.manifest = self._read_manifest()
        self._compare_members()

    def _read_manifest(self) -> Manifest:
        info = self._infos.get(MANIFEST)
        if info is None or info.file_size > MAX_MANIFEST_BYTES:
            raise BadArchiveError("the archive has no manifest")
        with self._open(MANIFEST) as stream:
            return decode_manifest(stream.read(MAX_MANIFEST_BYTES))

    def _compare_members(self) -> None:
        named = {member.file_name: member for member in self.manifest.members}
        strange = sorted(set(named) ^ (set(self._infos) - {MANIFEST}))
        if strange:
            raise BadArchiveError(f"the archive and its manifest disagree about {', '.join(strange)}")
        for name, member in named.items():
            if self._infos[name].file_size != member.size_bytes:
                raise BadArchiveError(f"{name} has another size in the archive than in its manifest")
            check_shape(member.role, member.shape)

    @contextmanager
    def _open(self, name: str) -> Iterator[IO[bytes]]:
        with _translated(), self._zip.open(self._infos[name]) as stream:
            yield stream

    def chunks(self, member: Member) -> Iterator[bytes]:
        with self._open(member.file_name) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                yield chunk

    def bodies(self, member: Member) -> Iterator[bytes]:
        """The records of a points member, undecoded."""
        with self._open(member.file_name) as stream:
            yield from bodies(stream)

    def records(self, member: Member) -> Iterator[PointRecord]:
        return map(decode, self.bodies(member))

    def verify(self) -> None:
        """Read all of it: sizes, checksums, and that the store will take every record."""
        for member in self.manifest.members:
            self._verify(member)

    def _verify(self, member: Member) -> None:
        with self._open(member.file_name) as stream:
            watched = _Watched(stream, member.size_bytes)
            points = _count_points(watched, member) if member.kind is Kind.POINTS else member.points
            watched.drain()
        if watched.sha256 != member.sha256 or watched.size_bytes != member.size_bytes:
            raise BadArchiveError(f"{member.file_name} is damaged: its checksum is not the manifest's")
        if points != member.points:
            raise BadArchiveError(f"{member.file_name} has {points} points and its manifest {member.points}")


def _count_points(stream: _Watched, member: Member) -> int:
    number = 0
    for body in bodies(stream):
        record = decode(body)
        if fault := fault_of(record, member.shape):
            raise BadArchiveError(f"{member.file_name} has a point that no store takes: {fault}")
        number += 1
    return number


class _Watched:
    """Counts and fingerprints what is read, and never reads past the size that was promised."""

    def __init__(self, stream: IO[bytes], promised_bytes: int) -> None:
        self._stream = stream
        self._promised_bytes = promised_bytes
        self._digest = hashlib.sha256()
        self.size_bytes = 0

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def read(self, size: int, /) -> bytes:
        received = self._stream.read(size)
        self._digest.update(received)
        self.size_bytes += len(received)
        if self.size_bytes > self._promised_bytes:
            raise BadArchiveError("the archive unpacks to more than it says")
        return received

    def drain(self) -> None:
        while self.read(CHUNK_BYTES):
            pass


def _expected(infos: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    names = [info.filename for info in infos]
    if len(names) > _MOST_MEMBERS or len(set(names)) != len(names):
        raise BadArchiveError("the archive has more members than it may")
    for info in infos:
        if info.filename not in _KNOWN:
            raise BadArchiveError(f"the archive has the member {info.filename[:80]!r}, which is none of ours")
        _check_info(info)
    expanded = sum(info.file_size for info in infos)
    if expanded > max(ALWAYS_EXPANDED_BYTES, MOST_EXPANDED * sum(info.compress_size for info in infos)):
        raise BadArchiveError(f"the archive would unpack to {expanded >> 20} MB, which is refused")
    return {info.filename: info for info in infos}


def _check_info(info: zipfile.ZipInfo) -> None:
    mode = info.external_attr >> 16
    if mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode):
        raise BadArchiveError(f"{info.filename} is a link or a device in the archive, which is refused")
    if info.flag_bits & _ENCRYPTED:
        raise BadArchiveError(f"{info.filename} is encrypted in the archive, which is refused")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise BadArchiveError(f"{info.filename} is compressed in a way that is refused")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except BadArchiveError:
        raise
    except _UNREADABLE as error:
        raise BadArchiveError(f"the archive is damaged or cut short: {error}") from error


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Its members and its manifest are looked at, its contents are not: see `Archive.verify`.

    Raises BadArchiveError, also when there is no such file; other OSErrors as they are.
    """
    try:
        file = _BoundedFile(path)
    except (FileNotFoundError, IsADirectoryError):
        raise BadArchiveError(f"there is no archive {path}") from None
    with file:
        with _translated():
            opened = zipfile.ZipFile(file)
            archive = Archive(path, opened)
        yield archive


# Whether a backup still holds what was erased since.


def holds(path: Path, ids: Collection[str], *, owner: str = "") -> bool:
    """Whether a record of the archive has one of `ids` as its id or in its payload, or is of this owner.

    A UUID matches in any string, another id as the whole of a field for ids, an owner as the whole of the
    fields that say whose a point is. A Qdrant server's snapshots cannot be searched: their archive counts as
    holding it. Blocking. Raises BadArchiveError when the archive cannot be read.
    """
    if not any(ids) and not owner:
        return False
    matches = _finder(ids, owner)
    with open_archive(path) as archive:
        members = archive.manifest.members
        if any(member.kind is Kind.SNAPSHOT for member in members):
            return True
        return any(matches(body) for member in members for body in archive.bodies(member))


def can_be_searched(path: Path) -> bool:
    """Blocking. Raises BadArchiveError when the archive cannot be read."""
    with open_archive(path) as archive:
        return all(member.kind is not Kind.SNAPSHOT for member in archive.manifest.members)


def _finder(ids: Collection[str], owner: str) -> Callable[[bytes], bool]:
    """Strings stand in a record as they are: only a record whose bytes have one is decoded. A session may
    have many turns."""
    numbers = {int(each) for each in ids if each.isascii() and each.isdecimal()}
    others = non_uuids_of(ids)
    words = [_bytes(each) for each in (*others, owner) if each]
    has_uuid = mentioning(frozenset(each.encode() for each in uuids_of(ids)))

    def matches(body: bytes) -> bool:
        if has_uuid(body):
            return True
        if numbers and id_of(body) in numbers:
            return True
        if not any(word in body for word in words):
            return False
        payload = decode(body).payload
        return is_owned_by(payload, owner) or has_id(payload, others)

    return matches


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
