"""The file that a repair can be undone with: a JSON line for each point, on the disk before it is touched."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from re import compile as pattern
from typing import Any

import msgspec
from msgspec import Struct

from core.errors import BadRequestError, DiskFullError, StoreUnavailableError
from core.operations.backfill_turns import PointId

VERSION = 1
UNDO_NAME = pattern(r"backfill-undo-[0-9]{8}T[0-9]{6}-[0-9]{6}Z\.jsonl")


class Header(Struct, tag="backfill-undo", forbid_unknown_fields=True):
    """The first line; `collection` is that of the turns."""

    version: int
    collection: str


class Rewritten(Struct, tag="rewritten", forbid_unknown_fields=True):
    """`wrote` over `was`, in which a field that the payload did not have is missing.

    A `former` id: the point was moved to `point` from there.
    """

    point: PointId
    was: dict[str, Any]
    wrote: dict[str, Any]
    former: PointId | None = None


class Removed(Struct, tag="removed", forbid_unknown_fields=True):
    """The whole point, since nothing of it is left; sparse vectors as indices and values."""

    point: PointId
    payload: dict[str, Any]
    vector: Any


class Added(Struct, tag="added", forbid_unknown_fields=True):
    """A point that was not there before, in `collection`; `digest` is of its payload."""

    point: PointId
    collection: str
    digest: str


Line = Rewritten | Removed | Added
_HEADER = msgspec.json.Decoder(Header)
_LINE: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def payload_digest(payload: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(payload, order="deterministic")).hexdigest()


@dataclass(frozen=True, slots=True)
class Undo:
    """What a file says: its lines from the last to the first, as they are to be undone."""

    collection: str
    lines: Sequence[Line]


class UndoFile:
    """Made with the first line, for its owner alone. One that is there already is written on."""

    def __init__(self, path: Path, collection: str) -> None:
        self.path = path
        self._collection = collection
        self._written = False

    @property
    def name(self) -> str:
        """Empty as long as there is nothing to undo."""
        return self.path.name if self._written else ""

    async def note(self, lines: Sequence[Line]) -> None:
        """On the disk when this returns. Raises DiskFullError, StoreUnavailableError, BadRequestError."""
        if lines:
            await asyncio.to_thread(self._append, lines)

    def _append(self, lines: Sequence[Line]) -> None:
        try:
            if not self._written:
                self._begin()
            with self.path.open("ab") as file:
                file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def _begin(self) -> None:
        if self.path.exists():
            whole = _whole_lines(self.path.read_bytes())
            if whole and _header(whole, self.path).collection != self._collection:
                raise BadRequestError(f"{self.path.name} is of another collection.")
            os.truncate(self.path, len(whole))
        else:
            whole = b""
        with open(self.path, "ab", opener=_private) as file:
            if not whole:
                file.write(msgspec.json.encode(Header(VERSION, self._collection)) + b"\n")
        _sync_folder(self.path.parent)
        self._written = True


def new_undo_file(folder: Path, collection: str, now_us: int) -> UndoFile:
    """Below `folder`, named by the time (UTC)."""
    moment = datetime.fromtimestamp(now_us // 1_000_000, UTC).replace(microsecond=now_us % 1_000_000)
    return UndoFile(folder / f"backfill-undo-{moment:%Y%m%dT%H%M%S-%fZ}.jsonl", collection)


def read_undo_file(path: Path) -> Undo:
    """A last line that was cut while it was written is left out: what it says was not done.

    Raises BadRequestError when it is no such file.
    """
    try:
        whole = _whole_lines(path.read_bytes())
    except OSError as error:
        raise BadRequestError(f"{path.name} cannot be read: {error.strerror}.") from error
    header = _header(whole, path)
    lines: list[Line] = []
    for number, line in enumerate(whole.splitlines()[1:], start=2):
        try:
            lines.append(_LINE.decode(line))
        except msgspec.MsgspecError as error:
            raise BadRequestError(f"{path.name}: line {number} cannot be read.") from error
    return Undo(header.collection, lines[::-1])


def _header(whole: bytes, path: Path) -> Header:
    try:
        header = _HEADER.decode(whole.split(b"\n", 1)[0])
    except msgspec.MsgspecError as error:
        raise BadRequestError(f"{path.name} is not an undo file of a repair.") from error
    if header.version != VERSION:
        raise BadRequestError(f"{path.name} is of another version of Wenmai.")
    return header


def _whole_lines(content: bytes) -> bytes:
    return content[: content.rfind(b"\n") + 1]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_folder(folder: Path) -> None:
    """So that the new name survives a power cut, too; Windows cannot and need not."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritable(path: Path, error: OSError) -> StoreUnavailableError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError("the disk is full: the undo file cannot be written, so nothing more was changed")
    return StoreUnavailableError(
        f"{path.name} cannot be written ({error.strerror}), so nothing more was changed"
    )
