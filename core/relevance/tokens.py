"""Compare each token of a question with the nearest token of a passage: what a passage's single vector
averages away (late interaction; Khattab and Zaharia, ColBERT, SIGIR 2020).

The token states come from the pass that makes the vector, so they cost nothing extra. What all tokens have in
common is subtracted; of a passage's tokens only the signs are stored, one bit per dimension, which rank as
well as the numbers themselves (docs/decisions/0042).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pybase64

Floats = npt.NDArray[np.float32]

FREQUENT = 7.0  # rarity below which a piece is a function word or a mark: a quarter of a text, no loss
MIN_RARITY = 4.0  # of a question's piece with meaning of its own
MIN_WEIGHT, MAX_WEIGHT = 0.3, 12.0
MAX_QUESTION_TOKENS = 32  # the rarest; judging more would take milliseconds
BLOCK = 128  # tokens multiplied at once: as floats they fit a core's own cache, which halves the time


class TokenStates(NamedTuple):
    """[tokens, dimensions], and the negative log probability of each token's piece."""

    states: Floats
    rarity: Floats


@dataclass(frozen=True, slots=True)
class QuestionTokens:
    """`states` are unit vectors, [tokens, dimensions]; `weights` sum to 1."""

    states: Floats
    weights: Floats


@dataclass(frozen=True, slots=True)
class TokenMeans:
    """The mean of unit states, of passages and of questions, which says nothing about the text."""

    passage: Floats
    question: Floats

    def signs(self, tokens: TokenStates) -> str:
        """Return the signs of a passage's tokens in base64, as payloads hold no bytes; "" without tokens."""
        rare = tokens.rarity > FREQUENT
        states = tokens.states[rare] if rare.any() else tokens.states
        bits = np.packbits(_unit(states) > self.passage, axis=1)
        return pybase64.b64encode_as_string(bits.tobytes())

    def question_tokens(self, tokens: TokenStates) -> QuestionTokens | None:
        """Return the weighted states of the rarest tokens; None without tokens."""
        rarest = np.sort(np.argsort(-tokens.rarity, kind="stable")[:MAX_QUESTION_TOKENS])
        if not len(rarest):
            return None
        weights = np.clip(tokens.rarity[rarest] - MIN_RARITY, MIN_WEIGHT, MAX_WEIGHT)
        states = _unit(_unit(tokens.states[rarest]) - self.question)
        return QuestionTokens(states, (weights / weights.sum()).astype(np.float32))


@lru_cache(maxsize=2)
def load_means(embedding: str) -> TokenMeans:
    """Source: core/relevance/coefficients/tokens-*.json; how they were computed: docs/decisions/0042."""
    source = files("core.relevance") / "coefficients" / f"tokens-{embedding}.json"
    read = json.loads(source.read_text(encoding="utf-8"))
    return TokenMeans(*(np.array(read[side], np.float32) for side in ("passage", "question")))


def unpacked(signs: str, dimensions: int) -> bytes:
    """Decode to one bit per dimension; b"" without signs, or from a damaged payload, which must not fail the
    question."""
    try:
        packed = pybase64.b64decode(signs.partition(" ")[0], validate=True)
    except ValueError:
        return b""
    return packed if 8 * len(packed) % dimensions == 0 else b""


def with_parts(signs: str, vectors: Sequence[Sequence[float]]) -> str:
    """Append the vectors of the text's parts, in half precision, to its tokens' signs, after a space."""
    return f"{signs} {pybase64.b64encode_as_string(np.asarray(vectors, np.float16).tobytes())}"


def parts_in(signs: str, dimensions: int) -> Floats | None:
    """Return [parts, dimensions]; None if they are unknown, as for chunks of earlier releases."""
    try:
        packed = signs[signs.index(" ") + 1 :]
        halves = np.frombuffer(pybase64.b64decode(packed, validate=True), np.float16)
        return np.asarray(halves.reshape(-1, dimensions), np.float32)
    except ValueError:
        return None


def nearest_tokens(question: QuestionTokens, packed: Sequence[bytes]) -> Floats:
    """Return [passages, the question's tokens]: the cosine of each token's nearest. `packed` are the
    passages' signs, none of them empty."""
    dimensions = question.states.shape[1]
    bits, starts = _bits(packed, dimensions)
    products = np.empty((len(bits), len(question.states)), np.float32)
    for first in range(0, len(bits), BLOCK):
        rows = slice(first, first + BLOCK)
        np.matmul(bits[rows].astype(np.float32), question.states.T, out=products[rows])
    nearest = np.maximum.reduceat(products, starts, axis=0)
    # a sign of ±1 is twice the bit minus one
    return np.asarray((2 * nearest - question.states.sum(axis=1)) / np.sqrt(np.float32(dimensions)))


def likeness(question: QuestionTokens | None, signs: Sequence[str]) -> Floats:
    """Return the cosine of the mean of the first text's signs with that of each other text: about .3…0.7 for
    translations, less for other texts in two languages. Empty if any signs are unknown, and for a question
    without tokens."""
    dimensions = question.states.shape[1] if question else 0
    packed = [unpacked(each, dimensions) for each in signs] if question else [b""]
    if not all(packed):
        return np.zeros(0, np.float32)
    bits, starts = _bits(packed, dimensions)
    counts = np.diff([*starts, len(bits)]).astype(np.float32)
    sums: Floats = np.add.reduceat(bits, starts, axis=0, dtype=np.float32)
    means = _unit(sums - np.float32(0.5) * counts[:, None])
    return np.asarray(means[1:] @ means[0])


def _bits(packed: Sequence[bytes], dimensions: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return [tokens of all texts, dimensions], and where each text begins."""
    counts = [8 * len(each) // dimensions for each in packed]
    bits = np.unpackbits(np.frombuffer(b"".join(packed), np.uint8)).reshape(-1, dimensions)
    return bits, np.cumsum([0, *counts[:-1]])


def nearness(question: QuestionTokens, nearest: Floats) -> npt.NDArray[np.float64]:
    """Return one number per passage, about 0…0.6: the weighted mean over the question's tokens."""
    return np.asarray(question.weights @ np.ascontiguousarray(nearest.T), dtype=np.float64)


def _unit(vectors: Floats) -> Floats:
    unit: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)
    return unit
