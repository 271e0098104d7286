"""multilingual-e5-small on ONNX Runtime: a text becomes tokens, windows of 512 at most, one unit vector."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, RuntimeException

from services.adapters.e5.graph import INPUT, e5_model
from services.adapters.e5.pieces import Ids, Pieces
from services.adapters.e5.weights import E5Weights, Floats

_ERRORS_ONLY = 3


class E5Engine:
    """Any number of threads may embed at once; each runs on its own thread, with that thread's urgency."""

    def __init__(self, threads: int = 1) -> None:
        """More `threads` than one are ONNX Runtime's own, as urgent as the thread that calls here."""
        self._weights = E5Weights()
        vocabulary = self._weights.vocabulary()
        self._pieces = Pieces(vocabulary)
        self._ends = np.array([vocabulary.begin]), np.array([vocabulary.end])
        hidden = self._weights.sizes.hidden
        self._positions = self._weights.floats("emb.pos").reshape(-1, hidden)
        self._positions = self._positions + self._weights.floats("emb.type")[:hidden]
        self._session = _open_session(e5_model(self._weights), threads)

    def embed(self, text: str) -> list[float]:
        """A unit vector. A text longer than a window is the mean of its windows, each by its tokens."""
        total = np.zeros(self._weights.sizes.hidden, np.float32)
        for window in self._windows(self._pieces.ids(_encodable(text))):
            total += self._hidden(window).mean(axis=0) * (len(window) - 2)
        unit: list[float] = (total / np.linalg.norm(total)).tolist()
        return unit

    def _windows(self, pieces: Ids) -> Iterator[Ids]:
        """Each with <s> and </s>, as the model was trained. The prefix of a text is at least one piece."""
        room, (begin, end) = self._weights.sizes.window - 2, self._ends
        for first in range(0, len(pieces), room):
            yield np.concatenate([begin, pieces[first : first + room], end], dtype=np.int32)

    def _hidden(self, window: Ids) -> Floats:
        """The last hidden states, [tokens, hidden]."""
        words = self._weights.rows("emb.word", self._weights.sizes.hidden, window)
        ids = (words + self._positions[: len(window)])[None]
        try:
            hidden: Floats = self._session.run(None, {INPUT: ids})[0][0]
        except (Fail, RuntimeException) as error:  # such as memory that is not there
            raise RuntimeError("ONNX Runtime failed") from error
        return hidden


def _open_session(model: bytes, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    options.enable_cpu_mem_arena = False  # it would keep what the longest text took
    # a level higher, Add and LayerNormalization would be put together again
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    session._model_bytes = b""  # 13 MB that it keeps, in case it should be opened for another provider
    return session


def _encodable(text: str) -> str:
    """As before with the wheel's engine: a NUL is a space, a lone surrogate a question mark."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")
