"""How much of the content attached by a client is included."""

from __future__ import annotations

from core.prompt.budget import BLOCK_CHARS, beginning_within, estimate_tokens
from core.prompt.fence import neutral

PROSE = "Otto ate one more walnut. 奥托又吃了一个核桃。"


def test_fitting_content_is_whole_and_longer_content_has_all_sentences_that_fit() -> None:
    """Discriminates: a block too many, or a cut within a sentence."""
    assert beginning_within(PROSE, 1_000, estimate_tokens) == PROSE
    for room in (300, 5_000):
        shown = beginning_within(PROSE * 2_000, room, estimate_tokens)
        assert (PROSE * 2_000).startswith(shown)
        assert shown.endswith((".", "。"))
        assert room * 0.95 <= estimate_tokens(shown) <= room


def test_millions_of_characters_are_shortened_quickly() -> None:
    """Discriminates: counting the whole text again for every possible cut."""
    counted = 0

    def count(text: str) -> int:
        nonlocal counted
        counted += len(text)
        return estimate_tokens(text)

    for text in ("<" * 3_000_000, PROSE * 100_000):
        counted = 0
        shown = beginning_within(text, 50_000, count)
        assert counted < len(neutral(shown)) + 20 * 2 * BLOCK_CHARS
