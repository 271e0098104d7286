"""Messages between the server and its parsing child; and a document's pieces, which stay packed on their way
to the store and are unpacked in small batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import msgspec

from core.errors import UnreadableDocumentError
from core.knowledge import ParsedDocument

PER_PACK = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk without its identity. Offsets are characters into the whole text of its document.

    `whole[char_start:char_end] == text`, unless `text` is a later part of a table, which begins with a
    repetition of the table's header: then the offsets are those of its rows. `title` is derived from the
    file's name, for a document without headings.
    """

    text: str
    heading: str
    page: int | None
    char_start: int
    char_end: int
    title: str = ""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Piece])


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces in document order. Unpacking 50,000 at once would stop the event loop for half a second.

    `date` is the document's own date, "" if it has none; `unread_pages` the number of its scanned or
    damaged pages that were left out.
    """

    count: int
    packs: tuple[bytes, ...]
    date: str = ""
    unread_pages: int = 0

    @classmethod
    def pack(cls, pieces: Iterable[Piece], date: str = "") -> Pieces:
        rest = iter(pieces)
        count = 0
        packs: list[bytes] = []
        while batch := list(islice(rest, PER_PACK)):
            count += len(batch)
            packs.append(_encoder.encode(batch))
        return cls(count, tuple(packs), date)

    def __iter__(self) -> Iterator[Piece]:
        for pack in self.packs:
            yield from _decoder.decode(pack)

    def __len__(self) -> int:
        return self.count


LENGTH_BYTES = 8
CRASHED = "crashed"


TIMED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ParseLimits:
    """`wall_s` and `cpu_s` apply per megabyte begun, up to `timed` megabytes: what a file contains is unknown
    before it is parsed, but whoever wants more time must send more. `idle_s`: a child idle for this long ends
    and frees its memory."""

    wall_s: float = 60
    cpu_s: int = 30
    memory_bytes: int = 1 << 30
    idle_s: float = 60
    timed: int = 10

    def of(self, size_bytes: int) -> ParseLimits:
        """Return the limits for a file of this size."""
        times = max(1, min(self.timed, -(-size_bytes // TIMED_BYTES)))
        return replace(self, wall_s=self.wall_s * times, cpu_s=self.cpu_s * times)


class Ready(msgspec.Struct):
    """The child's first reply."""

    missing_walls: list[str]


class ScanLine(msgspec.Struct, frozen=True):
    """A recognised line, in points from the page's lower left corner; `size`: its height."""

    text: str
    x: float
    y: float
    width: float
    size: float


class ScanPage(msgspec.Struct, frozen=True):
    """What was recognised on a page. `across`, `down`: its rules, as place, start and end; places are heights
    and distances from the left."""

    lines: list[ScanLine] = []
    across: list[tuple[float, float, float]] = []
    down: list[tuple[float, float, float]] = []


Scans = dict[int, ScanPage]
"""By the number of the page, from 1."""


class Request(msgspec.Struct):
    file_name: str
    content: bytes
    scans: Scans = {}


class Drawn(msgspec.Struct, frozen=True):
    """A re-encoded image."""

    media_type: str
    width: int
    height: int
    content: bytes


class Reply(msgspec.Struct):
    """`error` is the name of a class of `core.errors`, "" on success; `cpu_s` is the CPU time it took."""

    error: str = ""
    code: str = ""
    message: str = ""
    count: int = 0
    packs: list[bytes] = []
    date: str = ""
    scanned: list[int] = []
    page: ScanPage | None = None
    cpu_s: float = 0
    drawn: Drawn | None = None


def too_complex(why: str) -> UnreadableDocumentError:
    return UnreadableDocumentError(
        f"The file {why}: split it into smaller files and add those.", code="too_complex"
    )


Work = Callable[[Request], Reply]
"""Blocking; must be picklable: a top-level function, or a partial of one."""
ParseDocument = Callable[[str, bytes, Scans], ParsedDocument]
"""File name, content, scanned pages recognised so far → document; blocking and picklable, too."""
