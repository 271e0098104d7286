"""A text without a letter or a digit is not a candidate, and an emoji is not an answerable question.

Discriminates: taking !!! for a text in another language, whose cosine alone may make it relevant.
"""

from __future__ import annotations

from core.knowledge import Candidate, Chunk, FormMatch
from core.relevance.features import FEATURES, QUESTION_FEATURES, Features
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import encode_query


def candidate(text: str, dense: float, rank: int) -> Candidate:
    match = FormMatch(dense, rank)
    return Candidate(Chunk(f"c{rank}", "d", "f", text, 0), dense, None, rank, matches=(match,))


def ask(text: str) -> Query:
    return Query(text, (QueryForm(text, [], encode_query(text)),))


def test_numbers_have_no_language() -> None:
    rows = Features(
        ask("食堂几点关门？"), [candidate("1,2,3\n4,5,6", 0.8, 1), candidate("The canteen", 0.8, 2)]
    ).rows
    assert rows[:, FEATURES.index("foreign")].tolist() == [0.0, 1.0]


def test_a_question_without_words_makes_no_text_foreign() -> None:
    whole = Features(ask("😀🚀"), [candidate("食堂", 0.8, 1), candidate("钟楼", 0.8, 2)]).question
    assert whole[QUESTION_FEATURES.index("foreign")] == 0.0
