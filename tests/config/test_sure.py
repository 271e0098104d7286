"""The probability from which an answer counts as sure is the same number everywhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.relevance.probability import SURE

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "page",
    [
        "config/prompts/knowledge.en.md",
        "config/prompts/knowledge.zh.md",
        "docs/guide/en/asking.md",
        "docs/guide/zh/asking.md",
        "docs/guide/en/quality.md",
        "docs/guide/zh/quality.md",
    ],
)
def test_prompts_and_guides_state_the_probability_that_the_code_uses(page: str) -> None:
    """Discriminates: the constant changed, and a prompt that still states the old one."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    closest = [line for line in lines if "closest passage" in line or "最接近的内容" in line]
    assert any(re.search(rf"(?<![\d.]){re.escape(str(SURE))}(?!\d)", line) for line in closest), closest
