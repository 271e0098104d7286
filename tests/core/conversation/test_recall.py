from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.conversation.recall import (
    DEFAULT_THRESHOLD,
    E5,
    MINILM,
    QuestionMatch,
    Scores,
    rank_turns,
    spread_of,
)

POSITIONS = {turn_id: at for at, turn_id in enumerate("abcdefgh")}


def order(question: Scores = (), turn: Scores = (), words: Scores = (), depth: int = 50) -> str:
    return "".join(each.turn_id for each in rank_turns(question, turn, words, POSITIONS, depth))


def test_a_turn_found_by_words_and_by_meaning_ranks_first() -> None:
    meaning = [("a", 0.9), ("h", 0.88), ("e", 0.8)]
    assert order(meaning, meaning, [("h", 4.0), ("e", 1.0)])[0] == "h"


def test_scores_count_not_only_ranks() -> None:
    """A turn that has every rare word of the question beats one that leads by a hair twice.

    Discriminates: fusing by ranks (RRF), as 1/61 + 1/61 + 1/62 is more than 1/62 + 1/62 + 1/61.
    """
    assert order([("a", 0.801), ("h", 0.80), ("d", 0.7)], [("a", 0.801), ("h", 0.80), ("d", 0.7)],
                 [("h", 9.0), ("a", 2.0)])[0] == "h"  # fmt: skip


def test_a_turn_next_to_a_match_ranks_above_a_distant_one() -> None:
    """Discriminates: omitting NEIGHBOUR_WEIGHTS."""
    words = [("b", 9.0), ("h", 3.0), ("c", 2.9)]
    assert order(words=words) == "bch"


def test_turns_outside_the_branch_never_appear() -> None:
    assert order([("x", 0.99), ("a", 0.8)], [("y", 0.99)], [("z", 9.0), ("b", 1.0)]) in ("ab", "ba")


def test_the_later_of_equal_turns_ranks_first() -> None:
    assert order(words=[("a", 1.0), ("h", 1.0)]) == "ha"


def test_a_turn_missing_from_a_truncated_list_is_no_nearer_than_its_last() -> None:
    cut = rank_turns([], [("a", 0.9), ("b", 0.85)], [("h", 1.0)], POSITIONS, depth=2)
    whole = rank_turns([], [("a", 0.9), ("b", 0.85)], [("h", 1.0)], POSITIONS, depth=3)
    assert {each.turn_id: each.cosine for each in cut}["h"] == 0.85
    assert {each.turn_id: each.cosine for each in whole}["h"] is None


scores = st.dictionaries(st.sampled_from("abcdefghxyz"), st.floats(-1, 1)).map(
    lambda scores: sorted(scores.items(), key=lambda item: -item[1])
)


@given(scores, scores, scores)
def test_any_lists_return_each_turn_of_the_branch_once(question: Scores, turn: Scores, words: Scores) -> None:
    ranked = rank_turns(question, turn, words, POSITIONS, 50)
    results = {turn_id for each in (question, turn, words) for turn_id, _ in each} & POSITIONS.keys()
    assert sorted(each.turn_id for each in ranked) == sorted(results)


QUESTION = "How many days of parental leave do I get?"
RELATED = "用户: Is there parental leave?\n助手: Yes, parental leave is 30 days."
UNRELATED = "用户: Which colour is the office door?\n助手: It is green."


@pytest.mark.parametrize(("embedding", "near", "far"), [
    ("multilingual-e5-small", 0.88, 0.80), ("all-MiniLM-L6-v2", 0.5, 0.15), ("another-model", 0.6, 0.2),
])  # fmt: skip
def test_related_turns_are_likely_and_others_are_not_with_any_embedder(
    embedding: str, near: float, far: float
) -> None:
    match = QuestionMatch(QUESTION, spread_of(embedding))
    assert match.chance(near, RELATED) > 0.7
    assert match.chance(far, UNRELATED) < 0.1


def test_meaning_suffices_without_words_and_words_without_a_vector() -> None:
    match = QuestionMatch(QUESTION, E5)
    assert match.chance(0.95, UNRELATED) > 0.5
    assert match.chance(None, RELATED) > 0.5
    assert match.chance(None, UNRELATED) < DEFAULT_THRESHOLD


def test_a_question_in_another_language_is_judged_by_meaning() -> None:
    """Discriminates: counting the words that a text in another language cannot have."""
    match = QuestionMatch("育儿假有多少天？", E5)
    assert match.chance(0.87, RELATED) > DEFAULT_THRESHOLD > match.chance(0.82, RELATED)


def test_a_question_of_stop_words_and_an_empty_text_have_a_chance() -> None:
    assert 0.0 <= QuestionMatch("", MINILM).chance(None, "") < DEFAULT_THRESHOLD
    assert 0.0 <= QuestionMatch("那呢？", E5).chance(-1e9, "") < DEFAULT_THRESHOLD


def test_families_of_embedders_are_recognised_by_name() -> None:
    assert spread_of("intfloat/multilingual-e5-large") == E5
    assert spread_of("sentence-transformers/all-MiniLM-L12-v2") == MINILM
