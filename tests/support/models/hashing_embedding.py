"""A small, deterministic embedding: every word (or character pair) adds to one of a few dimensions."""

from __future__ import annotations

import math
import re
import time
import zlib
from collections.abc import Sequence

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding

from core.relevance.meaning import TokenMeans, TokenStates
from services.models.embedding import BatchEmbedding, PassageReading, QuestionReading

DIMENSION = 32
_TERMS = re.compile(r"[a-z0-9]+|[\u3400-\u9fff]")


class HashingEmbedding(BaseEmbedding):
    """Unit vectors; texts that share words are close, and equal texts have equal vectors."""

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


class SleepingEmbedding(HashingEmbedding):
    """Sleeps for a fixed time per passage."""

    per_text_s: float = 0.1

    def _get_text_embedding(self, text: str) -> list[float]:
        if text != "dimension":
            time.sleep(self.per_text_s)
        return super()._get_text_embedding(text)


class TokenHashing(BatchEmbedding):
    """The same vectors, with token states: the state of a word is the vector of the word alone."""

    read: list[str] = []  # noqa: RUF012 - pydantic copies it for each instance

    @property
    def reads_tokens(self) -> bool:
        return True

    def get_query_embeddings(self, queries: Sequence[str]) -> list[list[float]]:
        return [HashingEmbedding().get_text_embedding(text) for text in queries]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self.get_query_embeddings(texts)

    def read_queries(self, queries: Sequence[str]) -> list[QuestionReading]:
        self.read.extend(queries)
        vectors = self.get_query_embeddings(queries)
        tokens = [_MEANS.question_tokens(self._tokens(text)) for text in queries]
        return [QuestionReading(*each) for each in zip(vectors, tokens, strict=True)]

    def read_passages(self, texts: Sequence[str]) -> list[PassageReading]:
        self.read.extend(texts)
        vectors = self.get_query_embeddings(texts)
        signs = [_MEANS.signs(self._tokens(text)) for text in texts]
        return [PassageReading(*each) for each in zip(vectors, signs, strict=True)]

    def _tokens(self, text: str) -> TokenStates:
        words = _TERMS.findall(text.lower())
        states = np.array(self.get_query_embeddings(words), np.float32).reshape(len(words), DIMENSION)
        return TokenStates(states, np.full(len(words), 12.0, np.float32))


_MEANS = TokenMeans(np.zeros(DIMENSION, np.float32), np.zeros(DIMENSION, np.float32))
