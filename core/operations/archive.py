"""The backup archive: its members, its manifest, and the form of a point.

A zip whose members have fixed names: `<role>.points` (or `<role>.snapshot`, a Qdrant server's own) for each
collection, `images.points` if questions have images, and `manifest.json` last. Points are frames: a length as
big-endian u32 and a msgpack record. Nothing in it is executed, and no name in it is used as a path.
"""

from __future__ import annotations

import struct
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from core.errors import StartRefusedError

FORMAT = 1
MANIFEST = "manifest.json"
SUFFIX = ".wenmai.zip"
MAX_MANIFEST_BYTES = 1 << 20
MAX_RECORD_BYTES = 64 << 20
MAX_MADE_BY = 100  # characters
LENGTH = struct.Struct(">I")

PointId = int | str


class BadArchiveError(StartRefusedError):
    """The archive is damaged, forged, or of another version; nothing was written. Exit code 2."""

    code = "bad_archive"


class Role(StrEnum):
    """What a collection is for, whatever its name. `IMAGES` are files beside the store."""

    CONVERSATIONS = "conversations"
    KNOWLEDGE = "knowledge"
    DOCUMENTS = "documents"
    SESSIONS = "sessions"
    MEMORIES = "memories"
    OPERATIONS = "operations"
    IMAGES = "images"


class Kind(StrEnum):
    POINTS = "points"
    SNAPSHOT = "snapshot"


class SparseValues(msgspec.Struct, array_like=True, frozen=True):
    """`indices` are little-endian uint32, `values` float32, of the same number."""

    indices: bytes
    values: bytes


class PointRecord(msgspec.Struct, array_like=True, frozen=True):
    """Dense vectors are raw little-endian float32. `id` comes first, so that it can be read alone."""

    id: PointId
    vectors: dict[str, bytes | SparseValues]
    payload: dict[str, Any]


class IdOnly(msgspec.Struct, array_like=True, frozen=True):
    """The beginning of a record."""

    id: PointId


class DenseShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`distance` is one of Cosine, Dot, Euclid, Manhattan."""

    size: int
    distance: str


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A collection's vectors and indexes. `sparse`: does the engine apply IDF; `indexes`: their types."""

    dense: dict[str, DenseShape]
    sparse: dict[str, bool]
    indexes: dict[str, str]
    metadata: dict[str, Any] | None = None


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`size_bytes` and `sha256` are those of the uncompressed member."""

    role: Role
    kind: Kind
    collection: str
    points: int
    size_bytes: int
    sha256: str
    shape: Shape

    @property
    def file_name(self) -> str:
        return f"{self.role}.{self.kind}"


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`created_us` is the moment (UTC microseconds) the archive shows; `created` is its readable form."""

    format: int
    made_by: str
    created_us: int
    created: str
    engine: str
    members: list[Member]

    @property
    def points(self) -> dict[Role, int]:
        return {member.role: member.points for member in self.members}


_manifest = msgspec.json.Decoder(Manifest)
_Moment = Annotated[datetime, msgspec.Meta(tz=True)]


def encode_manifest(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)


def decode_manifest(content: bytes) -> Manifest:
    """Raises BadArchiveError, also for a format that this version does not know.

    No text in the result, nor in the error, can send control characters to a terminal.
    """
    try:
        manifest = _manifest.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadArchiveError(f"the archive's manifest cannot be read: {_printable(str(error))}") from error
    if manifest.format != FORMAT:
        raise BadArchiveError(
            f"the archive has format {manifest.format} and this version of Wenmai reads format {FORMAT}"
        )
    roles = [member.role for member in manifest.members]
    if len(roles) != len(set(roles)):
        raise BadArchiveError("the archive's manifest names a collection twice")
    _check_shown(manifest)
    return manifest


def _check_shown(manifest: Manifest) -> None:
    """Raises BadArchiveError if a text is too long or unprintable, or the time invalid."""
    if len(manifest.made_by) > MAX_MADE_BY:
        raise BadArchiveError(f"made_by in the archive's manifest is longer than {MAX_MADE_BY} characters")
    try:
        msgspec.convert(manifest.created, _Moment)
    except msgspec.ValidationError:
        raise BadArchiveError("created in the archive's manifest is not an RFC 3339 time") from None
    texts = [manifest.made_by, manifest.created, manifest.engine]
    for member in manifest.members:
        texts += [member.collection, *map(str, (member.shape.metadata or {}).values())]
    if not all(text.isprintable() for text in texts):
        raise BadArchiveError("the archive's manifest has characters that cannot be shown")


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
