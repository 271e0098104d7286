"""The few ONNX messages that a graph needs, written by hand: the `onnx` package would be 33 MB more.

Field numbers are those of onnx.proto3, which never change. A message is a sequence of (field number and
kind, value); kinds here: 0 a number, 2 bytes with their length before them, 5 a 32-bit float.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

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

    def model(self, given: str, result: str, width: int) -> bytes:
        """The whole model: one input and one output, both float32 [1, length, width]."""
        graph = [_bytes(1, node) for node in self._nodes]
        graph += [_text(2, "graph"), _bytes(11, _tensor(given, width)), _bytes(12, _tensor(result, width))]
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
