"""What equal words cannot match: the nearest tokens of a passage, words of the other language, typing errors.

Tokens: each of a question's is compared with the nearest of a passage, which a passage's single vector
averages away (late interaction; Khattab and Zaharia, ColBERT, SIGIR 2020). The token states come from the
pass that makes the vector, so they cost nothing extra. What all tokens have in common is subtracted; of a
passage's tokens only the signs are stored, one bit per dimension, which rank as well as the numbers
themselves (docs/decisions/0042).

The other language: a question's words are looked up in CC-CEDICT (MDBG; CC BY-SA 4.0), built by
scripts.training.translations (docs/decisions/0064), to compare passages in that language. A passage should
rank before its translation.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pybase64

from core.knowledge import Candidate
from core.relevance.sparse import (
    CACHED_TEXTS,
    folded,
    is_cjk,
    question_terms,
    terms_in,
    word_pieces,
    words_of,
)

Floats = npt.NDArray[np.float32]
Matrix = npt.NDArray[np.float64]
QuestionMeans = Mapping[bool, Floats]
"""Whether questions are Chinese → the mean of their vectors."""

FREQUENT = 7.0  # rarity below which a piece is a function word or a mark: a quarter of a text, no loss
MIN_RARITY = 4.0  # of a question's piece with meaning of its own
MIN_TOKEN_WEIGHT, MAX_TOKEN_WEIGHT = 0.3, 12.0
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
        weights = np.clip(tokens.rarity[rarest] - MIN_RARITY, MIN_TOKEN_WEIGHT, MAX_TOKEN_WEIGHT)
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


# The other language.

SOURCE = Path(str(files("core.relevance") / "coefficients" / "translations.sqlite3"))
MAX_WORDS = 3  # of one meaning
MAX_MEANINGS = 40  # of one word; with more (do, much, work) it says little in either language
TWIN_LIKENESS = 0.28  # reached by nine in ten translations; a tenth of texts on one subject exceed .4
TWIN_ODDS = 5.0  # how far one's odds may lie below its translation's
TWIN_SPARSE_RANK = 3
TWIN_LEAD = 0.02  # of cosine; with E5 the second text on a subject is .01 behind, a twin's rival .03
# Logits, for texts in another language: for the share of the question's words that the best of them has and
# this one lacks; and, for all of them, for the best one's share beyond the usual.
TRANSLATED = 3.0
BEST_TRANSLATED, USUAL_TRANSLATED = 2.0, 0.2
COMMON_SHARE = 0.7  # left out of what questions in a language share, when texts in another are searched
SHARED_NUMBERS = 0.5  # of the text with fewer; some are words in one of the languages
MIN_WEIGHT = 0.6  # of a Chinese term that is a word, not a bigram within a word or between two
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


@lru_cache(maxsize=2)
def load_question_means(embedding: str) -> QuestionMeans:
    """Return none for an unknown embedding. Source: core/relevance/coefficients/tokens-*.json; how they were
    computed: docs/decisions/0078."""
    source = files("core.relevance") / "coefficients" / f"tokens-{embedding.replace('/', '_')}.json"
    read = json.loads(source.read_text(encoding="utf-8"))["vectors"] if source.is_file() else {}
    return {name == "zh": np.array(mean, np.float32) for name, mean in read.items()}


def without_common(vector: Sequence[float], mean: Floats) -> Floats:
    """Return the question's vector without most of what it shares with all questions in its language: that
    says nothing about the subject, and is near some texts in another language whatever they say."""
    return np.asarray(np.asarray(vector, np.float32) - np.float32(COMMON_SHARE) * mean)


@dataclass(frozen=True, slots=True)
class Translated:
    """A word of the question, or several that are one word in the other language. `meanings` are
    alternatives, each a set of index terms that must all occur."""

    weight: float
    meanings: tuple[tuple[str, ...], ...]


@lru_cache(maxsize=64)
def translated(question: str) -> tuple[Translated, ...]:
    """Translate the question's words. Words missing from the dictionary stand for themselves unless Chinese,
    like names and numbers; Chinese ones are dropped."""
    asked = [(term.text, term.weight) for term in question_terms(question)]
    chinese = [(term, weight) for term, weight in asked if is_cjk(term)]
    latin = [(term, weight) for term, weight in asked if not is_cjk(term)]
    words = [(term, weight) for term, weight in chinese if weight >= MIN_WEIGHT and len(term) > 1]
    known = [Translated(weight, meanings) for term, weight in words if (meanings := _meanings(term))]
    kept = [Translated(weight, ((term,),)) for term, weight in latin] if chinese else _joined(latin)
    return tuple(word for word in (*known, *kept) if len(word.meanings) <= MAX_MEANINGS)


def _joined(asked: Sequence[tuple[str, float]]) -> list[Translated]:
    """Prefer the longest run of words that is one dictionary entry: annual leave is 年假."""
    joined: list[Translated] = []
    at = 0
    while at < len(asked):
        for length in range(min(MAX_WORDS, len(asked) - at), 0, -1):
            run = asked[at : at + length]
            meanings = _meanings(" ".join(term for term, _ in run))
            if meanings or length == 1:
                break
        joined.append(Translated(sum(weight for _, weight in run), meanings or ((run[0][0],),)))
        at += length
    return joined


@lru_cache(maxsize=4_096)
def _meanings(term: str) -> tuple[tuple[str, ...], ...]:
    """Look up a term's translations, the shortest first."""
    rows = _database().execute(
        "SELECT other FROM translation WHERE term = ? ORDER BY length(other), other LIMIT ?",
        (term, MAX_MEANINGS + 1),
    )
    return tuple(tuple(other.split(" ")) for (other,) in rows)


