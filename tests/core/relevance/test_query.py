import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.relevance.query import reciprocal_rank_fusion

RANKINGS = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), max_size=4)


def test_an_id_that_two_lists_agree_on_comes_before_one_that_leads_a_single_list() -> None:
    fused = reciprocal_rank_fusion([["a", "b"], ["c", "b"]])
    assert [chunk_id for chunk_id, _ in fused] == ["b", "a", "c"]
    assert fused[0][1] == pytest.approx(2 / 62)


def test_weights_scale_a_list_and_weight_zero_leaves_it_out() -> None:
    fused = reciprocal_rank_fusion([["a"], ["b"], ["c"]], [1.0, 2.0, 0.0], k=10)
    assert [chunk_id for chunk_id, _ in fused] == ["b", "a"]
    assert [score for _, score in fused] == pytest.approx([2 / 11, 1 / 11])


def test_no_rankings_give_nothing() -> None:
    assert reciprocal_rank_fusion([]) == []
    assert reciprocal_rank_fusion([[]]) == []


def test_an_id_twice_in_one_list_counts_where_it_stands_first() -> None:
    assert reciprocal_rank_fusion([["a", "b", "a"]]) == reciprocal_rank_fusion([["a", "b"]])


@pytest.mark.parametrize(
    ("weights", "k"), [([1.0], 60), ([1.0, -1.0], 60), ([1.0, float("nan")], 60), (None, 0)]
)
def test_bad_arguments_are_refused(weights: list[float] | None, k: int) -> None:
    with pytest.raises(ValueError, match=r"k must be|each ranking"):
        reciprocal_rank_fusion([["a"], ["b"]], weights, k)


@given(RANKINGS)
def test_every_id_comes_out_once_with_scores_that_fall(rankings: list[list[str]]) -> None:
    fused = reciprocal_rank_fusion(rankings)
    scores = [score for _, score in fused]
    assert sorted(chunk_id for chunk_id, _ in fused) == sorted(
        {item for ranking in rankings for item in ranking}
    )
    assert scores == sorted(scores, reverse=True)


@given(RANKINGS)
def test_the_same_list_again_changes_no_order(rankings: list[list[str]]) -> None:
    once = [chunk_id for chunk_id, _ in reciprocal_rank_fusion(rankings)]
    twice = [chunk_id for chunk_id, _ in reciprocal_rank_fusion([*rankings, *rankings])]
    assert once == twice
