"""How much of a passage the answerer without a model shows, and what it says of the rest."""

from __future__ import annotations

import pytest

from core.prompt.layouts import ReadBack
from services.models.extractive import answer


@pytest.mark.parametrize(("relevance", "chars", "shown"), [(0.5, 900, 3), (0.3, 480, 3), (0.15, 480, 2)])
def test_what_is_only_near_is_as_long_as_one_needs_to_judge_it(
    relevance: float, chars: int, shown: int
) -> None:
    """Discriminates: whole sections below "the closest passage", the less probable as long as the best."""
    rules = "\n".join(f"- Rule {at}: boats sail over the bay, and nobody stays at home." for at in range(14))
    text = "\n\n".join(
        f'<passage id="{at}" file="{at}.md" heading="" relevance="{relevance}">\n{rules}\n</passage>'
        for at in (1, 2, 3)
    )
    said = answer(ReadBack(text, "Who designed this?", ())).split("\n\n")[1:]
    assert (len(said), len(said[-1]) <= chars) == (shown, True)
    assert len(answer(ReadBack(text, "这是谁设计的？", ())).split("\n\n")[-1]) > 800


def test_a_table_that_goes_on_in_another_passage_says_where() -> None:
    """Discriminates: a part of a table that looks like all of it; one table of two sections taken for one."""
    table = "| Prize | Sum |\n|---|---|\n| {} | {} |"
    passage = '<passage id="{}" file="a.md" heading="{}" relevance="{}">\n{}\n</passage>'
    first = passage.format(
        1, "Prizes", 0.9, table.format("First prize of the town", "30 | \n| Second prize | 20")
    )
    for heading, ends in (("Prizes", "The table has more rows: [2]."), ("Fines", "[1]")):
        other = passage.format(2, heading, 0.06, table.format("Consolation", "5"))
        said = answer(ReadBack(f"{first}\n\n{other}", "奖金 award for winners?", ()), language="en")
        assert said.endswith(ends)
