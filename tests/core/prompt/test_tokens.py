from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from core.prompt.tokens import estimate_tokens

MIXED = st.text(st.one_of(st.characters(), st.sampled_from("的是 ab1.，\n・é😀")), max_size=60)


def test_only_the_empty_text_has_no_tokens() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens(" ") == 1


def test_english_takes_about_a_token_per_four_letters_and_chinese_most_of_one_per_character() -> None:
    english = "The refund policy allows returns within thirty days of purchase."
    assert 12 <= estimate_tokens(english) <= 22  # multilingual-e5's tokenizer: 13
    chinese = "退款政策允许在购买后三十天内退货。"
    assert 10 <= estimate_tokens(chinese) <= 17  # multilingual-e5's tokenizer: 11


@given(MIXED, MIXED)
def test_texts_together_take_no_more_than_one_by_one_and_no_less_than_one_alone(a: str, b: str) -> None:
    together = estimate_tokens(a + b)
    assert max(estimate_tokens(a), estimate_tokens(b)) <= together
    assert together <= estimate_tokens(a) + estimate_tokens(b)


def test_a_million_characters_are_estimated_in_linear_time() -> None:
    started = time.perf_counter()
    estimate_tokens("中文 and English, 123。" * 60_000)
    assert time.perf_counter() - started < 2
