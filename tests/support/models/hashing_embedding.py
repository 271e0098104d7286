"""A small, deterministic embedding: every word (or character pair) adds to one of a few dimensions."""

from __future__ import annotations

import math
import re
import zlib

from llama_index.core.base.embeddings.base import BaseEmbedding

DIMENSION = 32
_TERMS = re.compile(r"[a-z0-9]+|[\u3400-\u9fff]")


class HashingEmbedding(BaseEmbedding):
    """Unit vectors; texts that share words are near, and the same text is the same vector."""

    def _get_text_embedding(self, text: str) -> list[float]:
        vector = [0.0] * DIMENSION
        for term in _TERMS.findall(text.lower()) or [""]:
            bucket = zlib.crc32(term.encode())
            vector[bucket % DIMENSION] += 1.0 if bucket & 0x8000_0000 else -1.0
            vector[(bucket >> 8) % DIMENSION] += 0.5
        length = math.sqrt(sum(value * value for value in vector)) or 1.0
        return [value / length for value in vector] if any(vector) else [1.0] + [0.0] * (DIMENSION - 1)

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)
