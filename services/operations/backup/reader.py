"""Reads an archive without trusting it: only members with expected names, as bounded streams.

Nothing is unpacked to disk or executed, and its table of contents is trusted only as far as the checksums
agree.
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

MAX_EXPANSION = 200  # times the compressed size: text and vectors stay far below, a zip bomb is above
ALWAYS_EXPANDED_BYTES = 256 << 20
_MAX_MEMBERS = len(Role) + 1
_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OverflowError,
)  # fmt: skip
_ENCRYPTED = 0x1
_KNOWN = {f"{role}.{kind}" for role in Role for kind in Kind} | {MANIFEST}


class _BoundedFile(io.FileIO):
    """Bounds reads and seeks: a zip's table of contents may claim any offset, and any length to read."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > CHUNK_BYTES:
            raise BadArchiveError("the archive's list of contents is too large")
        return super().read(size) or b""

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence == io.SEEK_SET and offset < 0:  # the system's EINVAL would look like a faulty disk
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
                raise BadArchiveError(f"{name} does not have the size that the archive's manifest states")
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
        """Yield the records of a points member, undecoded."""
        with self._open(member.file_name) as stream:
            yield from bodies(stream)

    def records(self, member: Member) -> Iterator[PointRecord]:
        return map(decode, self.bodies(member))

    def verify(self) -> None:
        """Read the whole archive; check sizes, checksums, and that the store would accept every record."""
        for member in self.manifest.members:
            self._verify(member)

    def _verify(self, member: Member) -> None:
        with self._open(member.file_name) as stream:
            checked = _CheckedStream(stream, member.size_bytes)
            points = _count_points(checked, member) if member.kind is Kind.POINTS else member.points
            checked.drain()
        if checked.sha256 != member.sha256 or checked.size_bytes != member.size_bytes:
            raise BadArchiveError(f"{member.file_name} is damaged: its checksum differs from the manifest's")
        if points != member.points:
            raise BadArchiveError(
                f"{member.file_name} has {points} points but its manifest says {member.points}"
            )


def _count_points(stream: _CheckedStream, member: Member) -> int:
    number = 0
    for body in bodies(stream):
        record = decode(body)
        if fault := fault_of(record, member.shape):
            raise BadArchiveError(f"{member.file_name} has a point that no store accepts: {fault}")
        number += 1
    return number


class _CheckedStream:
    """Counts and hashes what is read; raises BadArchiveError beyond the promised size."""

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
            raise BadArchiveError("the archive unpacks to more than it states")
        return received

    def drain(self) -> None:
        while self.read(CHUNK_BYTES):
            pass


def _expected(infos: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    names = [info.filename for info in infos]
    if len(names) > _MAX_MEMBERS or len(set(names)) != len(names):
        raise BadArchiveError("the archive has more members than allowed")
    for info in infos:
        if info.filename not in _KNOWN:
            raise BadArchiveError(
                f"the archive has the member {info.filename[:80]!r}, which no Wenmai archive contains"
            )
        _check_info(info)
    expanded = sum(info.file_size for info in infos)
    if expanded > max(ALWAYS_EXPANDED_BYTES, MAX_EXPANSION * sum(info.compress_size for info in infos)):
        raise BadArchiveError(f"the archive would unpack to {expanded >> 20} MB, which is refused")
    return {info.filename: info for info in infos}


def _check_info(info: zipfile.ZipInfo) -> None:
    mode = info.external_attr >> 16
    if mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode):
        raise BadArchiveError(f"{info.filename} is a link or a device in the archive, which is not allowed")
    if info.flag_bits & _ENCRYPTED:
        raise BadArchiveError(f"{info.filename} is encrypted in the archive, which is not supported")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise BadArchiveError(f"{info.filename} is compressed in an unsupported way")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except BadArchiveError:
        raise
    except _UNREADABLE as error:
        raise BadArchiveError(f"the archive is damaged or truncated: {error}") from error


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an archive and check its members and manifest, but not its contents: see `Archive.verify`.

    Raises BadArchiveError, also if there is no such file; other OSErrors unchanged.
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


# Whether a backup still holds something that was erased since.


def holds(path: Path, ids: Collection[str], *, owner: str = "") -> bool:
    """Whether a record of the archive has one of `ids` as its id or in its payload, or belongs to this owner.

    A UUID matches anywhere in a string, another id only the whole value of an id field, an owner the whole
    value of an owner field. A Qdrant server's snapshots cannot be searched: an archive with one counts as
    holding it. Blocking. Raises BadArchiveError if the archive cannot be read.
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
    """Blocking. Raises BadArchiveError if the archive cannot be read."""
    with open_archive(path) as archive:
        return all(member.kind is not Kind.SNAPSHOT for member in archive.manifest.members)


def _finder(ids: Collection[str], owner: str) -> Callable[[bytes], bool]:
    """Strings are stored verbatim in a record, so only a record whose bytes contain one is decoded; there may
    be many ids, as a session has many turns."""
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
