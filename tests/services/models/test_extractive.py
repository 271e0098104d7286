"""What the answerer without a model says before its quotes."""

from __future__ import annotations

import pytest

from config.prompt_library import Language, PromptLibrary
from core.prompt.layouts import ReadBack
from core.relevance.probability import SURE
from services.models.extractive import answer

TEXT = "The yearly fee is 90 dollars."
PASSAGE = f'<passage id="1" file="fees.md" heading="Fees" relevance="{{:.2f}}">\n{TEXT}\n</passage>'


@pytest.mark.parametrize(
    ("question", "sure", "closest"),
    [
        ("What is the yearly fee?", "From the documents:", "The closest passage I found:"),
        ("每年的费用 fee 是多少？", "资料中的相关内容：", "最接近的内容："),
    ],
)
def test_an_answer_that_is_not_sure_says_so(question: str, sure: str, closest: str) -> None:
    """Discriminates: the same tone at .21 and .90."""
    for chance, begins in ((SURE, sure), (SURE - 0.01, closest)):
        said = answer(ReadBack(PASSAGE.format(chance), question, ()))
        assert said.startswith(begins)
        assert "90 dollars" in said


def test_the_first_quote_of_a_passage_stands_under_its_innermost_heading() -> None:
    """Discriminates: a quote that leaves out which version it speaks of, and a heading over each quote."""
    text = f"Leave in days: 15.\n\n{'Nothing else of it. ' * 40}\n\nLeave in hours: 120."
    passage = f'<passage id="1" file="a.md" heading="Rules > 2026" relevance="0.90">\n{text}\n</passage>'
    quotes = answer(ReadBack(passage, "How much leave is there?", ())).split("\n\n")[1:]
    assert quotes == ["> **2026**\n> Leave in days: 15. [1]", "> Leave in hours: 120. [1]"]


@pytest.mark.parametrize("language", ["zh", "en"])
def test_a_model_is_told_the_same_limit(language: Language) -> None:
    assert str(SURE) in PromptLibrary().text("knowledge", language)
