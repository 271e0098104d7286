"""A document's pieces on their way from the child process to the store: packed, unpacked bit by bit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import msgspec

PER_PACK = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk without its identity. Offsets are characters into the whole text of its document.

    `whole[char_start:char_end] == text`, unless `text` is a later part of a table, which begins with
    a repetition of the table's header: then the offsets are those of its rows.
    """

    text: str
    heading: str
    page: int | None
    char_start: int
    char_end: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Piece])


@dataclass(frozen=True, slots=True)
class Pieces:
    """In document order. Unpacking 50,000 at once would stop the event loop for half a second.

    `date` is the date that the document itself bears, "" when it bears none.
    """

    count: int
    packs: tuple[bytes, ...]
    date: str = ""

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
