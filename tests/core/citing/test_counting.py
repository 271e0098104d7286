"""Counting the items of a complete list or table."""

from __future__ import annotations

import pytest

from core.citing.quoting import Quotables
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import SparseTerms
from tests.core.citing.test_quoting import quoted

BOATS = "The club owns these boats:\n- Heron, a single\n- Otter, a single\n  - two oars\n- Pike, a four"
KINDS = "There are these kinds of members:\n\n- plot holders\n- supporters"
FEES = "| No. | Fee | Euros |\n| --- | --- | --- |\n{}| | Total | 90 |\n"
FEES = FEES.format("".join(f"| {number} | Fee of kind {number} | 1{number} |\n" for number in range(7)))


@pytest.mark.parametrize(
    ("question", "text", "items"),
    [
        ("How many boats does the club own?", BOATS, 3),
        ("How many boats are there altogether?", BOATS, 3),
        ("停车证一共有几种？", "停车证分为：\n1. 固定证\n2. 临时证", 2),
        ("How many fees are there?", FEES, 7),
        ("How many kinds of members are there?", f"2.1 Apply.\n\n2.2 {KINDS}\n\n2.3 Leave.", 2),
        ("How many kinds of members are there?", f"2.2 {KINDS}\n\nMembers:\n\n- Ann\n- Bob\n- Cy", 2),
        ("How many single boats are there?", BOATS, 0),  # some of the list
        ("Which boats does the club own?", BOATS, 0),
        ("How many euros are the fees?", FEES, 0),
        ("How many leave days are there?", "Leave days:\n- juniors: 25 days\n- seniors: 30 days", 0),
        ("How many boats do I get?", BOATS, 0),
        ("会议室能坐几个人？", "会议室：\n- 松厅 20 个人\n- 竹厅 12 个人", 0),
        ("How many boats are there?", f"{BOATS}\n\n- Perch, an eight", 0),  # it continues
        ("How many boats are there?", "| Boat | Oar |\n| --- | --- |\n| Pike | 1 |\n| Pike | 2 |\n", 0),
    ],
)
def test_the_items_of_a_complete_list_are_counted_if_the_question_asks_how_many(
    question: str, text: str, items: int
) -> None:
    """Discriminates: counting rows when a cell holds the number; counting an incomplete list."""
    query = Query(question, (QueryForm(question, [], SparseTerms([], [])),))
    quotes = Quotables([("", text)]).quotes(query, question)
    assert [quote.items for quote in quotes if quote.items] == [items] * bool(items)


def test_a_counted_list_is_quoted_whole() -> None:
    """Discriminates: five rows of seven, or only the best stretch of the list."""
    (table,) = quoted("How many fees are there?", FEES)
    assert table.count("Fee: Fee of kind") == 7
    long = "The club owns these boats:\n" + "\n".join(
        f"- Boat {number} with a long description of what it is like to row in it" for number in range(12)
    )
    assert len(long) > 750
    assert quoted("How many boats does the club own?", long) == [long]


def test_a_list_that_continues_in_another_passage_is_quoted_whole_and_not_counted() -> None:
    """Discriminates: stating the number of items in one part; quoting five rows of that part."""
    question = "How many fees are there?"
    query = Query(question, (QueryForm(question, [], SparseTerms([], [])),))
    more = "| No. | Fee | Euros |\n| --- | --- | --- |\n| 7 | Late fee | 17 |"
    quotes = Quotables([("Fees", FEES), ("Fees", more)]).quotes(query, question)
    assert not any(quote.items for quote in quotes)
    assert quotes[0].text.count("Fee: Fee of kind") == 7


def test_a_complete_table_is_counted_despite_other_text_in_its_section() -> None:
    """Discriminates: a table not counted because the text below it is a passage of the same section."""
    question = "How many fees are there?"
    query = Query(question, (QueryForm(question, [], SparseTerms([], [])),))
    passages = [("Fees", FEES), ("Fees", "Fees are due in May.")]
    assert [quote.items for quote in Quotables(passages).quotes(query, question) if quote.items] == [7]
