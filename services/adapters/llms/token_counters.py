"""Counts tokens as the model does: by a tokenizer.json or one of OpenAI's vocabularies, else by an estimate.

Nothing is ever downloaded: tiktoken reads the vocabularies bundled with llama-index-core, and is not used if
they are not as expected, because it would then access the network.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import llama_index.core.utils

from core.errors import StartRefusedError
from core.prompt.budget import estimate_prompt_tokens

if TYPE_CHECKING:
    import tiktoken

TokenCounter = Callable[[str], int]

PIECE_CHARS = 4_000  # longer texts are counted in pieces, so that time stays proportional to length
MEMO_BYTES = 4_000_000
TIKTOKEN = "tiktoken:"
NO_MODEL = "extractive"

# The bundled vocabularies: each file's name and SHA-256, as in tiktoken.
_CL100K = (
    "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
)
_O200K = (
    "fb374d419588a4632f3f557e76b4b70aebbca790",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
)
_BUNDLED = {"cl100k_base": _CL100K, "o200k_base": _O200K, "o200k_harmony": _O200K}
_CACHE_DIR = "TIKTOKEN_CACHE_DIR"
_opening = threading.Lock()  # the environment variable is shared by the whole process


def open_token_counter(tokenizer: str | None, model: str, provider: str) -> TokenCounter:
    """The counter for a model; special tokens in a text count as ordinary text.

    `tokenizer`: a tokenizer.json, a folder containing one, or "tiktoken:<encoding>"; None: by OpenAI's model
    names, else `core.prompt.budget.estimate_prompt_tokens`. Loading takes up to half a second: call it in a
    thread. Counters may be called from any thread. Raises StartRefusedError, one line.
    """
    if not tokenizer:
        name = None if provider == NO_MODEL else _encoding_of(model)
        return CountMemo(_tiktoken_counter(name)) if name and _is_bundled(name) else estimate_prompt_tokens
    if tokenizer.startswith(TIKTOKEN):
        return CountMemo(_tiktoken_counter(_bundled_name(tokenizer)))
    return CountMemo(_file_counter(Path(tokenizer)))


class CountMemo:
    """An LRU cache of the counts of up to `MEMO_BYTES` of text."""

    def __init__(self, count: TokenCounter, limit_bytes: int = MEMO_BYTES) -> None:
        self._count = count
        self._limit_bytes = limit_bytes
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()
        self.size_bytes = 0

    def __call__(self, text: str) -> int:
        with self._lock:
            known = self._counts.get(text)
            if known is not None:
                self._counts.move_to_end(text)
                return known
        count = sum(map(self._count, pieces(text)))
        self._keep(text, count)
        return count

    def _keep(self, text: str, count: int) -> None:
        with self._lock:
            if text in self._counts or text.__sizeof__() > self._limit_bytes // 8:
                return
            self._counts[text] = count
            self.size_bytes += text.__sizeof__()
            while self.size_bytes > self._limit_bytes:
                self.size_bytes -= self._counts.popitem(last=False)[0].__sizeof__()


def pieces(text: str) -> Iterator[str]:
    """Pieces of at most `PIECE_CHARS`, split before a blank if possible, as tokens begin with the blank."""
    start = 0
    while len(text) - start > PIECE_CHARS:
        end = start + PIECE_CHARS
        blank = text.rfind(" ", start + PIECE_CHARS // 2, end)
        end = blank if blank > start else end
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _encoding_of(model: str) -> str | None:
    from tiktoken.model import encoding_name_for_model

    try:
        return encoding_name_for_model(model.rpartition("/")[2])
    except KeyError:
        return None


def _bundled_name(tokenizer: str) -> str:
    name = tokenizer.removeprefix(TIKTOKEN)
    if name not in _BUNDLED:
        raise StartRefusedError(f"tokenizer {tokenizer!r}: only {', '.join(_BUNDLED)} are bundled.")
    if not _is_bundled(name):
        raise StartRefusedError(f"tokenizer {tokenizer!r}: llama-index-core does not include its vocabulary.")
    return name


def _is_bundled(name: str) -> bool:
    if name not in _BUNDLED:
        return False
    file_name, sha256 = _BUNDLED[name]
    try:
        return hashlib.sha256((_vocabularies() / file_name).read_bytes()).hexdigest() == sha256
    except OSError:
        return False


def _vocabularies() -> Path:
    return Path(llama_index.core.utils.__file__).parent / "_static" / "tiktoken_cache"


def _tiktoken_counter(name: str) -> TokenCounter:
    encode = _encoding(name).encode_ordinary
    return lambda text: len(encode(text))


def _encoding(name: str) -> tiktoken.Encoding:
    import tiktoken

    with _opening:
        before = os.environ.get(_CACHE_DIR)
        os.environ[_CACHE_DIR] = str(_vocabularies())
        try:
            return tiktoken.get_encoding(name)
        finally:
            if before is None:
                del os.environ[_CACHE_DIR]
            else:
                os.environ[_CACHE_DIR] = before


def _file_counter(path: Path) -> TokenCounter:
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise StartRefusedError("tokenizer needs the package tokenizers: pip install tokenizers.") from error
    try:
        made = Tokenizer.from_str(file.read_text("utf-8"))
    except Exception as error:  # the library raises nothing narrower for an unreadable file
        why = error.strerror if isinstance(error, OSError) else "not a tokenizer.json"
        raise StartRefusedError(f"tokenizer {str(path)!r} cannot be read: {why}.") from error
    made.no_truncation()
    made.no_padding()
    made.encode_special_tokens = True  # as ordinary text

    def count(text: str) -> int:
        readable = text.encode("utf-8", "replace").decode()  # the library refuses lone surrogates
        return len(made.encode(readable, add_special_tokens=False).ids)

    return count
