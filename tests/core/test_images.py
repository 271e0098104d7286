"""Images of a question: their tokens, and the text that replaces them later."""

from __future__ import annotations

import pytest

from core.images import Image, image_tokens, images_note


def image(width: int, height: int) -> Image:
    return Image("image/png", width, height, 1, "h")


@pytest.mark.parametrize(
    ("width", "height", "openai", "claude"),
    [
        (1, 1, 255, 1),
        (512, 512, 363, 350),  # 19 × 19 patches and two; one tile is 255
        (1_568, 1_568, 3_138, 3_279),
        (1_568, 28, 765, 59),  # four tiles in a row
    ],
)
def test_tokens_are_the_larger_count_of_the_model_families(
    width: int, height: int, openai: int, claude: int
) -> None:
    assert image_tokens(image(width, height), anthropic=False) == openai
    assert image_tokens(image(width, height), anthropic=True) == claude


def test_the_note_is_in_the_requested_language() -> None:
    assert "2 张" in images_note((image(1, 1), image(1, 1)), "zh")
    assert images_note((image(1, 1),), "en").startswith("(1 image came")
