"""Part numbers and codes in a question: which words are, and who has them."""

from __future__ import annotations

import pytest

from core.relevance.identifiers import MOST_CODES, identifiers, shares


@pytest.mark.parametrize(
    ("question", "codes"),
    [
        ("Which number has the safe of project heron 10028?", ("10028",)),
        ("白鹭10056号样品架的编号是多少？", ("10056",)),
        ("What does ISO9001 say about AK-130 and E-4821?", ("iso9001", "ak-130", "e-4821")),
        ("2024年的预算", ()),
        ("the 2010-2011 season, the 11th of 2024-03-05, the 1980s", ()),
        ("error 404 in version 3", ()),
        ("", ()),
    ],
)
def test_codes_are_told_from_years_dates_and_ordinals(question: str, codes: tuple[str, ...]) -> None:
    """Discriminates: every number taken for a code."""
    assert identifiers(question) == codes


def test_a_code_is_found_as_a_whole_word_whatever_its_case() -> None:
    """Discriminates: 10028 found in 110028."""
    texts = ["Heron 10028.", "110028", "10028a", "iso9001 and 10028号", ""]
    assert shares(("10028", "iso9001"), texts) == [0.5, 0.0, 0.0, 1.0, 0.0]


def test_a_log_full_of_codes_costs_no_more_than_a_few() -> None:
    assert len(identifiers(" ".join(f"AB{number:05}" for number in range(10_000)))) == MOST_CODES