@lru_cache(maxsize=1)
def _database() -> sqlite3.Connection:
    return sqlite3.connect(f"{SOURCE.as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)


@dataclass(frozen=True, slots=True)
class TextWords:
    """A text, folded and lowercased, and its index terms outside scripts without spaces."""

    lowered: str
    terms: Collection[str]

    @classmethod
    def of(cls, above: str, text: str) -> TextWords:
        """Include the words above the text, such as its heading."""
        (head, head_terms), (lowered, text_terms) = terms_in(above), terms_in(text)
        return cls(f"{head}\n{lowered}", head_terms.keys() | text_terms.keys())


def coverage(words: Sequence[Translated], texts: Sequence[TextWords]) -> npt.NDArray[np.float64]:
    """Return for each text the share of the words that it has in any of their meanings; words that few of the
    texts have weigh more. A meaning of several words counts in proportion."""
    has = np.array([[_held(word, text) for word in words] for text in texts]).reshape(len(texts), len(words))
    weights = np.array([word.weight for word in words])
    weights *= np.log((len(texts) + 1) / ((has >= 1.0).sum(axis=0) + 0.5))
    return np.asarray(has @ weights / max(weights.sum(), 1e-9))


def _held(word: Translated, text: TextWords) -> float:
    here = text.lowered if is_cjk(word.meanings[0][0]) else text.terms
    best = 0.0
    for meaning in word.meanings:
        if meaning[0] in here or len(meaning) > 1:
            best = max(best, sum(term in here for term in meaning) / len(meaning))
            if best == 1.0:
                break
    return best


def dictionary_gains(shares: Matrix, foreign: Matrix) -> Matrix:
    """Return logits for each text in another language by its share of the words, 0 for all others. Words that
    texts in the question's language have, too, such as a name, are no evidence for the foreign ones."""
    abroad = (foreign == 1) & ~np.isnan(shares)
    best = shares[abroad].max(initial=0.0)
    beyond = max(0.0, best - shares[foreign == 0].max(initial=USUAL_TRANSLATED))
    return np.where(abroad, TRANSLATED * (shares - best) + BEST_TRANSLATED * beyond, 0.0)


def with_twins(
    candidates: Sequence[Candidate], chances: Matrix, foreign: Matrix, tokens: QuestionTokens | None
) -> Matrix:
    """Give a text in the question's language no less than its translation, which other features favour; ties
    keep the fused order. Tokens identify the twin; without tokens, so does a clear lead by meaning in its
    language with a top rank by words."""
    lifted, own = chances.copy(), foreign == 0
    passing = own.any() & ~own & (chances > chances[own].max(initial=0.0))
    for at in np.flatnonzero(passing).tolist():
        least = chances[at] / (chances[at] + TWIN_ODDS * (1.0 - chances[at]))
        near = np.flatnonzero(own & (chances >= least)).tolist()
        near = [one for one in near if _agree(candidates[at], candidates[one])]
        alike = likeness(tokens, [candidates[each].signs for each in (at, *near)])
        if alike.max(initial=0.0) >= TWIN_LIKENESS:
            twin = near[alike.argmax()]
            lifted[twin] = max(lifted[twin], chances[at])
    dense = np.array([own[at] * (each.dense or 0.0) for at, each in enumerate(candidates)] + [0.0])
    at, lead = int(dense.argmax()), dense.max() - np.sort(dense)[-2]
    first = candidates[at].dense_rank == 1 and (candidates[at].sparse_rank or np.inf) <= TWIN_SPARSE_RANK
    other = int(np.where(own, 0.0, chances).argmax())
    if first and lead >= TWIN_LEAD and _agree(candidates[at], candidates[other]):
        lifted[at] = max(lifted[at], chances[~own].max(initial=0.0))
    return lifted


def _agree(one: Candidate, other: Candidate) -> bool:
    """Whether two texts may be translations of each other, which keep the numbers."""
    first, second = _numbers(one.chunk.text), _numbers(other.chunk.text)
    return len(first & second) >= SHARED_NUMBERS * min(len(first), len(second))


@lru_cache(maxsize=CACHED_TEXTS)
def _numbers(text: str) -> frozenset[str]:
    return frozenset(_NUMBER.findall(text))


# Words with a typing error.

_TYPED = re.compile(r"(?<![\w@./-])[A-Za-z]{5,24}(?![\w@/-])", re.ASCII)  # a shorter word resembles too many
MAX_TYPED_CHARS = 400


def respelled(question: str, texts: Sequence[str]) -> str:
    """Replace words that neither a text nor the dictionary has, if just one word of the texts differs in a
    letter that is missing, added or another, or in two that are swapped, the first aside: brekfast."""
    if not (typed := dict.fromkeys(_TYPED.findall(question[:MAX_TYPED_CHARS]))):
        return question
    stems = frozenset().union(*(terms_in(text)[1].keys() for text in texts))
    for word in typed:
        own = "".join(word_pieces(word))
        if own and own not in stems and not _meanings(own):
            near = [stem for stem in stems if stem[0] == own[0] and _is_one_edit(own, stem)]
            if len(near) == 1:
                question = re.sub(rf"\b{word}\b", _written(near[0], texts), question)
    return question


def _is_one_edit(one: str, other: str) -> bool:
    if abs(len(one) - len(other)) > 1:
        return False
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    at = sum(1 for _ in same)
    rest, others = one[at:], other[at:]
    swapped = rest[:2] == others[1::-1] and rest[2:] == others[2:]
    return swapped or rest[1:] in (others, others[1:]) or rest == others[1:]


def _written(stem: str, texts: Sequence[str]) -> str:
    """Return the word with this stem as the first text has it."""
    words = (word for text in texts for word in words_of(folded(text))[1])
    return next(word.lower() for word in words if stem in word_pieces(word))
